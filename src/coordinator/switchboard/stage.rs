//! The stage of a durable job, for readers. Other jobs have none.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use muster_protocol::job::UnixMillis;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Waiting,
    Running {
        worker: Arc<str>,
        public_id: Uuid,
        /// The worker's name for the model.
        model: Arc<str>,
    },
}

/// The state of a job without its stream.
#[derive(Debug, Clone)]
pub struct JobWatch(pub(super) Arc<Whereabouts>);

/// Written by the switchboard.
#[derive(Debug, Default)]
pub(super) struct Whereabouts(Mutex<Here>);

#[derive(Debug, Clone, Default)]
struct Here {
    stage: Stage,
    /// Number of failed attempts.
    returns: u32,
    /// Expiry as told to the workers that took it, or since its submit.
    until: UnixMillis,
    /// The job has ended, and its follower is being notified.
    ended: bool,
}

impl Whereabouts {
    pub fn taken(&self, stage: Stage, until: UnixMillis) {
        let mut here = self.lock();
        (here.stage, here.until) = (stage, until);
    }

    /// A worker submitted the job: extends its expiry, even before that is stored.
    pub fn brought(&self, until: UnixMillis) {
        let mut here = self.lock();
        here.until = here.until.max(until);
    }

    pub fn returned(&self) {
        let mut here = self.lock();
        here.stage = Stage::Waiting;
        here.returns += 1;
    }

    pub fn ended(&self) {
        self.lock().ended = true;
    }

    fn lock(&self) -> MutexGuard<'_, Here> {
        self.0.lock()
    }
}

impl JobWatch {
    /// A watch of a job with this expiry.
    #[cfg(test)]
    pub fn taken_until(until: UnixMillis) -> Self {
        let whereabouts = Whereabouts::default();
        whereabouts.taken(Stage::Waiting, until);
        Self(Arc::new(whereabouts))
    }

    /// The stage, and the number of failed attempts.
    pub fn look(&self) -> (Stage, u32) {
        let here = self.0.lock();
        (here.stage.clone(), here.returns)
    }

    /// Whether it has ended, even if not delivered yet.
    pub fn has_ended(&self) -> bool {
        self.0.lock().ended
    }

    /// Expiry as told to the workers that took it, or since its submit.
    pub fn until(&self) -> UnixMillis {
        self.0.lock().until
    }
}
