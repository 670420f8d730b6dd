//! The state of a running worker, for `worker status`: its device, models, downloads, coordinators and jobs. Readable
//! at any time, even while a model loads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use super::causes::{LineState, Situation, causes};
use super::devices::Devices;
use super::downloads::DownloadStates;
use super::history::{History, Totals};
use super::inquiries::Inquiries;
use super::owner::{Availability, OwnerPause};
use super::pace::{self, Paces};
use super::report::{
    CoordinatorReport, EnergyReport, JobsReport, ModelReport, PauseReport, RunningJobReport,
    TallyReport, UpstreamReport, WorkerReport,
};
use super::summary::{Activity, Counters};
use super::{DeviceModel, Post, Worker};
use crate::link::{Link, Standing, Tally};
use crate::upstream::{UpstreamModel, UpstreamState, UpstreamWatch};
use muster_config::OwnerConfig;
use muster_engine::runtime::Purpose;
use muster_protocol::job::{Kind, Kudos, MemoryStay};

/// Clones are the same.
#[derive(Clone)]
pub struct WorkerState(Arc<Mutex<Sources>>);

/// The parts of the worker that have its state. Empty in a worker that is starting.
struct Sources {
    name: String,
    began: Instant,
    /// The current step before it serves.
    starting: Option<String>,
    availability: Availability,
    pause: OwnerPause,
    /// The rules of `[owner]` that are set.
    rules: Vec<String>,
    energy_price: Option<f64>,
    /// The share of time in which models compute.
    duty: Option<watch::Receiver<f64>>,
    kudos_worth: Option<f64>,
    /// How often the settings of the owner were taken over.
    settings: watch::Sender<u64>,
    page: Option<String>,
    models: Vec<DeviceModel>,
    /// Models that could not be loaded, and why.
    refused_models: BTreeMap<String, String>,
    devices: Option<Devices>,
    downloads: DownloadStates,
    counters: Counters,
    paces: Arc<Paces>,
    lines: Vec<(String, Link)>,
    /// The coordinators whose sections accept only jobs of the owner's account.
    own_jobs: BTreeSet<String>,
    upstreams: Option<UpstreamWatch>,
    /// Totals of earlier workers in this process.
    earlier: (Totals, Activity),
    history: History,
    inquiries: Inquiries,
}

impl WorkerState {
    pub fn new(name: &str) -> Self {
        Self(Arc::new(Mutex::new(Sources {
            name: name.to_owned(),
            began: Instant::now(),
            starting: None,
            availability: Availability::default(),
            pause: OwnerPause::default(),
            rules: Vec::new(),
            energy_price: None,
            duty: None,
            kudos_worth: None,
            settings: watch::Sender::default(),
            page: None,
            models: Vec::new(),
            refused_models: BTreeMap::new(),
            devices: None,
            downloads: DownloadStates::default(),
            counters: Counters::default(),
            paces: Arc::default(),
            lines: Vec::new(),
            own_jobs: BTreeSet::new(),
            earlier: Default::default(),
            history: History::default(),
            inquiries: Inquiries::default(),
            upstreams: None,
        })))
    }

    /// Before it serves.
    pub fn is_starting(&self, what: impl Into<String>) {
        self.lock().starting = Some(what.into());
    }

    pub fn runs_on(&self, devices: &Devices) {
        self.lock().devices = Some(devices.clone());
    }

    pub fn downloads(&self, downloads: DownloadStates) {
        self.lock().downloads = downloads;
    }

    /// The settings of the owner, at the start and after a reload.
    pub fn follows(&self, owner: &OwnerConfig) {
        let mut sources = self.lock();
        sources.rules = owner.rules();
        sources.energy_price = owner.energy_price.map(|price| price.0);
        sources.kudos_worth = owner.kudos_worth.map(|worth| worth.0);
        sources.settings.send_modify(|times| *times += 1);
    }

    /// Changes whenever the settings of the owner are taken over.
    pub fn settings(&self) -> watch::Receiver<u64> {
        self.lock().settings.subscribe()
    }

    /// The owner's page is served at this address.
    pub fn has_page(&self, url: String) {
        self.lock().page = Some(url);
    }

    /// `owner.energy_price` and `owner.kudos_worth`.
    pub fn prices(&self) -> (Option<f64>, Option<f64>) {
        let sources = self.lock();
        (sources.energy_price, sources.kudos_worth)
    }

    /// `None` before the worker has its devices.
    pub fn devices(&self) -> Option<Devices> {
        self.lock().devices.clone()
    }

    /// The share of time in which models compute, as the rules have it.
    pub fn computes(&self, duty: &watch::Receiver<f64>) {
        self.lock().duty = Some(duty.clone());
    }

    /// The samples of the last week.
    pub fn history(&self) -> History {
        self.lock().history.clone()
    }

    pub fn inquiries(&self) -> Inquiries {
        self.lock().inquiries.clone()
    }

    /// A model could not be loaded.
    pub fn is_refused(&self, model: &str, failure: impl ToString) {
        let failure = failure.to_string();
        self.lock().refused_models.insert(model.to_owned(), failure);
    }

    /// Clears the refusal of a model that was loaded or is no longer wanted.
    pub fn is_not_refused(&self, model: &str) {
        self.lock().refused_models.remove(model);
    }

    /// All models that are not loaded are tried again.
    pub fn forget_refusals(&self) {
        self.lock().refused_models.clear();
    }

    /// Jobs for these models come from now on.
    pub fn serves(&self, models: Vec<DeviceModel>, devices: &Devices, worker: &Worker) {
        let mut sources = self.lock();
        sources.starting = None;
        for model in &models {
            sources.refused_models.remove(model.name());
        }
        sources.models = models;
        sources.devices = Some(devices.clone());
        if !sources.counters.are(worker.counters()) {
            let ended = sources.counters.activity(Kudos(0));
            let totals = Totals::of(&sources.lines);
            sources.earlier.0.add_all(&totals);
            sources.earlier.1.add(&ended);
        }
        sources.counters = worker.counters().clone();
        sources.paces = Arc::clone(&worker.paces);
        sources.lines = worker.named_links();
    }

    /// Sets the coordinators of the worker.
    pub fn works_for(&self, posts: &[Post]) {
        let own = posts.iter().filter(|post| !post.terms.permissions.others);
        self.lock().own_jobs = own.map(|post| post.label.clone()).collect();
    }

    /// Models of other programs.
    pub fn watches(&self, upstreams: &UpstreamWatch) {
        self.lock().upstreams = Some(upstreams.clone());
    }

    /// Sets the owner's pause and its progress.
    pub fn is_available(&self, availability: Availability, pause: &OwnerPause) {
        let mut sources = self.lock();
        sources.availability = availability;
        sources.pause = pause.clone();
    }

    pub fn is_paused(&self) -> bool {
        self.lock().availability == Availability::Paused
    }

    /// Whether the coordinator of this name is connected. `None` without a line to it.
    pub fn is_connected(&self, label: &str) -> Option<bool> {
        let sources = self.lock();
        let mut lines = sources.lines.iter().filter(|(name, _)| name == label);
        let first = lines.next()?;
        let is_connected =
            |(_, link): &(String, Link)| matches!(link.standing(), Standing::Connected(_));
        Some(is_connected(first) || lines.any(is_connected))
    }

    /// Jobs since the start of the process.
    pub fn totals(&self) -> Totals {
        self.lock().totals()
    }

    pub fn report(&self) -> WorkerReport {
        self.lock().report()
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.0.lock()
    }
}

impl Sources {
    fn totals(&self) -> Totals {
        let mut totals = self.earlier.0.clone();
        totals.add_all(&Totals::of(&self.lines));
        totals
    }

    fn report(&self) -> WorkerReport {
        let totals = self.totals();
        let (today, watt_hours) = self.history.today(&totals);
        let mut activity = self.counters.activity(totals.all().kudos);
        activity.add(&self.earlier.1);
        let coordinators = self.coordinators(&totals, &today);
        let models = self.model_reports(&totals, &today);
        let pause = self.pause_report();
        let lines: Vec<LineState> = self
            .lines
            .iter()
            .map(|line| self.line_state(line))
            .collect();
        let last_job = self.last_job(|_| true);
        let idle = last_job.and_then(|at| SystemTime::now().duration_since(at).ok());
        let upstreams = self.upstreams.as_ref().map(UpstreamWatch::states);
        let upstreams = upstreams.iter().flatten();
        let upstreams: Vec<UpstreamReport> = upstreams.map(UpstreamReport::of).collect();
        let no_jobs = causes(&Situation {
            starting: self.starting.as_deref(),
            pause: pause.as_ref(),
            models: &models,
            refused_models: &self.refused_models,
            upstreams: &upstreams,
            lines: &lines,
            idle: idle.unwrap_or_else(|| self.began.elapsed()),
            had_jobs: last_job.is_some(),
            is_running: activity.running > 0,
        });
        let devices = self.devices.as_ref();
        let energy = self.energy_report(watt_hours);
        WorkerReport {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            placement: devices.map_or_else(String::new, |of| of.placement().to_owned()),
            starting: self.starting.clone(),
            pause,
            models,
            upstreams,
            jobs: JobsReport {
                running: activity.running,
                done: activity.done,
                failed: activity.failed,
                handed_back: activity.handed_back,
                cancelled: activity.cancelled,
                tokens: activity.tokens,
                earned_thousandths: activity.kudos,
            },
            running: self.running(),
            today: (&today.all()).into(),
            last_job_at: last_job.and_then(seconds),
            gpus: self.history.gpus(),
            rules: self.rules_of(&energy),
            energy,
            page: self.page.clone(),
            no_jobs,
            coordinators,
        }
    }

    fn energy_report(&self, watt_hours: Option<f64>) -> EnergyReport {
        let share = self.duty.as_ref().map(|duty| *duty.borrow());
        EnergyReport {
            computing: share.filter(|share| *share < 1.0),
            ..self.history.energy(watt_hours, self.energy_price)
        }
    }

    /// The rules that are set. A power that is not known cannot be kept to.
    fn rules_of(&self, energy: &EnergyReport) -> Vec<String> {
        let tells_power = energy.gpu_watts.or(energy.processor_watts).is_some();
        let rules = self.rules.iter().map(|rule| {
            let is_lost = !tells_power && rule.starts_with("owner.most_watts");
            match is_lost {
                true => format!("{rule}, without effect here: no power is told"),
                false => rule.clone(),
            }
        });
        rules.collect()
    }

    fn model_reports(&self, totals: &Totals, today: &Totals) -> Vec<ModelReport> {
        let served = self.models.iter().map(|model| {
            let pace = self.paces.of(model.name());
            ModelReport {
                since_start: tally_of(&totals.models, model.name()),
                today: tally_of(&today.models, model.name()),
                ..ModelReport::of(model, &pace, self.devices.as_ref())
            }
        });
        let downloads = self.downloads.report().into_iter();
        let downloads = downloads.map(|(name, download)| ModelReport {
            name,
            state: "downloading".to_owned(),
            download: Some(download),
            ..ModelReport::default()
        });
        let upstreams = self.upstreams.as_ref().map(UpstreamWatch::models);
        let upstreams = upstreams.into_iter().flatten().map(|model| {
            let name = &model.name;
            ModelReport {
                since_start: tally_of(&totals.models, name),
                today: tally_of(&today.models, name),
                ..ModelReport::of_upstream(&model, &self.paces.of(name))
            }
        });
        served.chain(downloads).chain(upstreams).collect()
    }

    /// A polled coordinator has a line for each kind of jobs, and one report.
    fn coordinators(&self, totals: &Totals, today: &Totals) -> Vec<CoordinatorReport> {
        let mut reports: Vec<CoordinatorReport> = Vec::new();
        for (label, link) in &self.lines {
            let held_jobs = link.feedback().held();
            let mut known = reports.iter_mut();
            if let Some(report) = known.find(|report| report.name == *label) {
                report.held_jobs += held_jobs;
                continue;
            }
            let demand = self.inquiries.of(label).demand;
            reports.push(CoordinatorReport {
                since_start: tally_of(&totals.coordinators, label),
                today: tally_of(&today.coordinators, label),
                own_jobs: self.own_jobs.contains(label),
                held_jobs,
                held_kudos: demand.and_then(|demand| demand.held_kudos),
                last_job_at: self.last_job(|name| name == label).and_then(seconds),
                ..CoordinatorReport::of(label, link)
            });
        }
        reports
    }

    fn last_job(&self, is_wanted: impl Fn(&str) -> bool) -> Option<SystemTime> {
        let lines = self.lines.iter().filter(|(label, _)| is_wanted(label));
        lines
            .filter_map(|(_, link)| link.feedback().last_job())
            .max()
    }

    fn running(&self) -> Vec<RunningJobReport> {
        let mut running = Vec::new();
        for (label, link) in &self.lines {
            running.extend(
                link.feedback()
                    .running()
                    .into_iter()
                    .map(|job| RunningJobReport {
                        model: job.model,
                        coordinator: label.clone(),
                        seconds: job.began.elapsed().as_secs_f64(),
                        tokens: job.tokens,
                        steps: job.steps,
                    }),
            );
        }
        running.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        running
    }

    fn line_state(&self, (label, link): &(String, Link)) -> LineState {
        let feedback = link.feedback();
        LineState {
            label: label.clone(),
            standing: link.standing(),
            maintenance: feedback.maintenance(),
            problem: feedback.problem(),
            skips: feedback.skips(),
            own_jobs: self.own_jobs.contains(label),
            reply: self.inquiries.of(label),
        }
    }

    fn pause_report(&self) -> Option<PauseReport> {
        let state = match self.availability {
            Availability::Open => return None,
            Availability::Closing => "closing",
            Availability::Paused => "paused",
        };
        let until = self.pause.order.and_then(|order| order.until);
        Some(PauseReport {
            state: state.to_owned(),
            reasons: self.pause.reasons(SystemTime::now()),
            until: until.and_then(seconds),
        })
    }
}

/// Since the epoch.
fn seconds(time: SystemTime) -> Option<i64> {
    let since: Duration = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

fn tally_of(tallies: &BTreeMap<String, Tally>, name: &str) -> TallyReport {
    tallies.get(name).map(TallyReport::from).unwrap_or_default()
}

impl ModelReport {
    fn of(model: &DeviceModel, pace: &pace::Model, devices: Option<&Devices>) -> Self {
        let name = model.name();
        let stay = devices.map_or(MemoryStay::Always, |devices| devices.stay(name));
        let places = devices.map(|devices| devices.places(name));
        let (kind, context) = match model {
            DeviceModel::Text(info) => {
                let kind = match info.purpose {
                    Purpose::Generate => "text",
                    Purpose::Embed(_) => "embedding",
                    Purpose::Rerank(_) => "rerank",
                };
                (kind, Some(info.context))
            }
            DeviceModel::Media(media) => (media.kind.name(), None),
        };
        let (state, unloads_at) = match stay {
            MemoryStay::Unloaded => ("unloaded", None),
            MemoryStay::Until(seconds) => ("loaded", Some(seconds)),
            MemoryStay::Always => ("loaded", None),
        };
        Self {
            name: name.to_owned(),
            kind: Some(kind.to_owned()),
            context,
            devices: places.unwrap_or_default(),
            state: state.to_owned(),
            unloads_at,
            tokens_per_second: pace.shown_decode_per_second,
            prompt_tokens_per_second: pace.shown_prefill_per_second,
            running: pace.running,
            ..Self::default()
        }
    }

    fn of_upstream(model: &UpstreamModel, pace: &pace::Model) -> Self {
        let has_context = model.kind != Kind::Image;
        Self {
            name: model.name.clone(),
            kind: Some(model.kind.name().to_owned()),
            context: has_context.then_some(model.context as usize),
            devices: vec![format!("{} at {}", model.software(), model.url())],
            state: "served".to_owned(),
            tokens_per_second: pace.shown_decode_per_second,
            prompt_tokens_per_second: pace.shown_prefill_per_second,
            running: pace.running,
            ..Self::default()
        }
    }
}

impl UpstreamReport {
    fn of(state: &UpstreamState) -> Self {
        let model = state.model.as_ref();
        let served = model.as_ref().ok();
        Self {
            name: state.name.clone(),
            url: state.url.clone(),
            software: served.map(|model| model.software().to_owned()),
            kind: served.map(|model| model.kind.name().to_owned()),
            context: served.map(|model| model.context),
            jobs: served.map(|model| model.jobs),
            failure: model.err().cloned(),
        }
    }
}

impl CoordinatorReport {
    fn of(name: &str, link: &Link) -> Self {
        let feedback = link.feedback();
        let (state, reason) = match (link.standing(), feedback.maintenance()) {
            (Standing::Away, _) => {
                let problem = feedback.problem().map(|problem| problem.text);
                ("connecting", problem)
            }
            (Standing::Connected(_), Some(reason)) => ("maintenance", Some(reason)),
            (Standing::Connected(_), None) => ("connected", None),
            (Standing::Refused(reason), _) => ("refused", Some(reason)),
            (Standing::Left, _) => ("left", None),
        };
        Self {
            name: name.to_owned(),
            state: state.to_owned(),
            reason,
            ..Self::default()
        }
    }
}
