//! The state of a running worker, for `worker status`: its device, models, downloads, coordinators and jobs. Read at any time,
//! also while a model loads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::devices::Devices;
use super::downloads::DownloadStates;
use super::owner::{Availability, OwnerPause};
use super::report::{CoordinatorReport, JobsReport, ModelReport, PauseReport, WorkerReport};
use super::summary::{self, Counters};
use super::{DeviceModel, Worker};
use crate::link::{Link, Standing};
use muster_engine::runtime::Purpose;
use muster_protocol::job::MemoryStay;

/// Clones are the same.
#[derive(Clone, Default)]
pub struct WorkerState(Arc<Mutex<Sources>>);

/// The parts of the worker that know its state. None of a worker that is starting.
#[derive(Default)]
struct Sources {
    name: String,
    /// What it does before it serves.
    starting: Option<String>,
    availability: Availability,
    pause: OwnerPause,
    models: Vec<DeviceModel>,
    devices: Option<Devices>,
    downloads: DownloadStates,
    counters: Counters,
    lines: Vec<(String, Link)>,
}

impl WorkerState {
    pub fn new(name: &str) -> Self {
        Self(Arc::new(Mutex::new(Sources {
            name: name.to_owned(),
            ..Sources::default()
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

    /// Jobs for these models come from now on.
    pub fn serves(&self, models: Vec<DeviceModel>, devices: &Devices, worker: &Worker) {
        let mut sources = self.lock();
        sources.starting = None;
        sources.models = models;
        sources.devices = Some(devices.clone());
        sources.counters = worker.counters().clone();
        sources.lines = worker.named_links();
    }

    /// The owner's pause, and how far it has come.
    pub fn is_available(&self, availability: Availability, pause: &OwnerPause) {
        let mut sources = self.lock();
        sources.availability = availability;
        sources.pause = pause.clone();
    }

    pub fn report(&self) -> WorkerReport {
        let sources = self.lock();
        let served = sources
            .models
            .iter()
            .map(|model| ModelReport::of(model, sources.devices.as_ref()));
        let downloads = sources.downloads.report().into_iter();
        let downloads = downloads.map(|(name, download)| ModelReport {
            name,
            kind: None,
            context: None,
            devices: Vec::new(),
            state: "downloading".to_owned(),
            unloads_at: None,
            download: Some(download),
        });
        let devices = sources.devices.as_ref();
        let links = sources.lines.iter().map(|(_, link)| link);
        let activity = sources.counters.activity(summary::earned(links));
        WorkerReport {
            name: sources.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            placement: devices.map_or_else(String::new, |of| of.placement().to_owned()),
            starting: sources.starting.clone(),
            pause: sources.pause_report(),
            models: served.chain(downloads).collect(),
            coordinators: sources.lines.iter().map(CoordinatorReport::of).collect(),
            jobs: JobsReport {
                running: activity.running,
                done: activity.done,
                failed: activity.failed,
                handed_back: activity.handed_back,
                cancelled: activity.cancelled,
                tokens: activity.tokens,
                earned_thousandths: activity.kudos,
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sources {
    fn pause_report(&self) -> Option<PauseReport> {
        let state = match self.availability {
            Availability::Open => return None,
            Availability::Closing => "closing",
            Availability::Paused => "paused",
        };
        let until = self.pause.order.and_then(|order| order.until);
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(PauseReport {
            state: state.to_owned(),
            reasons: self.pause.reasons(SystemTime::now()),
            until: until.and_then(|until| i64::try_from(since(until).as_secs()).ok()),
        })
    }
}

impl ModelReport {
    fn of(model: &DeviceModel, devices: Option<&Devices>) -> Self {
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
            download: None,
        }
    }
}

impl CoordinatorReport {
    fn of((name, link): &(String, Link)) -> Self {
        let (state, reason) = match (link.standing(), link.feedback().maintenance()) {
            (Standing::Away, _) => ("connecting", None),
            (Standing::Connected(_), Some(reason)) => ("maintenance", Some(reason)),
            (Standing::Connected(_), None) => ("connected", None),
            (Standing::Refused(reason), _) => ("refused", Some(reason)),
            (Standing::Left, _) => ("left", None),
        };
        Self {
            name: name.clone(),
            state: state.to_owned(),
            reason,
        }
    }
}
