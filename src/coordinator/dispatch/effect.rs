//! Everything the dispatcher asks for. The shell does these in order and decides nothing.

use std::sync::Arc;
use std::time::Duration;

use muster_protocol::job::{
    AccountId, Event, Failure, FailureKind, FinishReason, Formats, Job, JobId, Kudos, RequestId,
    UnixMillis, Usage, WorkerId,
};

use super::input::SessionId;
use super::refusal::Refusal;

#[derive(Debug)]
pub enum Effect {
    // To a client.
    /// All jobs of the request are in the queue. From here on each ends exactly once.
    Accepted {
        request: RequestId,
    },
    Refused {
        request: RequestId,
        refusal: Refusal,
    },
    /// Never a terminal event: those wait for the settlement and arrive as [`Effect::End`].
    Relay {
        job: JobId,
        event: Event,
    },
    End {
        job: JobId,
        outcome: Outcome,
    },
    /// A durable job is queued again after a failed attempt. Streaming clients are not notified.
    Returned {
        job: JobId,
    },
    /// A stored job leaves memory without having ended; it is still on disk and comes back from there.
    Park {
        job: JobId,
    },

    // To a worker.
    Ready {
        session: SessionId,
        resumed: Vec<Verdict>,
    },
    Offer(Offer),
    CancelOnWorker {
        session: SessionId,
        job: JobId,
        attempt: u32,
        why: CancelReason,
    },
    /// Frames up to this one have arrived and need not be kept.
    Got {
        session: SessionId,
        job: JobId,
        attempt: u32,
        seq: u64,
    },
    /// After a `done`. To a peer without `multi` this is the next frame, before anything else.
    Ack {
        session: SessionId,
        job: JobId,
        attempt: Option<u32>,
        reward: Kudos,
    },
    /// The rest of the attempt is not wanted.
    Drop {
        session: SessionId,
        job: JobId,
        attempt: u32,
    },
    TellDrain {
        session: SessionId,
        within: Duration,
    },
    CloseWorker {
        session: SessionId,
        reason: CloseReason,
    },

    // To the store.
    /// One transaction: usage, ledger entries, state. Idempotent by job.
    Settle(Box<Facts>),

    /// All jobs have ended, so the process may exit.
    Drained,
}

/// A lease: this worker, this attempt of this job.
#[derive(Debug, Clone)]
pub struct Offer {
    pub session: SessionId,
    pub job: Arc<Job>,
    pub attempt: u32,
    /// The name under which the worker serves it.
    pub model: Arc<str>,
    /// The program behind the worker that serves the model.
    pub upstream: Option<Arc<str>>,
    /// The format in which the worker gets it.
    pub format: Formats,
    /// Output that the client already has; the worker continues exactly after it.
    pub prefill: Option<Box<Prefill>>,
    /// How long it may be kept without a word, if its limits say so or its worker polls.
    pub patience: Option<Duration>,
    /// Time left until the job expires.
    pub remaining: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefill {
    pub tokens: Vec<u32>,
    /// The content delivered with them; it may lag behind the tokens.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub job: JobId,
    pub attempt: u32,
    /// Go on after this frame; or forget the job.
    pub go_on_after: Option<u64>,
    /// The job, if it is known here.
    pub resumed: Option<Arc<Job>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    Client,
    Timeout,
    Superseded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// A newer connection of the same worker.
    Replaced,
    /// Timed out while it had a job.
    Silent,
    /// Too many failures: its name is barred from now on.
    Evicted { retry_after: Duration },
    /// The worker's name is still barred for its strikes.
    Barred { retry_after: Duration },
    /// The worker has drained, or its drain timed out.
    Drained,
}

/// How a job ended. Exactly one of these for each accepted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Delivered { finish: FinishReason, usage: Usage },
    Failed(Failure),
    Cancelled,
    Expired,
}

/// Facts of an ended job, for the database and the kudos ledger.
#[derive(Debug, Clone)]
pub struct Facts {
    pub job: Arc<Job>,
    pub outcome: Outcome,
    /// Who made which part of it, in order; the worker that said `done` is the last.
    pub parts: Vec<Part>,
    pub attempts: u32,
    /// The model that the last worker to take it had for it.
    pub model: Option<Arc<str>>,
    /// Workers that had the job and did not submit it, each once; empty if the job itself was at fault.
    pub dropped: Vec<WorkerId>,
    /// The worker's last count, when it gave one.
    pub usage: Option<Usage>,
    pub timing: Timing,
    /// Text of a durable job, stored with it; filled in by the shell, which keeps it.
    pub output: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub worker: WorkerId,
    pub owner: AccountId,
    /// The operator vouches for the worker, or for its owner.
    pub trusted: bool,
    /// User agent of a polling worker.
    pub agent: Option<Arc<str>>,
    pub attempt: u32,
    pub model: Arc<str>,
    /// Jobs that the worker was given in one go, this one too.
    pub together: u32,
    /// Events with output that reached the client, and the tokens in them if the worker reported any.
    pub events: u64,
    pub tokens: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    pub accepted_at: UnixMillis,
    /// Until the first offer.
    pub queued: Option<Duration>,
    /// From acceptance to the first output.
    pub first_output: Option<Duration>,
    /// From acceptance to the end.
    pub total: Duration,
}

impl CloseReason {
    /// For the log, and for the peer where it is closed with a word.
    pub fn words(self) -> &'static str {
        match self {
            Self::Replaced => "replaced by a newer connection with the same name",
            Self::Silent => "heartbeat missed during a job",
            Self::Evicted { .. } => "too many failures",
            Self::Barred { .. } => "the name is still in cooldown after too many failures",
            Self::Drained => "drained, or the drain timed out",
        }
    }

    /// The close code for public peers; `None` where their protocol has none.
    pub fn code(self) -> Option<u16> {
        match self {
            Self::Replaced | Self::Drained => Some(1012),
            Self::Barred { .. } => Some(4003),
            Self::Silent | Self::Evicted { .. } => None,
        }
    }
}

impl Outcome {
    /// The client's error if this is not a delivery.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Self::Delivered { .. } => None,
            Self::Failed(failure) => Some(failure.clone()),
            Self::Cancelled => Some(Failure::new(
                FailureKind::Cancelled,
                "the job was cancelled",
            )),
            Self::Expired => Some(Failure::new(
                FailureKind::Expired,
                "the job expired before it was finished",
            )),
        }
    }
}
