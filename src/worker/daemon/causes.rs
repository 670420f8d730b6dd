//! Why no jobs come: from the state of the worker to reasons with remedies. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::inquiries::InquiryReply;
use super::report::{ModelReport, NoJobsReport, PauseReport, UpstreamReport};
use crate::link::inquiry::{ModelDemand, remedy};
use crate::link::{LinkProblem, Standing};
use muster_config::show_duration;
use muster_protocol::link::RefusalCode;

/// Without a job for so long a worker has none.
const IDLE: Duration = Duration::from_secs(30);
/// A worker below this share of the fastest one's speed gets jobs only while that one is busy.
const SLOW: f64 = 0.8;

/// The state of a worker that the reasons come from.
pub struct Situation<'a> {
    pub starting: Option<&'a str>,
    pub pause: Option<&'a PauseReport>,
    pub models: &'a [ModelReport],
    /// Models that could not be loaded, and why.
    pub refused_models: &'a BTreeMap<String, String>,
    pub upstreams: &'a [UpstreamReport],
    pub lines: &'a [LineState],
    /// Since the last job; since the start where none came.
    pub idle: Duration,
    pub had_jobs: bool,
    pub is_running: bool,
}

/// A line to a coordinator.
#[derive(Debug, Clone)]
pub struct LineState {
    pub label: String,
    pub standing: Standing,
    pub maintenance: Option<String>,
    pub problem: Option<LinkProblem>,
    /// Why a polled coordinator passed this worker over.
    pub skips: Option<String>,
    /// Whether its section accepts only jobs of the owner's account.
    pub own_jobs: bool,
    pub reply: InquiryReply,
}

/// All reasons, the worker's own first. Empty while jobs arrive.
pub fn causes(worker: &Situation<'_>) -> Vec<NoJobsReport> {
    let mut causes = Vec::new();
    if let Some(starting) = worker.starting {
        causes.push(cause("starting", starting).remedy("no jobs come until it is done"));
    }
    if let Some(pause) = worker.pause {
        causes.extend(pauses(pause));
    }
    for model in worker.models {
        causes.extend(of_download(model));
    }
    for (model, failure) in worker.refused_models {
        causes.push(cause("model_refused", failure).of_model(model));
    }
    for upstream in worker.upstreams {
        let failure = upstream.failure.as_ref();
        causes.extend(failure.map(|failure| {
            let text = format!("{} does not serve it: {failure}", upstream.url);
            cause("upstream_down", text)
                .of_model(&upstream.name)
                .remedy("start the program, or check url, api and model in its section")
        }));
    }
    let is_served = |model: &&ModelReport| model.download.is_none();
    let served: Vec<&ModelReport> = worker.models.iter().filter(is_served).collect();
    if served.is_empty() && worker.starting.is_none() {
        let text = "this worker serves no model";
        causes.push(cause("no_models", text).remedy("name some in models.serve"));
    }
    if worker.lines.is_empty() && worker.starting.is_none() {
        causes.push(
            cause("no_coordinator", "no coordinator is configured")
                .remedy("add one with `worker join TOKEN`"),
        );
    }
    for line in worker.lines {
        causes.extend(of_connection(line));
    }
    let has_nothing = !worker.is_running && worker.idle >= IDLE;
    if worker.pause.is_none() && has_nothing {
        for line in worker.lines.iter().filter(|line| line.is_serving()) {
            causes.extend(of_demand(line, &served, worker));
        }
    }
    causes
}

fn cause(name: &str, text: impl Into<String>) -> NoJobsReport {
    NoJobsReport {
        cause: name.to_owned(),
        text: text.into(),
        remedy: None,
        coordinator: None,
        model: None,
    }
}

impl NoJobsReport {
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn of_model(mut self, model: &str) -> Self {
        self.model = Some(model.to_owned());
        self
    }

    fn at(mut self, coordinator: &str) -> Self {
        self.coordinator = Some(coordinator.to_owned());
        self
    }
}

impl LineState {
    fn is_serving(&self) -> bool {
        matches!(self.standing, Standing::Connected(_)) && self.maintenance.is_none()
    }
}

fn pauses(pause: &PauseReport) -> Vec<NoJobsReport> {
    let name = match pause.state.as_str() {
        "closing" => "closing",
        _ => "paused",
    };
    let reasons = pause.reasons.iter();
    let reasons = reasons.map(|reason| match reason.starts_with("by command") {
        true => cause(name, format!("paused {reason}")).remedy("`worker resume` ends the pause"),
        false => cause(name, format!("paused: {reason}")).remedy("change the rule in [owner]"),
    });
    reasons.collect()
}

fn of_download(model: &ModelReport) -> Option<NoJobsReport> {
    let download = model.download.as_ref()?;
    let found = match &download.failure {
        Some(failure) => cause("download_failed", format!("the download failed: {failure}"))
            .remedy("the worker tries again by itself"),
        None => cause("downloading", "the model is being downloaded"),
    };
    Some(found.of_model(&model.name))
}

fn of_connection(line: &LineState) -> Option<NoJobsReport> {
    let label = &line.label;
    let found = match &line.standing {
        Standing::Connected(_) => {
            let note = line.maintenance.as_ref()?;
            let note = match note.as_str() {
                "" => String::new(),
                note => format!(": {note}"),
            };
            let text = format!("the coordinator has this worker in maintenance{note}");
            cause("maintenance", text)
                .remedy("the owner of the worker or a moderator can end it there")
        }
        Standing::Left => cause("left", "the worker has left this coordinator"),
        Standing::Refused(why) => {
            let code = line.problem.as_ref().and_then(|problem| problem.code);
            refusal(why, code, line)
        }
        Standing::Away => match (&line.problem, &line.reply.finding) {
            (Some(problem), _) if problem.is_refusal => refusal(&problem.text, problem.code, line),
            (_, Some(finding)) => {
                let found = cause("not_connected", &finding.found);
                match &finding.remedy {
                    Some(remedy) => found.remedy(remedy),
                    None => found,
                }
            }
            (Some(problem), None) => cause("not_connected", &problem.text)
                .remedy("the worker tries again by itself; `worker doctor` looks for the cause"),
            (None, None) => cause("not_connected", "the worker is connecting"),
        },
    };
    Some(found.at(label))
}

/// The inquiry may have more details than the refusal.
fn refusal(why: &str, code: Option<RefusalCode>, line: &LineState) -> NoJobsReport {
    let is_bound = code == Some(RefusalCode::Scope) && why.contains("another name");
    let name = match code {
        Some(RefusalCode::Auth) => "wrong_key",
        Some(RefusalCode::Scope) if is_bound => "key_of_another_worker",
        Some(RefusalCode::Scope) => "no_permission",
        Some(RefusalCode::NameTaken) => "name_taken",
        Some(RefusalCode::Cooldown) => "cooldown",
        Some(RefusalCode::RetiredModel) => "retired_model",
        _ => "refused",
    };
    match &line.reply.finding {
        Some(finding) if is_bound => {
            let remedy = finding.remedy.clone();
            let remedy = remedy.unwrap_or_else(|| self::remedy(code, why).to_owned());
            cause(name, &finding.found).remedy(remedy)
        }
        _ => cause(name, format!("the coordinator refuses this worker: {why}"))
            .remedy(remedy(code, why)),
    }
}

/// Why nothing comes over a line that is in order.
fn of_demand(
    line: &LineState,
    served: &[&ModelReport],
    worker: &Situation<'_>,
) -> Vec<NoJobsReport> {
    let since = match worker.had_jobs {
        true => format!("no jobs for {}", since_words(worker.idle)),
        false => "no jobs since the start".to_owned(),
    };
    let mut found = Vec::new();
    if line.own_jobs {
        let text =
            format!("{since}: it takes the jobs of your own account alone, which has sent none");
        let own = cause("own_jobs", text)
            .remedy("remove jobs = \"own\" from its section to take those of others");
        return vec![own.at(&line.label)];
    }
    if let Some(skips) = &line.skips {
        let text = format!("jobs wait there that this worker does not get: {skips}");
        found.push(cause("skipped", text).at(&line.label));
    }
    let Some(demand) = &line.reply.demand else {
        let text = format!("{since}: no client requests the models served here");
        found.push(cause("no_demand", text).at(&line.label));
        return found;
    };
    for model in served {
        let name = &model.name;
        let of_model = demand.models.get(name.as_str()).copied();
        let (cause_name, text) = match of_model {
            Some(known) => words(&known),
            None => (
                "no_demand",
                "the coordinator lists no such model".to_owned(),
            ),
        };
        let text = format!("{since}: {text}");
        found.push(cause(cause_name, text).of_model(name).at(&line.label));
    }
    found
}

fn words(demand: &ModelDemand) -> (&'static str, String) {
    let workers = demand.workers.unwrap_or(1);
    // Workers without a measured speed have 0.
    if let Some(speed) = demand
        .relative_speed
        .filter(|speed| *speed > 0.0 && *speed < SLOW)
        && workers > 1
        && demand.jobs_per_day != Some(0)
    {
        let percent = (speed * 100.0).round();
        let text = format!(
            "others of the {workers} workers are faster and get the jobs first; this one has {percent} % of the speed of the fastest"
        );
        return ("slower", text);
    }
    let text = match (demand.jobs_per_day, demand.queued) {
        (Some(0), _) => "no client requested this model in the last 24 hours".to_owned(),
        (Some(jobs), _) => {
            format!("{jobs} jobs of this model in the last 24 hours, for {workers} workers")
        }
        (None, Some(0)) => "no job of this model waits there".to_owned(),
        (None, Some(queued)) => {
            format!("{queued} jobs of this model wait there, for {workers} workers")
        }
        (None, None) => "no client requests this model".to_owned(),
    };
    ("no_demand", text)
}

/// In whole seconds below a minute, else in whole minutes.
fn since_words(time: Duration) -> String {
    let unit = if time.as_secs() < 60 { 1 } else { 60 };
    show_duration(Duration::from_secs(time.as_secs() / unit * unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::report::DownloadReport;
    use crate::link::inquiry::{Demand, Finding, Step, Verdict};
    use crate::link::session::Peer;

    fn line(standing: Standing) -> LineState {
        LineState {
            label: "net:443".to_owned(),
            standing,
            maintenance: None,
            problem: None,
            skips: None,
            own_jobs: false,
            reply: InquiryReply::default(),
        }
    }

    fn model(name: &str) -> ModelReport {
        ModelReport {
            name: name.to_owned(),
            state: "loaded".to_owned(),
            ..ModelReport::default()
        }
    }

    /// The causes of an idle worker with one model.
    fn found(lines: &[LineState]) -> Vec<NoJobsReport> {
        let models = [model("m")];
        causes(&Situation {
            starting: None,
            pause: None,
            models: &models,
            refused_models: &BTreeMap::new(),
            upstreams: &[],
            lines,
            idle: Duration::from_secs(300),
            had_jobs: true,
            is_running: false,
        })
    }

    fn only(lines: &[LineState]) -> (String, String, String) {
        let found = found(lines);
        let [one] = found.as_slice() else {
            panic!("one cause expected: {found:?}");
        };
        let remedy = one.remedy.clone().unwrap_or_default();
        (one.cause.clone(), one.text.clone(), remedy)
    }

    #[test]
    fn a_line_that_is_away_says_its_last_error_and_what_the_inquiry_found() {
        let mut away = line(Standing::Away);
        away.problem = Some(LinkProblem::failure("connection refused"));
        let (name, text, _) = only(&[away.clone()]);
        assert_eq!(
            (name.as_str(), text.as_str()),
            ("not_connected", "connection refused")
        );
        away.reply.finding = Some(Finding {
            step: Step::Encryption,
            verdict: Verdict::Bad,
            found: "the certificate has expired".to_owned(),
            remedy: Some("renew it".to_owned()),
        });
        let (_, text, remedy) = only(&[away]);
        assert_eq!(
            (text.as_str(), remedy.as_str()),
            ("the certificate has expired", "renew it")
        );
    }

    #[test]
    fn refusals_are_told_apart_with_their_remedies() {
        let refused = |code, words: &str| {
            let mut refused = line(Standing::Away);
            refused.problem = Some(LinkProblem::refusal(words, Some(code)));
            only(&[refused])
        };
        let (name, _, remedy) = refused(RefusalCode::Auth, "the key is unknown");
        assert!(name == "wrong_key" && remedy.contains("worker key join"));
        let words = "the key is for a worker with another name";
        let (name, _, remedy) = refused(RefusalCode::Scope, words);
        assert!(
            name == "key_of_another_worker" && remedy.contains("set name"),
            "{remedy}"
        );
        let (name, _, remedy) = refused(RefusalCode::Scope, "the key lacks the scope");
        assert!(name == "no_permission" && remedy.contains("worker.connect"));
        let (name, _, remedy) = refused(RefusalCode::NameTaken, "another account");
        assert!(name == "name_taken" && remedy.contains("another name"));
        let (name, text, _) = only(&[line(Standing::Refused("no".to_owned()))]);
        assert!(name == "refused" && text.contains("no"));
    }

    #[test]
    fn demand_is_told_by_model_and_a_slow_worker_knows_it() {
        let mut connected = line(Standing::Connected(Peer::Ours));
        let (name, text, _) = only(&[connected.clone()]);
        assert_eq!(name, "no_demand");
        assert!(text.starts_with("no jobs for 5"), "{text}");
        let mut demanded = |demand: ModelDemand| {
            let models = BTreeMap::from([("m".to_owned(), demand)]);
            connected.reply.demand = Some(Demand {
                models,
                held_kudos: None,
            });
            only(&[connected.clone()])
        };
        let unwanted = ModelDemand {
            jobs_per_day: Some(0),
            ..ModelDemand::default()
        };
        let (name, text, _) = demanded(unwanted);
        assert!(
            name == "no_demand" && text.contains("no client requested"),
            "{text}"
        );
        let slow = ModelDemand {
            workers: Some(3),
            jobs_per_day: Some(9),
            queued: None,
            relative_speed: Some(0.25),
        };
        let (name, text, _) = demanded(slow);
        assert!(name == "slower" && text.contains("25 %"), "{text}");
        let mut own = line(Standing::Connected(Peer::Ours));
        own.own_jobs = true;
        let (name, text, remedy) = only(&[own]);
        assert!(name == "own_jobs" && text.contains("your own account"));
        assert!(remedy.contains("jobs = \"own\""), "{remedy}");
        let mut maintenance = line(Standing::Connected(Peer::Ours));
        maintenance.maintenance = Some("too slow".to_owned());
        let (name, text, _) = only(&[maintenance]);
        assert!(name == "maintenance" && text.contains("too slow"));
    }

    #[test]
    fn a_worker_that_cannot_serve_says_what_is_in_its_way() {
        let mut downloading = model("d");
        downloading.download = Some(DownloadReport {
            failure: Some("no space left on device".to_owned()),
            ..DownloadReport::default()
        });
        let pause = PauseReport {
            state: "paused".to_owned(),
            reasons: vec![
                "by command, until `worker resume`".to_owned(),
                "while game runs (owner.pause_for)".to_owned(),
            ],
            until: None,
        };
        let refused = BTreeMap::from([("big".to_owned(), "needs 80 GiB".to_owned())]);
        let found = causes(&Situation {
            starting: Some("loading m"),
            pause: Some(&pause),
            models: &[downloading],
            refused_models: &refused,
            upstreams: &[],
            lines: &[],
            idle: Duration::ZERO,
            had_jobs: false,
            is_running: false,
        });
        let names: Vec<&str> = found.iter().map(|one| one.cause.as_str()).collect();
        let wanted = [
            "starting",
            "paused",
            "paused",
            "download_failed",
            "model_refused",
        ];
        assert_eq!(names, wanted);
        assert_eq!(found[4].model.as_deref(), Some("big"));
        let nothing = causes(&Situation {
            starting: None,
            pause: None,
            models: &[],
            refused_models: &BTreeMap::new(),
            upstreams: &[],
            lines: &[],
            idle: Duration::ZERO,
            had_jobs: false,
            is_running: false,
        });
        let names: Vec<&str> = nothing.iter().map(|one| one.cause.as_str()).collect();
        assert_eq!(names, ["no_models", "no_coordinator"]);
    }

    #[test]
    fn a_worker_with_jobs_has_no_reasons() {
        let models = [model("m")];
        let (lines, refused_models) = ([line(Standing::Connected(Peer::Ours))], BTreeMap::new());
        let situation = |idle, is_running| Situation {
            starting: None,
            pause: None,
            models: &models,
            refused_models: &refused_models,
            upstreams: &[],
            lines: &lines,
            idle,
            had_jobs: true,
            is_running,
        };
        assert_eq!(causes(&situation(Duration::from_secs(29), false)), []);
        assert_eq!(causes(&situation(Duration::from_secs(600), true)), []);
    }
}
