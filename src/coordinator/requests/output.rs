//! A job of a request and its output, for readers.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use crate::switchboard::{JobStream, JobWatch, Stage};
use muster_protocol::job::drawn::{Drawn, bytes_of, most_pixels};
use muster_protocol::job::{
    Body, Event, FailureKind, Hidden, Job, JobId, Kind, LegacySampling, Product, Progress,
    UnixMillis,
};

/// A job, and its output.
#[derive(Debug)]
pub struct Output {
    pub job: JobId,
    pub seed: Option<u64>,
    legacy: Option<LegacySampling>,
    form: Option<String>,
    /// Most pixels of its image.
    pixels: u64,
    pub(super) watch: Mutex<Option<JobWatch>>,
    product: Mutex<Product>,
    progress: Mutex<Option<Progress>>,
    ended: OnceLock<Ended>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    Made(Made),
    /// Cancelled before any output.
    Cancelled,
    Expired,
    /// The code of the failure.
    Failed(Arc<str>),
}

/// A finished output, as delivered to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    pub product: Product,
    pub model: Arc<str>,
    pub worker: Arc<str>,
    pub worker_id: Uuid,
    /// Set if the worker censored the output.
    pub hidden: Option<Hidden>,
}

/// Jobs of a request by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub waiting: usize,
    pub processing: usize,
    pub finished: usize,
    pub failed: usize,
    /// Cancelled or expired.
    pub stopped: usize,
    /// Number of requeued attempts.
    pub restarted: usize,
}

impl Ended {
    /// Whether this failure fails the whole request. Forms are independent of each other.
    pub(super) fn is_fatal(&self, kind: Kind) -> bool {
        kind != Kind::Form && matches!(self, Self::Failed(_))
    }
}

impl Output {
    pub(super) fn of(job: &Arc<Job>, streams: &[JobStream]) -> Self {
        let (seed, legacy) = match &job.body {
            Body::Text(text) => (text.sampling.seed, text.sampling.legacy.as_deref().cloned()),
            body => (body.seed(), None),
        };
        let output = Self {
            job: job.id,
            seed,
            legacy,
            form: match &job.body {
                Body::Form(form) => Some(form.form.clone()),
                _ => None,
            },
            pixels: most_pixels(job),
            watch: Mutex::default(),
            product: Mutex::default(),
            progress: Mutex::default(),
            ended: OnceLock::new(),
        };
        output.watch(streams);
        output
    }

    /// The output of a request that cannot be parsed any more.
    pub(super) fn unreadable() -> Self {
        Self {
            job: JobId::random(),
            seed: None,
            legacy: None,
            form: None,
            pixels: 0,
            watch: Mutex::default(),
            product: Mutex::default(),
            progress: Mutex::default(),
            ended: OnceLock::from(Ended::Failed(FailureKind::Internal.row().code.into())),
        }
    }

    /// The client's post-processing options, for requests of the AI Horde API.
    pub fn legacy(&self) -> Option<&LegacySampling> {
        self.legacy.as_ref()
    }

    /// The interrogation form, if the job is one.
    pub fn form(&self) -> Option<&str> {
        self.form.as_deref()
    }

    /// Most bytes of an image for it, for upload links.
    pub fn most_drawn(&self) -> u64 {
        bytes_of(self.pixels)
    }

    /// Any size up to the largest.
    pub fn drawn(&self) -> Drawn {
        Drawn::up_to(self.pixels)
    }

    /// Follows a new stream of the job. Drops output that could not be stored, since it is generated again.
    pub(super) fn watch(&self, streams: &[JobStream]) {
        if let Some(stream) = streams.iter().find(|stream| stream.job() == self.job) {
            *locked(&self.watch) = stream.watch();
            *locked(&self.product) = Product::default();
            *locked(&self.progress) = None;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.ended().is_none()
    }

    /// Ended, but the follower has not processed it yet.
    pub(super) fn is_late(&self) -> bool {
        self.is_open()
            && locked(&self.watch)
                .as_ref()
                .is_some_and(JobWatch::has_ended)
    }

    pub fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Output so far.
    pub fn product(&self) -> Product {
        locked(&self.product).clone()
    }

    /// Progress of the worker that runs it.
    pub fn progress(&self) -> Option<Progress> {
        let runs = self.is_open() && self.stage() != Stage::Waiting;
        locked(&self.progress).filter(|_| runs)
    }

    pub(super) fn hear(&self, event: &Event) {
        match event {
            Event::Progress(progress) => *locked(&self.progress) = Some(*progress),
            event => locked(&self.product).note(event),
        }
    }

    pub(crate) fn end(&self, ended: Ended) {
        // Only the first end counts.
        let _ = self.ended.set(ended);
    }

    /// The job's stage, with its present or last worker.
    pub fn stage(&self) -> Stage {
        self.look().0
    }

    pub(super) fn until(&self) -> UnixMillis {
        let watch = locked(&self.watch);
        watch.as_ref().map(JobWatch::until).unwrap_or_default()
    }

    pub(super) fn look(&self) -> (Stage, u32) {
        let watch = locked(&self.watch);
        watch.as_ref().map(JobWatch::look).unwrap_or_default()
    }

    pub(super) fn count(&self, counts: &mut Counts) {
        let (stage, returns) = self.look();
        counts.restarted += returns as usize;
        let place = match (self.ended(), stage) {
            (Some(Ended::Made(_)), _) => &mut counts.finished,
            (Some(Ended::Failed(_)), _) => &mut counts.failed,
            (Some(Ended::Cancelled | Ended::Expired), _) => &mut counts.stopped,
            (None, Stage::Running { .. }) => &mut counts.processing,
            (None, Stage::Waiting) => &mut counts.waiting,
        };
        *place += 1;
    }
}

impl Counts {
    pub fn unfinished(self) -> usize {
        self.waiting + self.processing
    }
}

pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock()
}
