//! A loaded pipeline, the job that runs on it and those that wait for it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tracing::error;

use super::shared::crashed;
use super::stream::{MakeOutbox, UNREAD_OUTPUTS};
use super::{Advance, MakeRequest, Making, Pipeline, PipelineStatus};
use crate::runtime::Failure;
use crate::runtime::outbox::TooSlow;
use crate::runtime::work::Queue;

/// Of how many blocks a block's time is the recent mean.
const RECENT_BLOCKS: u32 = 8;

/// A request that passed the check, on its way to the thread.
pub struct MakeJob {
    pub model: String,
    pub request: MakeRequest,
    pub outbox: MakeOutbox,
    /// One place in the queue, free again once the job runs.
    pub place: OwnedSemaphorePermit,
}

/// One job at a time: a second would need its memory too.
pub struct ResidentPipeline {
    pub name: String,
    pipeline: Arc<dyn Pipeline>,
    running: Option<RunningJob>,
    waiting: VecDeque<MakeJob>,
    served: Duration,
    block_time: Option<Duration>,
}

struct RunningJob {
    making: Box<dyn Making>,
    outbox: MakeOutbox,
    /// Held up to the first block, by when the status counts the job as running.
    place: Option<OwnedSemaphorePermit>,
}

/// A pipeline panicked, with this message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelinePanic(pub String);

impl ResidentPipeline {
    pub fn new(name: String, pipeline: Arc<dyn Pipeline>) -> Self {
        Self {
            name,
            pipeline,
            running: None,
            waiting: VecDeque::new(),
            served: Duration::ZERO,
            block_time: None,
        }
    }

    pub fn queue(&self) -> Queue {
        Queue {
            has_work: match &self.running {
                Some(job) => !job.outbox.is_full(),
                None => !self.waiting.is_empty(),
            },
            served: self.served,
        }
    }

    pub fn status(&self) -> PipelineStatus {
        PipelineStatus {
            name: self.name.clone(),
            running: usize::from(self.running.is_some()),
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
    pub fn retire_abandoned(&mut self) -> Result<(), PipelinePanic> {
        self.waiting.retain(|job| !job.outbox.is_abandoned());
        let is_abandoned = |job: &mut RunningJob| job.outbox.is_abandoned();
        let abandoned = self.running.take_if(is_abandoned);
        guard(|| drop(abandoned))
    }

    /// One block of the running job, or the beginning of the next.
    pub fn advance(&mut self) -> Result<(), PipelinePanic> {
        let began = Instant::now();
        let outcome = match self.running.take() {
            Some(job) => self.run_block(job),
            None => self.begin_next(),
        };
        self.served += began.elapsed();
        outcome
    }

    fn begin_next(&mut self) -> Result<(), PipelinePanic> {
        let Some(job) = self.waiting.pop_front() else {
            return Ok(());
        };
        let MakeJob {
            request,
            outbox,
            place,
            ..
        } = job;
        match guard(|| self.pipeline.begin(request)) {
            Ok(Ok(making)) => {
                let place = Some(place);
                self.running = Some(RunningJob {
                    making,
                    outbox,
                    place,
                });
            }
            Ok(Err(failure)) => outbox.finish(Err(failure)),
            Err(panic) => {
                outbox.finish(Err(crashed(&self.name)));
                return Err(panic);
            }
        }
        Ok(())
    }

    fn run_block(&mut self, job: RunningJob) -> Result<(), PipelinePanic> {
        let RunningJob {
            mut making,
            outbox,
            place,
        } = job;
        drop(place);
        let began = Instant::now();
        let advance = match guard(|| making.advance()) {
            Ok(advance) => advance,
            Err(panic) => {
                outbox.finish(Err(crashed(&self.name)));
                // The state behind a panic may panic again.
                let _ = guard(|| drop(making));
                return Err(panic);
            }
        };
        let delivered = match advance {
            Ok(Advance::Busy) => Ok(false),
            Ok(Advance::Step { at, of, preview }) => {
                outbox.step(at, of, preview);
                Ok(false)
            }
            Ok(Advance::Made(output)) => {
                let made = outbox.made(output).map(|()| false);
                made.map_err(|TooSlow| Failure::SlowReader {
                    unread: UNREAD_OUTPUTS,
                })
            }
            Ok(Advance::Done) => Ok(true),
            Err(failure) => Err(failure),
        };
        match delivered {
            Ok(false) => {
                self.record(began.elapsed());
                self.running = Some(RunningJob {
                    making,
                    outbox,
                    place: None,
                });
                Ok(())
            }
            Ok(true) => {
                outbox.finish(Ok(()));
                guard(|| drop(making))
            }
            Err(failure) => {
                outbox.finish(Err(failure));
                guard(|| drop(making))
            }
        }
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
        let (making, outbox) = running.map(|job| (job.making, job.outbox)).unzip();
        if let Some(outbox) = outbox {
            outbox.finish(Err(failure.clone()));
        }
        let dropped = guard(|| drop((making, pipeline)));
        if let Err(PipelinePanic(message)) = dropped {
            error!(model.name = %name, "dropping the pipeline of {name} panicked: {message}");
        }
    }
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
