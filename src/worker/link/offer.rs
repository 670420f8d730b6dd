//! The interface between a line and the executor of jobs.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::session::{SafetyRule, Slot, Work};
use super::transfer::Transfers;
use muster_protocol::job::{
    Event, Failure, FailureKind, FinishReason, PromptLogprobs, ResultPart, Usage,
};
use muster_protocol::link::MediaResult;

/// Identifies a coordinator's line during the worker's lifetime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LineId(pub u64);

/// A job to start now, with exactly one final reply: done, failed or busy.
#[derive(Debug)]
pub struct Offer {
    /// The line that it came over. Jobs of different coordinators never share one.
    pub line: LineId,
    pub work: Work,
    /// Reaches the media store of its coordinator.
    pub transfers: Transfers,
    pub reply: Reply,
    pub stop: Stop,
}

/// A report about a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Started {
        prompt_tokens: u32,
        cached_tokens: u32,
    },
    /// Tokens and pieces of tool calls that belong together: they arrive all or none.
    Output(Vec<Event>),
    /// Log probabilities of tokens of the prompt.
    Prompt(PromptLogprobs),
    /// Values: all of them, or the next part.
    Part(Box<ResultPart>),
    /// A step of a job for media. The preview is a file; a later one replaces it.
    Progress {
        at: u32,
        of: u32,
        preview: Option<Vec<u8>>,
    },
    /// The safety checker flagged the image, and this was done.
    Flagged(SafetyRule),
    /// Done: the outputs are in the media store.
    Uploaded(Vec<MediaResult>),
    Done {
        finish: FinishReason,
        usage: Usage,
    },
    Failed(Failure),
    /// Handed back without fault.
    Busy {
        retry_after: Duration,
    },
}

/// The way back for one job.
#[derive(Debug)]
pub struct Reply {
    slot: Slot,
    sender: mpsc::Sender<(Slot, Said)>,
    is_over: bool,
}

/// Signals the executor that a job was cancelled.
#[derive(Debug, Clone, Default)]
pub struct Stop(CancellationToken);

impl Said {
    pub fn is_last(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Uploaded(_) | Self::Failed(_) | Self::Busy { .. } => true,
            Self::Started { .. }
            | Self::Output(_)
            | Self::Prompt(_)
            | Self::Part(_)
            | Self::Flagged(_)
            | Self::Progress { .. } => false,
        }
    }
}

impl Reply {
    pub fn new(slot: Slot, sender: mpsc::Sender<(Slot, Said)>) -> Self {
        Self {
            slot,
            sender,
            is_over: false,
        }
    }

    /// Waits only while the line has hundreds of words of other jobs to pass on.
    pub async fn say(&mut self, said: Said) {
        self.is_over |= said.is_last();
        // A line that has ended needs no answer.
        let _ = self.sender.send((self.slot, said)).await;
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_over {
            let failure = Failure::new(FailureKind::WorkerFailed, "the worker dropped the job");
            let _ = self.sender.try_send((self.slot, Said::Failed(failure)));
        }
    }
}

impl Stop {
    pub async fn wanted(&self) {
        self.0.cancelled().await;
    }

    pub fn is_wanted(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(super) fn want(&self) {
        self.0.cancel();
    }
}
