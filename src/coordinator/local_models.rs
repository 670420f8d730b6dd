//! Models on the machine of a coordinator with its own worker, which programs may download and delete.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// Progress of a download.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullProgress {
    pub completed: u64,
    /// 0 while unknown.
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
    /// The model is built in or named in the settings.
    #[error("{0}")]
    Kept(String),
    #[error("{0}")]
    Failed(String),
}

/// Downloads and deletes models for the worker beside a coordinator.
pub trait LocalModels: Debug + Send + Sync {
    /// Downloads a model and adds it to the worker. Dropping the future stops the download; received bytes stay.
    fn pull(
        &self,
        name: String,
        progress: watch::Sender<PullProgress>,
    ) -> BoxFuture<'static, Result<(), PullError>>;

    /// Removes a model from the worker and deletes its files. Files of other models stay.
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

    /// Later calls have no effect.
    pub fn fill(&self, models: Arc<dyn LocalModels>) {
        let _ = self.0.set(models);
    }
}
