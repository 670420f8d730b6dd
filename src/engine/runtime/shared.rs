//! What the inference thread lets others see: which models there are, and how busy it is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::grammar::{Grammars, Prover};
use super::text::Language;
use super::{Failure, ModelInfo, ModelStatus, Sampling, Status};

/// Enough of a loaded model to prepare a job for it, on any thread.
#[derive(Clone)]
pub struct Listing {
    pub info: Arc<ModelInfo>,
    pub language: Arc<Language>,
    pub defaults: Sampling,
    pub grammars: Arc<Grammars>,
}

#[derive(Default)]
pub struct Shared {
    models: Mutex<BTreeMap<String, Listing>>,
    status: Mutex<Vec<ModelStatus>>,
    is_paused: AtomicBool,
    prover: OnceLock<Arc<Prover>>,
}

impl Shared {
    pub fn listing(&self, model: &str) -> Result<Listing, Failure> {
        let listing = lock(&self.models).get(model).cloned();
        listing.ok_or_else(|| self.not_loaded(model))
    }

    pub fn not_loaded(&self, model: &str) -> Failure {
        Failure::NotLoaded {
            model: model.to_owned(),
            loaded: lock(&self.models).keys().cloned().collect(),
        }
    }

    pub fn enlist(&self, info: Arc<ModelInfo>, language: Arc<Language>, defaults: Sampling) {
        let name = info.name.clone();
        let prover = self.prover.get().cloned();
        let grammars = Grammars::new(Arc::clone(&language), info.vocabulary, prover);
        lock(&self.models).insert(
            name,
            Listing {
                info,
                language,
                defaults,
                grammars: Arc::new(grammars),
            },
        );
    }

    /// Grammars of models that are listed from now on are proven with it. Only the first counts.
    pub fn prove_with(&self, prover: Prover) {
        let _ = self.prover.set(Arc::new(prover));
    }

    pub fn delist(&self, model: &str) {
        lock(&self.models).remove(model);
    }

    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Told before every step how each model is doing.
    pub fn report(&self, models: impl Iterator<Item = ModelStatus>) {
        let mut status = lock(&self.status);
        status.clear();
        status.extend(models);
    }

    pub fn status(&self) -> Status {
        let models = lock(&self.status).clone();
        Status {
            running: models.iter().map(|model| model.running).sum(),
            waiting: models.iter().map(|model| model.waiting).sum(),
            models,
            is_paused: self.is_paused(),
        }
    }
}

/// A panic while holding the lock cannot leave these maps half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
