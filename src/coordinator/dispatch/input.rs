//! Inputs of the dispatcher. The shell translates frames, requests and results of the store into them, and adds the
//! time.

use std::sync::Arc;
use std::time::Duration;

use muster_protocol::job::{
    AccountId, Capabilities, Clip, Event, Failure, Formats, Job, JobId, Kind, Kinds, Kudos,
    MemoryStay, ModelDetails, Reach, WorkerId,
};

use super::fairness::Standing;
use super::wants::Wants;

/// A connection of a worker, numbered by the shell and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

#[derive(Debug)]
pub enum Input {
    // From a client.
    Submit(Submission),
    /// A request of a coordinator that led before, whose client has a part of its output.
    Continue(Submission, Vec<BegunOutput>),
    /// The client cancelled, or disconnected.
    Cancel {
        job: JobId,
    },
    /// The account was suspended or deleted: its jobs end with this failure.
    EndAccount {
        account: AccountId,
        failure: Failure,
    },
    /// The client's buffer is full: the client reads more slowly than the worker writes.
    SlowClient {
        job: JobId,
    },

    // From a polling worker.
    /// Asks for jobs of one request, without waiting.
    Pop {
        session: SessionId,
        wants: Wants,
    },
    /// The worker offers other models or limits.
    Changed(Box<Registration>),
    /// New terms of a worker, connected or not.
    Terms {
        worker: WorkerId,
        terms: Terms,
    },

    // From a worker.
    /// An authenticated worker connected.
    Connected(Box<Registration>),
    /// A frame about a job.
    Frame(Frame),
    /// Any other sign of life, for example a pong.
    Heard {
        session: SessionId,
    },
    /// A report on speed and load.
    Report(Report),
    /// The worker accepts no further jobs, and disconnects after its last one.
    Leaving {
        session: SessionId,
        within: Duration,
    },
    /// The socket closed, or writing to it failed.
    Lost {
        session: SessionId,
    },

    // From the store.
    /// On disk, with the reward of the worker that said `done`.
    Settled {
        job: JobId,
        reward: Kudos,
    },
    /// The settlement may have failed. Retries are safe, since it is idempotent.
    SettleFailed {
        job: JobId,
    },
    /// Not settled, because the disk is full: a waiting client gets the error at once.
    StoreFull {
        job: JobId,
    },

    // From the lease of the database.
    /// Another coordinator may lead: no job is offered to a worker.
    Pause,
    /// Waiting jobs are offered again.
    Resume,

    // From the operator.
    /// New limits of the queue; jobs already accepted stay.
    Limits(Limits),
    /// Ask a worker to disconnect after its last job.
    DrainWorker {
        worker: WorkerId,
        within: Duration,
    },
    /// Accept no more jobs, and finish within this time.
    Drain {
        within: Duration,
    },
    /// Accept no more jobs, and leave the open ones to another coordinator.
    HandOver,

    /// Time has passed; [`super::Dispatcher::next_wake`] is the next useful time for it.
    Tick,
}

/// As in [`super::Settings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub queue: usize,
    pub in_flight: Option<usize>,
    pub direct_texts: Option<usize>,
    pub media: Option<usize>,
}

/// A request: its jobs are accepted or refused together.
#[derive(Debug)]
pub struct Submission {
    pub jobs: Vec<Arc<Job>>,
    pub standing: Standing,
}

/// Events that the client of a job received from an earlier coordinator, in order.
pub type BegunOutput = Vec<Event>;

/// A worker's registration, after authentication.
#[derive(Debug, Clone)]
pub struct Registration {
    pub session: SessionId,
    pub worker: WorkerId,
    /// The owner, whose jobs have priority at this worker.
    pub owner: AccountId,
    /// Other accounts with priority.
    pub prefers: Vec<AccountId>,
    /// Whether its owner takes no jobs of other accounts.
    pub own_only: bool,
    /// The operator trusts it.
    pub trusted: bool,
    pub kinds: Kinds,
    pub formats: Formats,
    pub capabilities: Capabilities,
    /// Limits for jobs without a model, if the worker's models state none.
    pub reach: Reach,
    pub models: Vec<ServedModel>,
    /// Concurrent jobs; 1 for peers that negotiated nothing.
    pub slots: u32,
    pub extensions: Extensions,
    /// Whether the worker polls.
    pub polls: bool,
    /// User agent of a polling worker.
    pub agent: Option<Arc<str>>,
    pub resume: Option<Resume>,
}

/// The coordinator's own knowledge of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// The worker gets its owner's jobs only.
    pub own_only: bool,
    /// The worker's measured speed is high for its models.
    pub fast: bool,
}

#[derive(Debug, Clone)]
pub struct ServedModel {
    pub name: Arc<str>,
    /// Most concurrent jobs of it.
    pub slots: u32,
    pub offering: Offering,
}

/// The claims of a worker about one of its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offering {
    pub kinds: Kinds,
    /// A subset of [`Capabilities::OF_MODELS`]. A model that states only its kinds gets the worker's own.
    pub can: Capabilities,
    /// Whether the worker describes its jobs by more than kinds.
    pub says_more: bool,
    /// The limits of the model.
    pub reach: Reach,
    /// Width and height of images whose request has none.
    pub size: Option<(u32, u32)>,
    /// The voices of a speech model.
    pub voices: Arc<[Arc<str>]>,
    /// The default length and size of a video model.
    pub clip: Option<Clip>,
    pub details: Arc<ModelDetails>,
}

impl Offering {
    /// A model that writes text.
    pub fn text(context: u32) -> Self {
        Self::of(Kind::Text.into(), Reach::ENDLESS.with_context(context))
    }

    /// A model for jobs of these kinds.
    pub fn of(kinds: Kinds, reach: Reach) -> Self {
        Self {
            kinds,
            can: Capabilities::default(),
            says_more: false,
            reach,
            size: None,
            voices: Arc::default(),
            clip: None,
            details: Arc::default(),
        }
    }
}

/// Extensions agreed at the handshake; peers of the public network have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Frames carry attempt numbers, acks may come at any time, and jobs may be refused.
    pub multi: bool,
    /// The worker handles cancels at any time and for every kind.
    pub cancel: bool,
    /// Frames carry sequence numbers and survive a reconnect.
    pub resume: bool,
    /// The worker sends heartbeats.
    pub lease: bool,
}

/// The jobs that a reconnecting worker still runs.
#[derive(Debug, Clone)]
pub struct Resume {
    pub session: SessionId,
    pub jobs: Vec<Claim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub job: JobId,
    pub attempt: u32,
}

#[derive(Debug)]
pub struct Frame {
    pub session: SessionId,
    pub job: JobId,
    /// `None` from peers without `multi`.
    pub attempt: Option<u32>,
    /// `None` from peers without `resume`.
    pub seq: Option<u64>,
    pub said: Said,
}

impl Frame {
    pub fn is_failure(&self) -> bool {
        matches!(self.said, Said::Event(Event::Failed(_)))
    }
}

#[derive(Debug)]
pub enum Said {
    Event(Event),
    /// The worker has finished with an invalid result; a peer waits for an ack.
    Broken(Failure),
    /// A sign of life.
    Alive,
    /// The worker is busy or its owner needs the machine: the job is requeued, without a strike.
    Busy {
        retry_after: Duration,
    },
}

impl Said {
    /// A last frame on a job that gets no ack: without a reply, the worker would keep the job for long.
    pub fn is_unanswered_end(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Event(Event::Failed(_)))
    }
}

#[derive(Debug, Clone)]
pub struct Report {
    pub session: SessionId,
    pub models: Vec<ModelReport>,
}

#[derive(Debug, Clone)]
pub struct ModelReport {
    pub name: Arc<str>,
    pub ready: bool,
    pub slots: Option<u32>,
    pub waiting: u32,
    pub prefill_per_second: Option<f64>,
    pub decode_per_second: Option<f64>,
    pub stay: MemoryStay,
    /// The owner paused the worker until this time, in seconds since the epoch; 0 if the end is unknown.
    pub paused_until: Option<i64>,
}
