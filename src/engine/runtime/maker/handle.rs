//! The way to a maker's thread: [`Maker`], one bounded sender.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::resident::{MakeJob, guard};
use super::shared::{MakerShared, crashed};
use super::stream::{self, MakeStream};
use super::thread::{self as maker_thread, MakerCommand, MakerThread};
use super::{Cost, MakeRequest, MakerStatus, Pipeline, compute};
use crate::runtime::{Failure, LoadError};

/// Commands besides jobs that may wait for the thread, while a block runs.
const INBOX_SPARE: usize = 64;

/// Brings a pipeline to the device. Runs on the maker's thread: its blocks wait, texts do not.
pub type PipelineLoader = Box<dyn FnOnce() -> Result<Box<dyn Pipeline>, LoadError> + Send>;

/// How much a maker takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MakerLimits {
    /// Jobs of all pipelines that may wait, at least one. One more is answered [`Failure::Busy`].
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
    inbox: mpsc::Sender<MakerCommand>,
    shared: Arc<MakerShared>,
    /// A permit for each job that may wait.
    places: Arc<Semaphore>,
    max_waiting: usize,
    /// Closed by the end of the thread.
    end: mpsc::Sender<()>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Maker {
    /// Starts the thread. The device belongs to the pipelines.
    pub fn start(limits: MakerLimits) -> Result<Self, LoadError> {
        let max_waiting = limits.max_waiting.max(1);
        let (inbox, commands) = mpsc::channel(max_waiting + INBOX_SPARE);
        let (end, ended) = mpsc::channel(1);
        let shared = Arc::new(MakerShared::default());
        let maker = MakerThread::new(Arc::clone(&shared));
        let body = move || {
            // Dropped last, also by a panic.
            let _ended = ended;
            let _pool = compute::enter_background();
            maker_thread::run(maker, commands);
        };
        let thread = thread::Builder::new()
            .name("muster-maker".to_owned())
            .spawn(body);
        let thread = thread.map_err(|error| {
            LoadError::Device(format!("starting the maker's thread failed: {error}"))
        })?;
        Ok(Self {
            inbox,
            shared,
            places: Arc::new(Semaphore::new(max_waiting)),
            max_waiting,
            end,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// Loads a pipeline under a name, after the current block.
    pub async fn load(&self, name: &str, loader: PipelineLoader) -> Result<(), LoadError> {
        let (reply, answer) = oneshot::channel();
        let command = MakerCommand::Load {
            name: name.to_owned(),
            loader,
            reply,
        };
        let sent = self.inbox.send(command).await;
        sent.map_err(|_| LoadError::Stopped)?;
        answer.await.unwrap_or(Err(LoadError::Stopped))
    }

    /// Fails the jobs of a pipeline and frees its memory.
    pub async fn unload(&self, name: &str) -> Result<(), Failure> {
        let name = name.to_owned();
        self.ask(|reply| MakerCommand::Unload { name, reply })
            .await?
    }

    /// Returns once no block runs: jobs keep their place, and new ones are refused.
    pub async fn pause(&self) -> Result<(), Failure> {
        self.ask(MakerCommand::Pause).await
    }

    pub async fn resume(&self) -> Result<(), Failure> {
        self.ask(MakerCommand::Resume).await
    }

    pub fn status(&self) -> MakerStatus {
        let models = self.shared.models();
        MakerStatus {
            running: models.iter().map(|model| model.running).sum(),
            waiting: self.max_waiting - self.places.available_permits(),
            is_paused: self.shared.is_paused(),
            models,
        }
    }

    /// The cost of a request, or why it is refused.
    pub fn check(&self, model: &str, request: &MakeRequest) -> Result<Cost, Failure> {
        let pipeline = self.shared.pipeline(model)?;
        let checked = guard(|| pipeline.check(request));
        Ok(checked.map_err(|_| crashed(model))??)
    }

    /// Starts a job, or refuses it at once.
    pub fn make(&self, model: &str, request: MakeRequest) -> Result<MakeStream, Failure> {
        let cost = self.check(model, &request)?;
        if self.shared.is_paused() {
            return Err(Failure::Paused);
        }
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| self.busy())?;
        let (outbox, stream) = stream::channel(self.inbox.downgrade());
        let job = MakeJob {
            model: model.to_owned(),
            request,
            cost,
            outbox,
            place,
        };
        match self.inbox.try_send(MakerCommand::Make(Box::new(job))) {
            Ok(()) => Ok(stream),
            Err(TrySendError::Full(_)) => Err(self.busy()),
            Err(TrySendError::Closed(_)) => Err(Failure::Stopped),
        }
    }

    /// Waits until the thread has ended. While a `Maker` is there, only a bug of the maker itself ends it.
    pub async fn ended(&self) {
        self.end.closed().await;
    }

    /// Waits until the thread has ended: until every other `Maker` is dropped and its jobs have finished.
    pub async fn drain(self) {
        let Self {
            inbox, end, thread, ..
        } = self;
        drop(inbox);
        end.closed().await;
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Over but for its last instructions.
        let _ = thread.map(JoinHandle::join);
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> MakerCommand,
    ) -> Result<T, Failure> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(command(reply)).await;
        sent.map_err(|_| Failure::Stopped)?;
        answer.await.map_err(|_| Failure::Stopped)
    }

    fn busy(&self) -> Failure {
        let MakerStatus {
            running, waiting, ..
        } = self.status();
        Failure::Busy { running, waiting }
    }
}
