//! A thread that owns loaded models: its handle, its loop, and the state that it publishes. The inference thread and
//! the maker are such threads.
//!
//! A step is the unit of scheduling: commands are executed and abandoned jobs retired between two steps. An idle thread
//! blocks on the inbox. Dropping the last handle closes the inbox: running jobs finish first, then the thread ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::work::{Queue, Work, next_work};
use super::{Failure, LoadError};

/// Commands besides jobs that may wait for the thread, while a step runs.
const INBOX_SPARE: usize = 64;

/// The body of a thread.
pub trait DeviceLoop {
    type Command;

    /// Executes a command, even if its caller has stopped waiting.
    fn obey(&mut self, command: Self::Command);

    /// Frees jobs whose callers have stopped waiting.
    fn retire_abandoned(&mut self);

    /// Lets others see the state.
    fn report(&self);

    fn is_paused(&self) -> bool;

    fn queues(&self) -> Vec<Queue>;

    /// Runs a step of the queue with this index.
    fn step(&mut self, index: usize);

    /// Fails the remaining jobs: those of a paused thread, which no caller can resume.
    fn stop(self);
}

/// Runs until the last handle is dropped and no job is left.
pub fn run<L: DeviceLoop>(mut thread: L, mut inbox: mpsc::Receiver<L::Command>) {
    let next = |thread: &L| match thread.is_paused() {
        true => Work::Wait,
        false => next_work(&thread.queues()),
    };
    loop {
        while let Ok(command) = inbox.try_recv() {
            thread.obey(command);
        }
        thread.retire_abandoned();
        thread.report();
        match next(&thread) {
            Work::Step(index) => thread.step(index),
            Work::Wait => match inbox.blocking_recv() {
                Some(command) => thread.obey(command),
                // A job that waited for a slow reader continues.
                None if matches!(next(&thread), Work::Step(_)) => {}
                None => return thread.stop(),
            },
        }
    }
}

/// The way to a thread. When the last clone is dropped the thread finishes its jobs and ends.
pub struct ThreadHandle<C> {
    inbox: mpsc::Sender<C>,
    /// Closed by the end of the thread.
    end: mpsc::Sender<()>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl<C> Clone for ThreadHandle<C> {
    fn clone(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            end: self.end.clone(),
            thread: Arc::clone(&self.thread),
        }
    }
}

impl<C: Send + 'static> ThreadHandle<C> {
    /// Starts a thread whose inbox holds this many jobs.
    pub fn start(
        name: &str,
        jobs: usize,
        body: impl FnOnce(mpsc::Receiver<C>) + Send + 'static,
    ) -> Result<Self, LoadError> {
        let (inbox, commands) = mpsc::channel(jobs + INBOX_SPARE);
        let (end, ended) = mpsc::channel(1);
        let body = move || {
            // Dropped last, also during a panic.
            let _ended = ended;
            body(commands);
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        let thread = thread.map_err(|error| {
            LoadError::Device(format!("starting the thread {name} failed: {error}"))
        })?;
        Ok(Self {
            inbox,
            end,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// Sends a command and waits for its reply.
    pub async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> C,
    ) -> Result<T, Failure> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(command(reply)).await;
        sent.map_err(|_| Failure::Stopped)?;
        answer.await.map_err(|_| Failure::Stopped)
    }

    /// Sends a job, or refuses it at once.
    pub fn submit(&self, job: C, busy: impl FnOnce() -> Failure) -> Result<(), Failure> {
        self.inbox.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => busy(),
            TrySendError::Closed(_) => Failure::Stopped,
        })
    }

    /// For the event streams of jobs, which may wake the thread but not keep it alive.
    pub fn downgrade(&self) -> mpsc::WeakSender<C> {
        self.inbox.downgrade()
    }

    pub fn has_ended(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Waits until the thread has ended, which only a panic causes while a handle exists.
    pub async fn ended(&self) {
        self.end.closed().await;
    }

    /// Waits until the thread has ended: until every other handle is dropped and its jobs have finished.
    pub async fn drain(self) {
        let Self { inbox, end, thread } = self;
        drop(inbox);
        end.closed().await;
        let thread = lock(&thread).take();
        // Over but for its last instructions. A panic in it was printed.
        let _ = thread.map(JoinHandle::join);
    }
}

/// The models of a thread and their state, for other threads.
pub struct ModelBoard<L, S> {
    models: Mutex<BTreeMap<String, L>>,
    status: Mutex<Vec<S>>,
    is_paused: AtomicBool,
}

impl<L, S> Default for ModelBoard<L, S> {
    fn default() -> Self {
        Self {
            models: Mutex::default(),
            status: Mutex::default(),
            is_paused: AtomicBool::default(),
        }
    }
}

impl<L: Clone, S: Clone> ModelBoard<L, S> {
    pub fn listing(&self, model: &str) -> Result<L, Failure> {
        let listing = lock(&self.models).get(model).cloned();
        listing.ok_or_else(|| self.not_loaded(model))
    }

    pub fn not_loaded(&self, model: &str) -> Failure {
        Failure::NotLoaded {
            model: model.to_owned(),
            loaded: lock(&self.models).keys().cloned().collect(),
        }
    }

    pub fn enlist(&self, model: String, listing: L) {
        lock(&self.models).insert(model, listing);
    }

    pub fn delist(&self, model: &str) {
        // Dropped after the lock is released.
        let _listed = lock(&self.models).remove(model);
    }

    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Called by the thread between two steps.
    pub fn report(&self, models: impl Iterator<Item = S>) {
        let mut status = lock(&self.status);
        status.clear();
        status.extend(models);
    }

    pub fn status(&self) -> Vec<S> {
        lock(&self.status).clone()
    }
}

/// A panic while holding the lock cannot leave these maps half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
