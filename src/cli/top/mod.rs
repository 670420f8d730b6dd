//! `worker top`: the running worker on a terminal, read again each second.
//!
//! | file | contents |
//! | --- | --- |
//! | `view` | the worker's report as a screen |

mod view;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::load::block_on;
use super::owner::tell;
use super::{Exit, Failure, Root};
use crate::config::Config;
use crate::daemon::control::{self, OwnerCommand};
use crate::daemon::report::WorkerReport;
use view::TopView;

const INTERVAL: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  worker top                        of the worker of `worker up`
  worker top --config worker.toml   of the worker with this configuration";

/// Watch the running worker: GPUs, models, jobs, earnings, coordinators, and why no jobs come. `p` pauses, `r` resumes, `q` quits.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {}

pub fn run(_: &TopArgs, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "`worker top` needs a terminal, and this is none",
        )
        .hint("`worker status --json` shows the same to programs"));
    }
    let config = root.load()?.config;
    block_on(async {
        let folder = config.worker.data_dir.display().to_string();
        let first = report(&config).await?;
        if first.is_none() {
            let message = format!("no worker runs with the data folder {folder}");
            return Err(Failure::unavailable(message).hint(
                "`worker up` or `worker --config FILE` starts one; --data-dir names another folder",
            ));
        }
        let mut screen = TopScreen::open()?;
        watch(&mut screen.0, &config, first).await
    })
}

/// The terminal, as it was before once this is dropped.
struct TopScreen(DefaultTerminal);

impl TopScreen {
    fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init();
        terminal.map(Self).map_err(|error| broken(&error))
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("using the terminal failed: {error}"))
}

/// `None` if no worker runs.
async fn report(config: &Config) -> Result<Option<WorkerReport>, Failure> {
    let report = control::status(&config.worker.data_dir).await;
    report.map_err(|error| Failure::unavailable(format!("asking the worker failed: {error}")))
}

/// Until the owner quits.
async fn watch(
    terminal: &mut DefaultTerminal,
    config: &Config,
    first: Option<WorkerReport>,
) -> Result<(), Failure> {
    let mut view = TopView {
        report: first,
        message: String::new(),
    };
    loop {
        let shown = Instant::now();
        let drawn = terminal.draw(|frame| view::draw(frame, &view));
        drawn.map_err(|error| broken(&error))?;
        match key_until(shown + INTERVAL).map_err(|error| broken(&error))? {
            Some(TopKey::Quit) => return Ok(()),
            Some(TopKey::Pause) => {
                let command = OwnerCommand::Pause {
                    duration: None,
                    after_jobs: false,
                };
                view.message = told(&command, config).await;
            }
            Some(TopKey::Resume) => view.message = told(&OwnerCommand::Resume, config).await,
            None => {}
        }
        match report(config).await {
            Ok(report) => {
                if report.is_none() {
                    view.message = "the worker has ended; waiting for another one".to_owned();
                }
                view.report = report;
            }
            Err(failure) => view.message = failure.to_string(),
        }
    }
}

async fn told(command: &OwnerCommand, config: &Config) -> String {
    match tell(command, config, |_| None).await {
        Ok(outcome) => outcome.text,
        Err(failure) => failure.to_string(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopKey {
    Quit,
    Pause,
    Resume,
}

/// A key that means something; None at this time, or where the terminal has another size.
fn key_until(end: Instant) -> io::Result<Option<TopKey>> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !event::poll(left)? {
            return Ok(None);
        }
        match event::read()? {
            Event::Key(key) => {
                if let Some(key) = TopKey::of(key) {
                    return Ok(Some(key));
                }
            }
            Event::Resize(..) => return Ok(None),
            _ => {}
        }
    }
}

impl TopKey {
    fn of(key: KeyEvent) -> Option<Self> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => Some(Self::Quit),
            KeyCode::Char('q') | KeyCode::Esc => Some(Self::Quit),
            KeyCode::Char('p') => Some(Self::Pause),
            KeyCode::Char('r') => Some(Self::Resume),
            _ => None,
        }
    }
}
