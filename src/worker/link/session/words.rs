//! Inputs and outputs of a session.

use std::time::Duration;

use crate::link::offer::Said;
use muster_protocol::job::{JobId, KeepAlive, Kind};
use muster_protocol::link::{
    Agreed, Extension, Extensions, Payload, Prefill, Registration, State, ToWorker, UploadSlot,
};

/// Time since the line was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

/// An attempt of a job, numbered by this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u64);

#[derive(Debug)]
pub enum Input {
    /// The requested socket is open.
    Opened,
    Frame(ToWorker),
    /// Any other sign of life.
    Heard,
    /// The socket is lost, or could not be opened.
    Lost {
        code: Option<u16>,
    },
    Said {
        slot: Slot,
        said: Said,
    },
    /// The worker's state has changed.
    Report(State),
    /// The worker serves other models from now on.
    Registration(Box<Registration>),
    Pause(bool),
    Leave {
        within: Duration,
    },
    /// Time has passed; see [`super::Session::next_wake`].
    Tick,
}

#[derive(Debug, PartialEq)]
pub enum Output {
    Dial,
    Send(String),
    /// A ping of the WebSocket's own.
    Ping,
    /// With this code, or without a close frame if the socket is unusable.
    Close(Option<u16>),
    Begin(Box<Work>),
    /// The job was cancelled. Later reports only matter if the session expects a final one.
    Stop(Slot),
    /// The line is not kept any longer.
    Over(Ending),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Left,
    /// Our fault, and nothing will change without the operator.
    Refused(String),
}

/// A job for the executor.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    pub slot: Slot,
    pub job: JobId,
    pub model: String,
    pub kind: Kind,
    pub payload: Payload,
    /// An upload link for each output of a job for media.
    pub upload: Vec<UploadSlot>,
    /// Go on after this.
    pub prefill: Option<Prefill>,
    /// Jobs of one coordinator with the same may find each other's computed prompts.
    pub cache_salt: Option<String>,
    /// How long the model stays in memory afterwards.
    pub keep_alive: Option<KeepAlive>,
    pub peer: Peer,
    pub finishing: Finishing,
}

/// Processing of a finished image before its upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finishing {
    /// `None` if the job requests no check.
    pub safety: Option<SafetyRule>,
    /// The longer side to reduce the image to.
    pub side: Option<u32>,
}

/// The handling of an image that the safety checker flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SafetyRule {
    /// The image is sent with a remark.
    Label,
    /// An empty image is sent instead.
    Censor,
    /// The job fails. Without a checker nothing is flagged.
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Ours,
    Public,
}

/// The agreed protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    extensions: Extensions,
    pub beat: Duration,
}

impl Agreement {
    /// Without an agreement, the public protocol.
    pub fn new(agreed: Option<&Agreed>) -> Self {
        let secs = agreed.and_then(|agreed| agreed.beat_secs).unwrap_or(10);
        Self {
            extensions: agreed.map(|agreed| agreed.r#use).unwrap_or_default(),
            beat: Duration::from_secs(u64::from(secs.clamp(1, 60))),
        }
    }

    pub fn has(self, extension: Extension) -> bool {
        self.extensions.has(extension)
    }

    pub fn peer(self) -> Peer {
        match self.has(Extension::Multi) {
            true => Peer::Ours,
            false => Peer::Public,
        }
    }
}

impl Moment {
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
