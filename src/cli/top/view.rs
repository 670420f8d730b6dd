//! The worker's report as a screen. Pure.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table, Wrap};

use crate::cli::status::{energy, held, kudos, memory, of_reason, percent, state, whole};
use crate::daemon::report::{RunningJobReport, TallyReport, WorkerReport};

/// Rows of jobs that are shown where many run.
const MOST_JOBS: usize = 12;

pub struct TopView {
    /// `None` if no worker runs.
    pub report: Option<WorkerReport>,
    /// The effect of the last key.
    pub message: String,
}

/// A table with its title.
struct TopSection {
    title: &'static str,
    headings: Vec<&'static str>,
    widths: Vec<Constraint>,
    rows: Vec<Vec<String>>,
}

pub fn draw(frame: &mut Frame<'_>, view: &TopView) {
    let [body, footer] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    let keys = "q quit   p pause   r resume";
    let keys = match view.message.as_str() {
        "" => keys.to_owned(),
        message => format!("{keys}   {message}"),
    };
    frame.render_widget(Line::from(keys).reversed(), footer);
    let Some(report) = &view.report else {
        let text = Paragraph::new("no worker runs with this data folder");
        return frame.render_widget(text, body);
    };
    let sections = sections(report);
    let heights = sections.iter().map(|section| section.height());
    let heights = heights.map(Constraint::Length);
    let head = head(report);
    let head_height = Constraint::Length(u16::try_from(head.len()).unwrap_or(u16::MAX));
    let all: Vec<Constraint> = [head_height]
        .into_iter()
        .chain(heights)
        .chain([Constraint::Min(3)])
        .collect();
    let areas = Layout::vertical(all).split(body);
    let mut areas = areas.iter().copied();
    let mut next = || areas.next().unwrap_or_default();
    frame.render_widget(Paragraph::new(head), next());
    for section in sections {
        section.draw(frame, next());
    }
    let reasons: Vec<Line<'_>> = match report.no_jobs.as_slice() {
        [] => vec![Line::from("none: jobs come")],
        reasons => reasons
            .iter()
            .map(|one| Line::from(of_reason(one)))
            .collect(),
    };
    let reasons = Paragraph::new(reasons).wrap(Wrap { trim: true });
    let block = Block::bordered().title("Why no jobs come");
    frame.render_widget(reasons.block(block), next());
}

/// Name, state, earnings and energy.
fn head(report: &WorkerReport) -> Vec<Line<'static>> {
    let state = match (&report.starting, &report.pause) {
        (Some(starting), _) => starting.clone(),
        (None, Some(pause)) => format!("{} {}", pause.state, pause.reasons.join("; ")),
        (None, None) => "takes jobs".to_owned(),
    };
    let title = format!("worker {} {}: {state}", report.name, report.version);
    let (jobs, today) = (&report.jobs, &report.today);
    let earned = format!(
        "kudos: {} today, {} since the start; jobs: {} running, {} done today, {} since the start, {} failed",
        kudos(today.earned_thousandths),
        kudos(jobs.earned_thousandths),
        jobs.running,
        today.done,
        jobs.done,
        jobs.failed,
    );
    let mut lines = vec![Line::from(title).bold(), Line::from(earned)];
    let energy = energy(report);
    if !energy.is_empty() {
        lines.push(Line::from(energy.trim_end().to_owned()));
    }
    lines
}

fn sections(report: &WorkerReport) -> Vec<TopSection> {
    let mut sections = Vec::new();
    if !report.gpus.is_empty() {
        sections.push(gpus(report));
    }
    sections.push(models(report));
    if !report.running.is_empty() {
        sections.push(jobs(report));
    }
    sections.push(coordinators(report));
    sections
}

fn gpus(report: &WorkerReport) -> TopSection {
    let gpus = report.gpus.iter().enumerate();
    TopSection {
        title: "GPUs",
        headings: vec!["GPU", "LOAD", "MEMORY", "WATTS", "HEAT"],
        widths: [24, 18, 24, 8, 8].map(Constraint::Min).to_vec(),
        rows: gpus
            .map(|(at, gpu)| {
                vec![
                    format!("{at} {}", gpu.name),
                    format!(
                        "{} {}",
                        bar(gpu.load.unwrap_or_default()),
                        percent(gpu.load)
                    ),
                    memory(gpu),
                    whole(gpu.watts, " W"),
                    whole(gpu.celsius.map(f64::from), " °C"),
                ]
            })
            .collect(),
    }
}

fn models(report: &WorkerReport) -> TopSection {
    let models = report.models.iter();
    TopSection {
        title: "Models",
        headings: vec!["MODEL", "STATE", "RUNNING", "TOKENS/S", "TODAY", "KUDOS"],
        widths: widths(24, 24, &[8, 9, 8, 10]),
        rows: models
            .map(|model| {
                let speed = model.tokens_per_second;
                vec![
                    model.name.clone(),
                    state(model),
                    model.running.to_string(),
                    speed.map_or_else(|| "-".to_owned(), |speed| format!("{speed:.1}")),
                    model.today.done.to_string(),
                    kudos(model.today.earned_thousandths),
                ]
            })
            .collect(),
    }
}

fn jobs(report: &WorkerReport) -> TopSection {
    let jobs = report.running.iter().take(MOST_JOBS);
    TopSection {
        title: "Jobs",
        headings: vec!["MODEL", "COORDINATOR", "SECONDS", "PROGRESS"],
        widths: widths(24, 24, &[9, 24]),
        rows: jobs
            .map(|job| {
                vec![
                    job.model.clone(),
                    job.coordinator.clone(),
                    format!("{:.1}", job.seconds),
                    progress(job),
                ]
            })
            .collect(),
    }
}

fn coordinators(report: &WorkerReport) -> TopSection {
    let coordinators = report.coordinators.iter();
    TopSection {
        title: "Coordinators",
        headings: vec!["COORDINATOR", "STATE", "TODAY", "KUDOS", "HELD"],
        widths: widths(24, 24, &[8, 10, 16]),
        rows: coordinators
            .map(|one| {
                let reason = one.reason.as_deref().filter(|reason| !reason.is_empty());
                let TallyReport {
                    done,
                    earned_thousandths,
                    ..
                } = one.today;
                vec![
                    one.name.clone(),
                    reason.map_or_else(
                        || one.state.clone(),
                        |reason| format!("{}: {reason}", one.state),
                    ),
                    done.to_string(),
                    kudos(earned_thousandths),
                    held(one),
                ]
            })
            .collect(),
    }
}

fn widths(first: u16, second: u16, rest: &[u16]) -> Vec<Constraint> {
    let wide = [Constraint::Min(first), Constraint::Min(second)];
    let rest = rest.iter().copied().map(Constraint::Length);
    wide.into_iter().chain(rest).collect()
}

/// Steps of a job for media, tokens of one for text.
fn progress(job: &RunningJobReport) -> String {
    match job.steps {
        Some((at, of)) => {
            let share = f64::from(at) / f64::from(of.max(1));
            format!("{} {at} of {of}", bar(share))
        }
        None => format!("{} tokens", job.tokens),
    }
}

/// Ten signs for a share from 0 to 1.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * 10.0).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(10 - full))
}

impl TopSection {
    /// With its frame and its headings.
    fn height(&self) -> u16 {
        u16::try_from(self.rows.len())
            .unwrap_or(u16::MAX)
            .saturating_add(3)
    }

    fn draw(self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rows.into_iter().map(Row::new);
        let table = Table::new(rows, self.widths)
            .header(Row::new(self.headings).bold())
            .block(Block::bordered().title(self.title));
        frame.render_widget(table, area);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::daemon::report::{
        CoordinatorReport, EnergyReport, GpuReport, JobsReport, ModelReport, NoJobsReport,
    };

    fn report() -> WorkerReport {
        WorkerReport {
            name: "rig".to_owned(),
            version: "1.2.3".to_owned(),
            placement: String::new(),
            starting: None,
            pause: None,
            models: vec![ModelReport {
                name: "tiny".to_owned(),
                state: "loaded".to_owned(),
                tokens_per_second: Some(41.26),
                ..ModelReport::default()
            }],
            upstreams: Vec::new(),
            coordinators: vec![CoordinatorReport {
                name: "net:443".to_owned(),
                state: "connected".to_owned(),
                held_jobs: 2,
                ..CoordinatorReport::default()
            }],
            jobs: JobsReport {
                running: 1,
                earned_thousandths: 12_340,
                ..JobsReport::default()
            },
            running: vec![RunningJobReport {
                model: "painter".to_owned(),
                coordinator: "net:443".to_owned(),
                seconds: 3.25,
                tokens: 0,
                steps: Some((4, 8)),
            }],
            today: TallyReport::default(),
            last_job_at: None,
            gpus: vec![GpuReport {
                name: "NVIDIA H200".to_owned(),
                load: Some(0.83),
                memory_used_bytes: 3 << 30,
                memory_total_bytes: 140 << 30,
                watts: Some(412.4),
                celsius: Some(61),
            }],
            page: None,
            energy: EnergyReport {
                today_watt_hours: Some(1500.0),
                today_cost: Some(0.45),
                ..EnergyReport::default()
            },
            rules: Vec::new(),
            no_jobs: Vec::new(),
        }
    }

    fn screen(view: &TopView, (columns, rows): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn of(report: WorkerReport) -> TopView {
        TopView {
            report: Some(report),
            message: "paused by command".to_owned(),
        }
    }

    #[test]
    fn gpus_models_jobs_earnings_and_coordinators_are_on_the_screen() {
        let shown = screen(&of(report()), (110, 40));
        for words in [
            "worker rig 1.2.3: takes jobs",
            "0 NVIDIA H200",
            "████████░░ 83 %",
            "3.0 GiB of 140.0 GiB",
            "412 W",
            "61 °C",
            "41.3",
            "█████░░░░░ 4 of 8",
            "12.34 since the start",
            "1500.0 Wh today, which cost 0.45",
            "net:443",
            "2 jobs",
            "none: jobs come",
            "q quit   p pause   r resume   paused by command",
        ] {
            assert!(shown.contains(words), "{words:?} is not on:\n{shown}");
        }
    }

    #[test]
    fn reasons_are_shown_and_a_small_terminal_loses_only_what_has_no_room() {
        let mut report = report();
        report.gpus.clear();
        report.no_jobs.push(NoJobsReport {
            cause: "no_demand".to_owned(),
            text: "no client requested this model".to_owned(),
            remedy: None,
            coordinator: Some("net:443".to_owned()),
            model: Some("tiny".to_owned()),
        });
        let shown = screen(&of(report.clone()), (90, 30));
        let reason = "net:443: tiny: no client requested this model";
        assert!(shown.contains(reason), "{shown}");
        assert!(!shown.contains("GPUs"), "{shown}");
        let small = screen(&of(report), (30, 6));
        assert!(
            small.contains("worker rig") && small.contains("q quit"),
            "{small}"
        );
        let ended = TopView {
            report: None,
            message: String::new(),
        };
        assert!(screen(&ended, (60, 5)).contains("no worker runs"));
    }
}
