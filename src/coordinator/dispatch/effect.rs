//! Effects of the dispatcher. The shell executes them in order and decides nothing.

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
    /// All jobs of the request are in the queue. From now on each ends exactly once.
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
    /// A job leaves memory unfinished and unsettled: it is on disk and is loaded again later, or another coordinator gets
    /// it from the node of its client.
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
    /// The worker may delete its copies of frames up to this one.
    Got {
        session: SessionId,
        job: JobId,
        attempt: u32,
        seq: u64,
    },
    /// Reply to a `done`. A peer without `multi` gets no other frame before it.
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
    /// One transaction: usage, ledger entries, state. Idempotent per job.
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
    /// The worker's name for the model.
    pub model: Arc<str>,
    /// The upstream program that serves the model.
    pub upstream: Option<Arc<str>>,
    /// The format of the input.
    pub format: Formats,
    /// Output that the client already has; the worker continues exactly after it.
    pub prefill: Option<Box<Prefill>>,
    /// Timeout without any frame, if the job's limits set one or its worker polls.
    pub patience: Option<Duration>,
    /// Time left until the job expires.
    pub remaining: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefill {
    pub tokens: Vec<u32>,
    /// The content delivered with the tokens; it may lag behind them.
    pub text: String,
    /// Tokens in the text, if the text is the whole output, so that a worker can continue without token ids.
    pub written: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub job: JobId,
    pub attempt: u32,
    /// The worker continues after this frame; `None` drops the job.
    pub go_on_after: Option<u64>,
    /// The job, if it is still here.
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
    /// Too many failures: the worker's name is barred.
    Evicted { retry_after: Duration },
    /// The worker's name is still barred for its strikes.
    Barred { retry_after: Duration },
    /// The worker has drained, or its drain timed out.
    Drained,
}

/// How a job ended, exactly once for each accepted job.
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
    /// The workers of the parts, in order; the last one said `done`.
    pub parts: Vec<Part>,
    pub attempts: u32,
    /// The last worker's model for the job.
    pub model: Option<Arc<str>>,
    /// Workers that had the job and did not submit it, each once; empty if the job itself was at fault.
    pub dropped: Vec<WorkerId>,
    /// The last token counts that the worker reported.
    pub usage: Option<Usage>,
    pub timing: Timing,
    /// Text of a durable job, stored with it; filled in by the shell, which keeps it.
    pub output: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub worker: WorkerId,
    pub owner: AccountId,
    /// The operator trusts the worker or its owner.
    pub trusted: bool,
    /// User agent of a polling worker.
    pub agent: Option<Arc<str>>,
    pub attempt: u32,
    pub model: Arc<str>,
    /// Size of the worker's batch, this job included.
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
    /// For logs, and for close frames with a reason.
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
