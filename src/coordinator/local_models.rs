//! Models on the machine of a coordinator that has a worker of its own, which programs may download and delete.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// How far a download is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullProgress {
    pub completed: u64,
    /// 0 until it is known.
    pub total: u64,
    /// The download is complete, and the worker loads the model.
    pub is_loading: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error("{0}")]
    Unknown(String),
    /// The model is a part of the program, or its settings name it.
    #[error("{0}")]
    Kept(String),
    #[error("{0}")]
    Failed(String),
}

/// Downloads models for the worker beside a coordinator, and deletes them.
pub trait LocalModels: Debug + Send + Sync {
    /// Downloads a model and has the worker serve it. Dropping the future stops it; the bytes so far stay.
    fn pull(
        &self,
        name: String,
        progress: watch::Sender<PullProgress>,
    ) -> BoxFuture<'static, Result<(), PullError>>;

    /// Has the worker serve a model no more and removes its files. Files that other models use stay.
    fn delete(&self, name: String) -> BoxFuture<'static, Result<(), DeleteError>>;

    /// The link to the page of the worker, with its token. None while the worker serves none.
    fn worker_page(&self) -> BoxFuture<'static, Option<String>>;
}

/// The download service, set once a worker runs beside this coordinator.
#[derive(Debug, Clone, Default)]
pub struct LocalModelsSlot(Arc<OnceLock<Arc<dyn LocalModels>>>);

impl LocalModelsSlot {
    pub fn get(&self) -> Option<&Arc<dyn LocalModels>> {
        self.0.get()
    }

    /// The first ones stay.
    pub fn fill(&self, models: Arc<dyn LocalModels>) {
        let _ = self.0.set(models);
    }
}
