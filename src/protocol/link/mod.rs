//! Frames between worker and coordinator: one JSON object each, in both directions.
//!
//! | file | frames |
//! | --- | --- |
//! | `registration`, `ready` | the worker's registration; the coordinator's reply with the agreed extensions |
//! | `job` | work, for our own workers (the neutral request) and for public ones (the client's dialect) |
//! | `output` | tokens, alone and several at once |
//! | `endings` | done, failed |
//! | `state` | how busy and how fast a worker is |
//! | `from_worker`, `to_worker` | all of them, told apart by `type` |
//! | `loose`, `mending` | tolerant parsing of other peers' frames |
//!
//! A peer that negotiates nothing sees the public protocol exactly: `None` is absent on the wire, unknown keys and
//! types are ignored. Extensions agreed in `ext` add `att` and `seq` to the frames of a job. A frame of several deltas
//! takes as many numbers as it has deltas, and its `seq` is that of the first.

mod endings;
mod error;
mod extensions;
mod from_worker;
mod job;
mod job_types;
mod loose;
mod mending;
mod object;
mod output;
mod ready;
mod registration;
mod state;
mod to_worker;
mod usage;

#[cfg(test)]
mod tests;

pub use endings::{Done, ErrorFrame, MediaResult};
pub use error::FrameError;
pub use extensions::{Ability, Agreed, Exclusion, Extension, Extensions, VERSION, Wanted};
pub use from_worker::{FromWorker, MOST_PREVIEW_BYTES};
pub use job::{JobFrame, Payload, Prefill, UploadSlot};
pub use loose::has_more_values_than;
pub use output::{Output, write_tokens};
pub use ready::{Ready, RefusalCode, RefusalFrame, Verdict};
pub use registration::{Capacity, Claim, Key, ModelCapacity, ModelLimits, Registration, Resume};
pub use state::{GpuState, ModelState, ModelStatus, State};
pub use to_worker::{CancelWhy, ToWorker};

use super::job::JobId;

use object::Object;

/// The largest frame that every peer of the public network reads.
pub const PUBLIC_FRAME: usize = 1 << 20;
/// The largest frame that either of ours reads: `ext.max_frame` says so in both directions.
pub const LARGEST_FRAME: usize = 32 << 20;
/// A frame of this size takes little memory, whatever its values.
const SMALL_FRAME: usize = 64 << 10;
/// Limit of values in a worker's frame, the same as for a client's body.
pub const MOST_VALUES: usize = super::openai::json::MOST_VALUES;
/// Limit of values in a job's frame, which contains the client's body once or twice.
const MOST_JOB_VALUES: usize = 2 * MOST_VALUES + SMALL_FRAME;

/// Which job a frame is about, and, where that was agreed, which attempt of it and which frame of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    pub job: JobId,
    /// None from and to peers without `multi`.
    pub attempt: Option<u32>,
    /// None from peers without `resume`.
    pub seq: Option<u64>,
}

impl About {
    /// The form for public peers.
    pub fn job(job: JobId) -> Self {
        Self {
            job,
            attempt: None,
            seq: None,
        }
    }

    pub fn attempt(job: JobId, attempt: u32) -> Self {
        Self {
            attempt: Some(attempt),
            ..Self::job(job)
        }
    }

    fn write(self, object: &mut Object<'_>) {
        object.display_text("id", self.job);
        object.number_if("att", self.attempt);
        object.number_if("seq", self.seq);
    }
}
