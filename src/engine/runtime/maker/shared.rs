//! What the maker's thread lets others see: pipelines, their state, whether it is paused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Pipeline, PipelineStatus};
use crate::runtime::Failure;

#[derive(Default)]
pub struct MakerShared {
    models: Mutex<BTreeMap<String, PipelineListing>>,
    status: Mutex<Vec<PipelineStatus>>,
    is_paused: AtomicBool,
}

#[derive(Clone)]
enum PipelineListing {
    Loaded(Arc<dyn Pipeline>),
    /// Panicked, and was dropped.
    Crashed,
}

impl MakerShared {
    pub fn pipeline(&self, model: &str) -> Result<Arc<dyn Pipeline>, Failure> {
        // Cloned, so that a check does not run under the lock.
        let listing = lock(&self.models).get(model).cloned();
        match listing {
            Some(PipelineListing::Loaded(pipeline)) => Ok(pipeline),
            Some(PipelineListing::Crashed) => Err(crashed(model)),
            None => Err(self.not_loaded(model)),
        }
    }

    pub fn not_loaded(&self, model: &str) -> Failure {
        let models = lock(&self.models);
        let loaded = models
            .iter()
            .filter(|(_, listing)| matches!(listing, PipelineListing::Loaded(_)));
        Failure::NotLoaded {
            model: model.to_owned(),
            loaded: loaded.map(|(name, _)| name.clone()).collect(),
        }
    }

    pub fn enlist(&self, model: &str, pipeline: Arc<dyn Pipeline>) {
        let listing = PipelineListing::Loaded(pipeline);
        lock(&self.models).insert(model.to_owned(), listing);
    }

    /// Returns whether the model was listed.
    pub fn delist(&self, model: &str) -> bool {
        let listing = lock(&self.models).remove(model);
        listing.is_some()
    }

    pub fn mark_crashed(&self, model: &str) {
        let before = lock(&self.models).insert(model.to_owned(), PipelineListing::Crashed);
        drop(before);
    }

    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Called by the thread between two blocks.
    pub fn report(&self, models: impl Iterator<Item = PipelineStatus>) {
        let mut status = lock(&self.status);
        status.clear();
        status.extend(models);
    }

    pub fn models(&self) -> Vec<PipelineStatus> {
        lock(&self.status).clone()
    }
}

pub fn crashed(model: &str) -> Failure {
    Failure::Crashed {
        model: model.to_owned(),
    }
}

/// A panic while holding the lock cannot leave these maps half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
