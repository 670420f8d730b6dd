//! The maker: a second thread per device, next to the text loop, that runs media pipelines.
//!
//! A [`Pipeline`] is a loaded model. [`Maker::make`] turns a [`MakeRequest`] into a [`MakeStream`] of [`MakeEvent`]s.
//! The thread runs one block of one job, then looks for commands, cancelled jobs and the next turn, so that a block is
//! the latency of all of them. Dropping the stream cancels the job. The operating system divides the processor between
//! both threads: this one and its pools have a lower priority.
//!
//! A panic fails only its own job. Memory budgets are decided elsewhere.

mod compute;
mod handle;
mod media;
mod passes;
mod request;
mod resident;
mod sample;
mod stream;
mod thread;

use std::time::Duration;

pub use handle::{Maker, MakerLimits, PipelineLoader};
pub use media::{Output, Pcm, PixelFormat, Pixels, SpokenWord, TranscriptPart};
pub use passes::{PassJob, PassReports};
pub use request::{MakeRequest, MediaRequest, SoundRequest};
pub use sample::{SampleFault, SamplePipeline};
pub use stream::{MakeEvent, MakeStream, UNREAD_FRAMES, UNREAD_OUTPUTS};

use super::{Failure, model};

/// A loaded model that makes media. Lives on the maker's thread; only [`check`](Self::check) runs on others.
pub trait Pipeline: Send + Sync {
    /// Refuses a request that cannot succeed, before it takes a place. Arithmetic only: callers wait for it.
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal>;

    /// Starts a job that passed the check. Work that takes long belongs to the first blocks.
    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure>;

    /// Number of jobs that take turns. The others wait.
    fn side_by_side(&self) -> SideBySide {
        SideBySide::default()
    }
}

/// Jobs of one pipeline that take turns, a block each. At least one runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SideBySide {
    pub jobs: usize,
    /// Limit of their summed costs.
    pub memory_bytes: u64,
}

/// A job that has begun. Dropping it cancels it and frees its memory.
pub trait Making: Send {
    /// Runs one block: the longest time for which cancel, pause and other pipelines wait.
    fn advance(&mut self) -> Result<Advance, Failure>;
}

/// The result of one block.
#[derive(Debug, Clone, PartialEq)]
pub enum Advance {
    /// More blocks follow; nothing to report.
    Busy,
    /// Step `at` of `of` is complete.
    Step {
        at: u32,
        of: u32,
        preview: Option<Pixels>,
    },
    /// An output. More may follow.
    Made(Output),
    /// Every result was returned before.
    Done,
}

/// Estimated cost of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Steps that the job reports.
    pub steps: u32,
    /// Blocks in all. Times [`PipelineStatus::block_time`], how long the job takes.
    pub blocks: u64,
    /// Memory of the device while the job runs, beyond the weights.
    pub memory_bytes: u64,
}

/// Why a pipeline does not take a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the request asks for {wanted}, but the model makes {makes}")]
    Kind {
        wanted: &'static str,
        makes: &'static str,
    },
    #[error("{setting} is {found}, but the model takes {least} to {most}")]
    OutOfRange {
        setting: &'static str,
        found: u64,
        least: u64,
        most: u64,
    },
    #[error("{0}")]
    Unsupported(String),
}

/// Refuses a setting that is less or more than the model takes.
pub fn in_range(setting: &'static str, found: u32, least: u32, most: u32) -> Result<(), Refusal> {
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(Refusal::OutOfRange {
            setting,
            found: found.into(),
            least: least.into(),
            most: most.into(),
        }),
    }
}

impl From<candle_core::Error> for Failure {
    fn from(error: candle_core::Error) -> Self {
        Self::internal(model::plain(&error))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::BadRequest(refusal.to_string())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineStatus {
    pub name: String,
    pub running: usize,
    /// Jobs that the thread knows of. More may be on their way while a block runs.
    pub waiting: usize,
    /// The recent mean, once a block has run.
    pub block_time: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakerStatus {
    pub models: Vec<PipelineStatus>,
    pub running: usize,
    /// Jobs that hold a place in the queue, on their way or there.
    pub waiting: usize,
    pub is_paused: bool,
}

#[cfg(test)]
pub(in crate::runtime) mod suite;
#[cfg(test)]
mod tests;
