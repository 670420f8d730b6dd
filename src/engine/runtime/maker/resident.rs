//! A loaded pipeline with its running and waiting jobs.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tracing::error;

use super::stream::{MakeOutbox, UNREAD_OUTPUTS};
use super::{Advance, Cost, MakeRequest, Making, Pipeline, PipelineStatus, SideBySide};
use crate::runtime::Failure;
use crate::runtime::outbox::TooSlow;
use crate::runtime::work::Queue;

/// Number of blocks in the moving average of a block's time.
const RECENT_BLOCKS: u32 = 8;

/// A request that passed the check, on its way to the thread.
pub struct MakeJob {
    pub model: String,
    pub request: MakeRequest,
    pub cost: Cost,
    pub outbox: MakeOutbox,
    /// A permit of the queue, released once the job runs.
    pub place: OwnedSemaphorePermit,
}

/// Most pipelines run one job at a time: a second would need its memory too.
pub struct ResidentPipeline {
    pub name: String,
    pipeline: Arc<dyn Pipeline>,
    side_by_side: SideBySide,
    /// The next is in front.
    running: VecDeque<RunningJob>,
    waiting: VecDeque<MakeJob>,
    served: Duration,
    block_time: Option<Duration>,
}

struct RunningJob {
    making: Box<dyn Making>,
    memory_bytes: u64,
    outbox: MakeOutbox,
    /// Held until the first block, when the status begins to count the job as running.
    place: Option<OwnedSemaphorePermit>,
}

/// A pipeline panicked, with this message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelinePanic(pub String);

impl ResidentPipeline {
    pub fn new(name: String, pipeline: Arc<dyn Pipeline>, side_by_side: SideBySide) -> Self {
        Self {
            name,
            pipeline,
            side_by_side,
            running: VecDeque::new(),
            waiting: VecDeque::new(),
            served: Duration::ZERO,
            block_time: None,
        }
    }

    pub fn queue(&self) -> Queue {
        Queue {
            has_work: self.next_turn().is_some() || self.has_room(),
            served: self.served,
        }
    }

    pub fn status(&self) -> PipelineStatus {
        PipelineStatus {
            name: self.name.clone(),
            running: self.running.len(),
            waiting: self.waiting.len(),
            block_time: self.block_time,
        }
    }

    /// Takes a job in. `level` is where its thread time starts to count if it was idle.
    pub fn admit(&mut self, job: MakeJob, level: Duration) {
        if !self.queue().has_work {
            self.served = level;
        }
        self.waiting.push_back(job);
    }

    /// Frees jobs whose streams were dropped.
    pub fn retire_abandoned(&mut self) {
        self.waiting.retain(|job| !job.outbox.is_abandoned());
        let running = &mut self.running;
        let _ = guard_job(&self.name, || {
            running.retain(|job| !job.outbox.is_abandoned());
        });
    }

    /// Begins a job if it fits, or else runs one block of the next running job.
    pub fn advance(&mut self) {
        let began = Instant::now();
        match self.has_room() {
            true => self.begin_next(),
            false => self.run_next(),
        }
        self.served += began.elapsed();
    }

    /// Whether the first job that waits may begin.
    fn has_room(&self) -> bool {
        let Some(next) = self.waiting.front() else {
            return false;
        };
        let memory = self.running.iter().map(|job| job.memory_bytes);
        let SideBySide { jobs, memory_bytes } = self.side_by_side;
        let has_room = || memory.sum::<u64>() + next.cost.memory_bytes <= memory_bytes;
        self.running.is_empty() || (self.running.len() < jobs && has_room())
    }

    /// The next job whose outbox is not full.
    fn next_turn(&self) -> Option<usize> {
        self.running.iter().position(|job| !job.outbox.is_full())
    }

    fn begin_next(&mut self) {
        let Some(job) = self.waiting.pop_front() else {
            return;
        };
        let MakeJob {
            request,
            cost,
            outbox,
            place,
            ..
        } = job;
        match guard_job(&self.name, || self.pipeline.begin(request)).flatten() {
            Ok(making) => self.running.push_back(RunningJob {
                making,
                memory_bytes: cost.memory_bytes,
                outbox,
                place: Some(place),
            }),
            Err(failure) => outbox.finish(Err(failure)),
        }
    }

    fn run_next(&mut self) {
        let next = self
            .next_turn()
            .and_then(|index| self.running.remove(index));
        if let Some(job) = next {
            self.run_block(job);
        }
    }

    fn run_block(&mut self, mut job: RunningJob) {
        job.place = None;
        let began = Instant::now();
        let advance = guard_job(&self.name, || job.making.advance()).flatten();
        let delivered = match advance {
            Ok(Advance::Busy) => Ok(false),
            Ok(Advance::Step { at, of, preview }) => {
                job.outbox.step(at, of, preview);
                Ok(false)
            }
            Ok(Advance::Made(output)) => {
                let made = job.outbox.made(output).map(|()| false);
                made.map_err(|TooSlow| Failure::SlowReader {
                    unread: UNREAD_OUTPUTS,
                })
            }
            Ok(Advance::Done) => Ok(true),
            Err(failure) => Err(failure),
        };
        let ended = match delivered {
            Ok(false) => {
                self.record(began.elapsed());
                self.running.push_back(job);
                return;
            }
            Ok(true) => Ok(()),
            Err(failure) => Err(failure),
        };
        job.outbox.finish(ended);
        // Dropping the state after a panic may panic again.
        let _ = guard_job(&self.name, || drop(job.making));
    }

    fn record(&mut self, block: Duration) {
        self.block_time = Some(match self.block_time {
            Some(mean) => (mean * (RECENT_BLOCKS - 1) + block) / RECENT_BLOCKS,
            None => block,
        });
    }

    /// Ends every job and drops the pipeline.
    pub fn close(self, failure: &Failure) {
        let Self {
            name,
            pipeline,
            running,
            waiting,
            ..
        } = self;
        for job in waiting {
            job.outbox.finish(Err(failure.clone()));
        }
        let mut makings = Vec::with_capacity(running.len());
        for job in running {
            job.outbox.finish(Err(failure.clone()));
            makings.push(job.making);
        }
        let dropped = guard(|| drop((makings, pipeline)));
        if let Err(PipelinePanic(message)) = dropped {
            error!(model.name = %name, "dropping the pipeline of {name} panicked: {message}");
        }
    }
}

pub fn crashed(model: &str) -> Failure {
    Failure::Crashed {
        model: model.to_owned(),
    }
}

/// Calls code of a job of a model. A panic is a failure of the job.
fn guard_job<T>(model: &str, work: impl FnOnce() -> T) -> Result<T, Failure> {
    guard(work).map_err(|PipelinePanic(message)| {
        error!(model.name = %model, "a job of {model} panicked: {message}");
        crashed(model)
    })
}

/// Calls code of a pipeline. A panic does not leave it.
pub fn guard<T>(work: impl FnOnce() -> T) -> Result<T, PipelinePanic> {
    let caught = catch_unwind(AssertUnwindSafe(work));
    caught.map_err(|panic| PipelinePanic(message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
