//! The way to a maker's thread: [`Maker`], one bounded sender.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::resident::{MakeJob, crashed, guard};
use super::stream::{self, MakeStream};
use super::thread::{MakerBoard, MakerCommand, MakerThread};
use super::{Cost, MakeRequest, MakerStatus, Pipeline, compute};
use crate::runtime::device_thread::{self, ThreadHandle};
use crate::runtime::{Failure, LoadError};

/// Brings a pipeline to the device. Runs on the maker's thread: its blocks wait, texts do not.
pub type PipelineLoader = Box<dyn FnOnce() -> Result<Box<dyn Pipeline>, LoadError> + Send>;

/// How much a maker takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MakerLimits {
    /// Limit of waiting jobs of all pipelines, at least one. Further jobs get [`Failure::Busy`].
    pub max_waiting: usize,
}

impl Default for MakerLimits {
    fn default() -> Self {
        Self { max_waiting: 16 }
    }
}

/// The way to one maker's thread. When the last clone is dropped the thread finishes its jobs and ends.
#[derive(Clone)]
pub struct Maker {
    thread: ThreadHandle<MakerCommand>,
    board: Arc<MakerBoard>,
    /// A permit for each job that may wait.
    places: Arc<Semaphore>,
    max_waiting: usize,
}

impl Maker {
    /// Starts the thread. The device belongs to the pipelines.
    pub fn start(limits: MakerLimits) -> Result<Self, LoadError> {
        let max_waiting = limits.max_waiting.max(1);
        let board = Arc::<MakerBoard>::default();
        let maker = MakerThread::new(Arc::clone(&board));
        let body = move |inbox| {
            let _pool = compute::enter_background();
            device_thread::run(maker, inbox);
        };
        Ok(Self {
            thread: ThreadHandle::start("muster-maker", max_waiting, body)?,
            board,
            places: Arc::new(Semaphore::new(max_waiting)),
            max_waiting,
        })
    }

    /// Loads a pipeline under a name, after the current block.
    pub async fn load(&self, name: &str, loader: PipelineLoader) -> Result<(), LoadError> {
        let name = name.to_owned();
        let loaded = self.thread.ask(|reply| MakerCommand::Load {
            name,
            loader,
            reply,
        });
        loaded.await.unwrap_or(Err(LoadError::Stopped))
    }

    /// Fails the jobs of a pipeline and frees its memory.
    pub async fn unload(&self, name: &str) -> Result<(), Failure> {
        let name = name.to_owned();
        let unloaded = self
            .thread
            .ask(|reply| MakerCommand::Unload { name, reply });
        unloaded.await?
    }

    /// Returns once no block runs: jobs keep their place, and new ones are refused.
    pub async fn pause(&self) -> Result<(), Failure> {
        self.thread.ask(MakerCommand::Pause).await
    }

    pub async fn resume(&self) -> Result<(), Failure> {
        self.thread.ask(MakerCommand::Resume).await
    }

    pub fn status(&self) -> MakerStatus {
        let models = self.board.status();
        MakerStatus {
            running: models.iter().map(|model| model.running).sum(),
            waiting: self.max_waiting - self.places.available_permits(),
            is_paused: self.board.is_paused(),
            models,
        }
    }

    /// The cost of a request, or why it is refused.
    pub fn check(&self, model: &str, request: &MakeRequest) -> Result<Cost, Failure> {
        let pipeline = self.board.listing(model)?;
        let checked = guard(|| pipeline.check(request));
        Ok(checked.map_err(|_| crashed(model))??)
    }

    /// Starts a job, or refuses it at once.
    pub fn make(&self, model: &str, request: MakeRequest) -> Result<MakeStream, Failure> {
        let cost = self.check(model, &request)?;
        if self.board.is_paused() {
            return Err(Failure::Paused);
        }
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| self.busy())?;
        let (outbox, stream) = stream::channel(self.thread.downgrade());
        let job = MakeJob {
            model: model.to_owned(),
            request,
            cost,
            outbox,
            place,
        };
        let job = MakerCommand::Make(Box::new(job));
        self.thread.submit(job, || self.busy())?;
        Ok(stream)
    }

    /// Waits until the thread has ended, which only a bug of the maker causes while a `Maker` exists.
    pub async fn ended(&self) {
        self.thread.ended().await;
    }

    /// Waits until the thread has ended: until every other `Maker` is dropped and its jobs have finished.
    pub async fn drain(self) {
        self.thread.drain().await;
    }

    fn busy(&self) -> Failure {
        let MakerStatus {
            running, waiting, ..
        } = self.status();
        Failure::Busy { running, waiting }
    }
}
