//! Where a job on disk is, for those who ask. Jobs that end with their connection do not tell.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Waiting,
    Running {
        worker: Arc<str>,
        public_id: Uuid,
        /// The name under which the worker serves it.
        model: Arc<str>,
    },
}

/// Looks at a job without reading its stream.
#[derive(Debug, Clone)]
pub struct JobWatch(pub(super) Arc<Whereabouts>);

/// Written by the switchboard.
#[derive(Debug, Default)]
pub(super) struct Whereabouts(Mutex<(Stage, u32)>);

impl Whereabouts {
    pub fn moved(&self, stage: Stage) {
        let mut here = self.lock();
        here.1 += u32::from(stage == Stage::Waiting);
        here.0 = stage;
    }

    fn lock(&self) -> MutexGuard<'_, (Stage, u32)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobWatch {
    /// Where it is, and how often it has come back from a worker with nothing.
    pub fn look(&self) -> (Stage, u32) {
        self.0.lock().clone()
    }
}
