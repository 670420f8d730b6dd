//! The shell around [`super::dispatch`]: clients on one side, workers on the other, one task in the middle that owns
//! the dispatcher and carries out its effects.
//!
//! | file | contents |
//! | --- | --- |
//! | `desk`, `routes`, `closing` | the task: messages in; effects out; shutdown and restart |
//! | `stream`, `pipe`, `join` | a client's stream; its buffer, bounded by bytes; merging of events |
//! | `lines` | open jobs |
//! | `orders`, `sessions` | a worker's outbox; the connected sockets |
//! | `polling`, `lent` | pops and submits of polling workers; offers on their way to one |
//! | `cancelling` | jobs that clients cancel by their ids |
//! | `stage` | the stage of a job, for clients that poll |
//! | `departures` | clients and workers that have left, and undelivered offers |
//! | `books` | the destination of settlements |
//! | `overview`, `figures` | online workers and models, for lists; counters, for metrics |
//!
//! Between a client and its tokens there is no SQL and no waiting: a client that does not read loses its own job, a
//! worker that does not read loses its socket, and no other client is affected. Tokens are counted and jobs are settled
//! in tasks beside this one.

mod books;
mod cancelling;
mod closing;
mod departures;
mod desk;
mod figures;
mod join;
mod lent;
mod lines;
mod orders;
mod overview;
mod pipe;
mod polling;
mod routes;
mod sessions;
mod stage;
mod stream;

#[cfg(test)]
mod tests;

pub use books::{Books, Unsettled};
pub use figures::{BUCKETS, Figures, Histogram};
pub use lent::Lent;
pub use overview::{ModelOnline, Overview, WorkerOnline};
pub use pipe::CLIENT_BUFFER;
pub use polling::{Brought, News, Pop, Popped, Receipt};
pub use stage::{JobWatch, Stage};
pub use stream::{Delivery, JobStream};

pub use orders::{Order, Orders};
pub use sessions::{Card, Gpus};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use departures::{Departure, Departures};
use desk::{Desk, Message};
use figures::Counters;
use overview::Board;

use super::dispatch::{
    BegunOutput, Input, Limits, Refusal, Registration, SessionId, Settings, Submission,
};
use super::leadership::Leadership;
use muster_process::tasks::Tasks;
use muster_protocol::job::Job;

/// Messages queued for the desk. Beyond it, handlers and sockets wait.
const INBOX: usize = 1024;

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How much longer than its timeout a drain waits for the store.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);

/// A handle on the task. Clones share it.
#[derive(Debug, Clone)]
pub struct Switchboard {
    messages: mpsc::Sender<Message>,
    shared: Arc<Shared>,
    /// Requests wait for workers until then.
    workers_by: Option<Instant>,
    /// Adds requirements to jobs before they are queued.
    mark: fn(&mut Arc<Job>),
}

/// State that is read or written without a message to the task.
#[derive(Debug, Default)]
struct Shared {
    board: Board,
    counters: Counters,
    departures: Arc<Departures>,
    sessions: AtomicU64,
}

/// A worker's connection to the switchboard. Dropping it means the socket was lost.
#[derive(Debug)]
pub struct WorkerLine {
    session: SessionId,
    messages: mpsc::Sender<Message>,
    departures: Arc<Departures>,
}

/// The result of a drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Jobs that had not ended in time and are not stored.
    pub cut_off: u64,
}

/// The switchboard has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl Switchboard {
    pub fn start(settings: Settings, books: impl Into<Books>, tasks: &Tasks) -> Self {
        Self::led(Leadership::default(), settings, books, tasks)
    }

    /// The same, with a pause of placement while the coordinator does not lead.
    pub fn led(
        leadership: Leadership,
        settings: Settings,
        books: impl Into<Books>,
        tasks: &Tasks,
    ) -> Self {
        let (messages, inbox) = mpsc::channel(INBOX);
        let shared = Arc::new(Shared::default());
        let desk = Desk::new(
            settings,
            books.into(),
            shared.clone(),
            messages.downgrade(),
            tasks,
        );
        let desk = desk.led_by(leadership);
        tasks.start(desk.run(inbox, tasks.stopping()));
        Self {
            messages,
            shared,
            workers_by: None,
            mark: |_| {},
        }
    }

    /// Requests that no worker can serve wait until then: workers of an earlier coordinator connect to this one.
    #[must_use]
    pub fn with_workers_by(self, until: Instant) -> Self {
        Self {
            workers_by: Some(until),
            ..self
        }
    }

    /// `mark` adds requirements to jobs before they are queued.
    #[must_use]
    pub fn marking(self, mark: fn(&mut Arc<Job>)) -> Self {
        Self { mark, ..self }
    }

    /// Queues all jobs of the request, or none. Returns a stream for each, in order; dropping one cancels its job.
    pub async fn submit(&self, submission: Submission) -> Result<Vec<JobStream>, Refusal> {
        self.submit_begun(submission, Vec::new()).await
    }

    /// The same for jobs that an earlier coordinator began, with the output that the client has.
    pub async fn submit_begun(
        &self,
        mut submission: Submission,
        begun: Vec<BegunOutput>,
    ) -> Result<Vec<JobStream>, Refusal> {
        submission.jobs.iter_mut().for_each(self.mark);
        while let Some(until) = self.awaits_workers() {
            let Submission { jobs, standing } = &submission;
            let (jobs, standing) = (jobs.clone(), *standing);
            let again = Submission { jobs, standing };
            match self.submit_once(again, begun.clone()).await {
                Err(Refusal::Unserved { .. }) => self.next_worker(until).await,
                submitted => return submitted,
            }
        }
        self.submit_once(submission, begun).await
    }

    async fn submit_once(
        &self,
        submission: Submission,
        begun: Vec<BegunOutput>,
    ) -> Result<Vec<JobStream>, Refusal> {
        let (answer, answered) = oneshot::channel();
        let message = Message::Submit {
            submission,
            begun,
            answer,
        };
        let sent = self.messages.send(message).await;
        sent.map_err(|_| Refusal::ShuttingDown)?;
        answered.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// Whether the queue would accept this job now. Changes nothing.
    pub async fn check(&self, job: Arc<Job>) -> Result<(), Refusal> {
        while let Some(until) = self.awaits_workers() {
            match self.check_once(job.clone()).await {
                Err(Refusal::Unserved { .. }) => self.next_worker(until).await,
                checked => return checked,
            }
        }
        self.check_once(job).await
    }

    async fn check_once(&self, job: Arc<Job>) -> Result<(), Refusal> {
        let (answer, answered) = oneshot::channel();
        let sent = self.messages.send(Message::Check { job, answer }).await;
        sent.map_err(|_| Refusal::ShuttingDown)?;
        answered.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    fn awaits_workers(&self) -> Option<Instant> {
        self.workers_by.filter(|until| Instant::now() < *until)
    }

    async fn next_worker(&self, until: Instant) {
        let mut members = self.members();
        tokio::select! {
            _ = members.changed() => {}
            // The overview may be a little behind.
            () = sleep_until(until.min(Instant::now() + LOOK_AGAIN)) => {}
        }
    }

    /// Sets the limits of the queue.
    pub async fn change_limits(&self, limits: Limits) {
        // A stopped switchboard accepts nothing anyway.
        let _ = self.messages.send(Message::Limits(limits)).await;
    }

    pub fn overview(&self) -> Arc<Overview> {
        self.shared.board.read()
    }

    /// Notifies of workers that joined, left or changed their models.
    pub fn members(&self) -> watch::Receiver<()> {
        self.shared.board.members()
    }

    /// The current overview; slightly older under load.
    pub async fn current(&self) -> Arc<Overview> {
        if let Some(fresh) = self.shared.board.fresh() {
            return fresh;
        }
        let (answer, answered) = oneshot::channel();
        let asked = self.messages.send(Message::Overview { answer }).await;
        match asked {
            Ok(()) => answered.await.unwrap_or_else(|_| self.overview()),
            Err(_) => self.overview(),
        }
    }

    pub fn figures(&self) -> Figures {
        self.shared.counters.read()
    }

    /// Accepts no more jobs, and returns when all have ended, slightly after `within` at the latest.
    pub async fn drain(&self, within: Duration) -> Drained {
        let (done, drained) = oneshot::channel();
        let message = Message::Drain { within, done };
        if self.messages.send(message).await.is_err() {
            return Drained::default();
        }
        // Late settlements have their own timeout; the process does not wait for them.
        match timeout(within + LAST_SETTLEMENTS, drained).await {
            Ok(drained) => drained.unwrap_or_default(),
            Err(_) => self.left_over(),
        }
    }

    /// Leaves the open jobs to another coordinator, and returns when those that have ended are settled, after `within`
    /// at the latest.
    pub async fn hand_over(&self, within: Duration) {
        let (done, handed_over) = oneshot::channel();
        let sent = self.messages.send(Message::HandOver { done }).await;
        if sent.is_ok() {
            // Later settlements are written, or fail by the fence.
            let _ = timeout(within, handed_over).await;
        }
    }

    /// Unfinished jobs, for a drain that ends without waiting.
    fn left_over(&self) -> Drained {
        let Figures {
            queued,
            running,
            cut_off,
            ..
        } = self.figures();
        Drained {
            cut_off: cut_off + queued + running,
        }
    }

    /// A session id, never reused.
    pub fn next_session(&self) -> SessionId {
        SessionId(self.shared.sessions.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Registers a worker. Replies come as orders, the first being `Ready` or `Close`.
    pub async fn connect(
        &self,
        registration: Registration,
        card: Card,
        orders: Arc<Orders>,
    ) -> Result<WorkerLine, Stopped> {
        let session = registration.session;
        let message = Message::Connected {
            registration: Box::new(registration),
            card,
            orders: Some(orders),
        };
        self.messages.send(message).await.map_err(|_| Stopped)?;
        Ok(WorkerLine {
            session,
            messages: self.messages.clone(),
            departures: self.shared.departures.clone(),
        })
    }
}

impl WorkerLine {
    /// Passes a worker's frames on, in order.
    pub async fn say(&self, inputs: Vec<Input>) -> Result<(), Stopped> {
        let message = Message::Said(inputs);
        self.messages.send(message).await.map_err(|_| Stopped)
    }
}

impl Drop for WorkerLine {
    fn drop(&mut self) {
        self.departures.note(Departure::Worker(self.session));
    }
}
