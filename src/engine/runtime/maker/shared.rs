//! What the maker's thread lets others see: pipelines, their state, whether it is paused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Pipeline, PipelineStatus};
use crate::runtime::Failure;

#[derive(Default)]
pub struct MakerShared {
    models: Mutex<BTreeMap<String, Arc<dyn Pipeline>>>,
    status: Mutex<Vec<PipelineStatus>>,
    is_paused: AtomicBool,
}

impl MakerShared {
    pub fn pipeline(&self, model: &str) -> Result<Arc<dyn Pipeline>, Failure> {
        // Cloned, so that a check does not run under the lock.
        let loaded = lock(&self.models).get(model).cloned();
        loaded.ok_or_else(|| self.not_loaded(model))
    }

    pub fn not_loaded(&self, model: &str) -> Failure {
        Failure::NotLoaded {
            model: model.to_owned(),
            loaded: lock(&self.models).keys().cloned().collect(),
        }
    }

    pub fn enlist(&self, model: &str, pipeline: Arc<dyn Pipeline>) {
        lock(&self.models).insert(model.to_owned(), pipeline);
    }

    pub fn delist(&self, model: &str) {
        // Dropped without the lock.
        let _listed = lock(&self.models).remove(model);
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
