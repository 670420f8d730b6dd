//! `worker doctor`: finds out why something does not work.
//!
//! Each check reports its finding and, if there is a problem, the remedy. A check that depends on a failed one is
//! skipped.

mod checks;
pub mod coordinators;
mod trial;
mod upstreams;

use serde_json::json;

use super::table::Table;
use super::{Exit, Failure, Root, load, output, threads};
use crate::config::{Config, Sources};
use crate::hardware;

const EXAMPLES: &str = "\
Examples:
  worker doctor --config worker.toml
  worker doctor --model ./tiny.gguf          test a generation with this model
  worker doctor --json | jq -r .verdict";

/// Diagnose configuration, hardware, models and coordinators.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Model of text or images for the test generation (default: the first configured model of each, else the built-in ones).
    #[arg(long)]
    model: Option<String>,
}

/// A line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub finding: String,
    pub advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Ok,
    Warn,
    Fail,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let (config, configuration, secrets) = configuration(root)?;
    threads::settle(&config)?;
    let mut report = Report {
        json: args.json,
        checks: Vec::new(),
    };
    report.add(configuration)?;
    for check in secrets {
        report.add(check)?;
    }
    let machine = hardware::probe();
    for check in of_machine(&config, &machine) {
        report.add(check)?;
    }
    let (check, devices) = checks::device(&config, &machine);
    report.add(check)?;
    for check in checks::kernels() {
        report.add(check)?;
    }
    if let Some(devices) = devices {
        let models = async { Ok(checks::models(&config, &devices).await) };
        for check in load::block_on(models)? {
            report.add(check)?;
        }
    }
    for check in load::block_on(async { Ok(upstreams::checks(&config).await) })? {
        report.add(check)?;
    }
    let coordinators =
        load::block_on(async { Ok(coordinators::checks(&config, root.offline).await) })?;
    for check in coordinators {
        report.add(check)?;
    }
    let trials = trial::generations(&config, args.model.as_deref());
    for check in load::block_on(async { Ok(trials.await) })? {
        report.add(check)?;
    }
    report.end()
}

/// The checks that leave device and models to a worker that runs: the owner's page shows them.
pub async fn beside_worker(root: &Root, has_coordinators: bool) -> Vec<Check> {
    let (config, configuration, secrets) = match configuration(root) {
        Ok(read) => read,
        Err(failure) => return vec![Check::fail("configuration", failure, "correct the file")],
    };
    let mut found = vec![configuration];
    found.extend(secrets);
    let files = config.clone();
    let of_machine = tokio::task::spawn_blocking(move || {
        let machine = hardware::probe();
        let mut found = of_machine(&files, &machine);
        found.extend(checks::files(&files));
        found
    });
    // Reading the machine does not panic.
    found.extend(of_machine.await.unwrap_or_default());
    found.extend(upstreams::checks(&config).await);
    if has_coordinators {
        found.extend(coordinators::checks(&config, root.offline).await);
    }
    found
}

fn of_machine(config: &Config, machine: &hardware::Machine) -> Vec<Check> {
    let mut found = vec![
        checks::graphics(machine, cfg!(feature = "cuda")),
        checks::memory(machine.memory),
        checks::disk("disk for models", &config.hub.cache_dir),
        checks::disk("disk for data", &config.worker.data_dir),
        checks::clock(std::time::SystemTime::now()),
    ];
    if config.owner.idle_for.is_some() {
        found.push(checks::input(hardware::InputSources::read()));
    }
    found
}

/// The configuration; if it is invalid, that is the finding, and defaults replace it.
fn configuration(root: &Root) -> Result<(Config, Check, Vec<Check>), Failure> {
    match root.load() {
        Ok(loaded) => {
            let check = checks::configuration(root.config.as_deref(), &loaded.warnings);
            let secrets = checks::secrets(&loaded.exposures);
            Ok((loaded.config, check, secrets))
        }
        Err(failure) => {
            let check = Check::fail(
                "configuration",
                &failure,
                "correct the file; `worker config check FILE` checks it again",
            );
            let environment = Sources::of_process(None, Vec::new()).environment;
            let home = environment
                .into_iter()
                .filter(|(name, _)| name == "HOME")
                .collect();
            let defaults = Config::load(&Sources {
                environment: home,
                ..Sources::default()
            })?;
            Ok((defaults.config, check, Vec::new()))
        }
    }
}

impl Check {
    pub fn ok(name: &'static str, finding: impl ToString) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            finding: finding.to_string(),
            advice: None,
        }
    }

    pub fn warn(name: &'static str, finding: impl ToString, advice: impl ToString) -> Self {
        Self {
            verdict: Verdict::Warn,
            advice: Some(advice.to_string()),
            ..Self::ok(name, finding)
        }
    }

    pub fn fail(name: &'static str, finding: impl ToString, advice: impl ToString) -> Self {
        Self {
            verdict: Verdict::Fail,
            ..Self::warn(name, finding, advice)
        }
    }
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Lines for people as they are found, or one JSON value at the end.
struct Report {
    json: bool,
    checks: Vec<Check>,
}

impl Report {
    fn add(&mut self, check: Check) -> Result<(), Failure> {
        if !self.json {
            let mut lines = Table::plain();
            let name = format!("{:<16}", check.name);
            lines.row([
                format!("{:<4}", check.verdict.word()),
                name,
                check.finding.clone(),
            ]);
            if let Some(advice) = &check.advice {
                lines.row([String::new(), " ".repeat(16), format!("-> {advice}")]);
            }
            output::text(lines)?;
        }
        self.checks.push(check);
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        let verdict = self
            .checks
            .iter()
            .map(|check| check.verdict)
            .max()
            .unwrap_or(Verdict::Ok);
        if self.json {
            let checks = self.checks.iter().map(|check| {
                json!({
                    "name": check.name,
                    "verdict": check.verdict.word(),
                    "finding": check.finding,
                    "advice": check.advice,
                })
            });
            output::json(
                &json!({ "verdict": verdict.word(), "checks": checks.collect::<Vec<_>>() }),
            )?;
        }
        let failed = self
            .checks
            .iter()
            .filter(|check| check.verdict == Verdict::Fail)
            .count();
        match failed {
            0 => Ok(()),
            1 => Err(Failure::new(Exit::Failed, "1 check failed")),
            some => Err(Failure::new(Exit::Failed, format!("{some} checks failed"))),
        }
    }
}
