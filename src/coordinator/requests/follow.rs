//! The task that follows a request's jobs until all have ended. At shutdown they stay stored, and another process
//! resumes them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::select;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::output::{Ended, Made, Output};
use super::request::Request;
use crate::clock::wall_clock;
use crate::dispatch::{Outcome, Submission};
use crate::switchboard::{Delivery, JobStream, Stage, Switchboard};
use muster_protocol::job::{FailureKind, Hidden, Job, JobId, Limits, Targets};

/// Pause before jobs are queued again that were dropped without an end, because the database could not store it.
const PAUSE: Duration = Duration::from_secs(5);

/// A task that follows a request's jobs, with its services.
pub struct Follower<E> {
    pub request: Arc<Request>,
    pub switchboard: Switchboard,
    pub stopping: CancellationToken,
    /// Which jobs were cancelled.
    pub told: Told,
    /// Called when a job has ended.
    pub ended: E,
}

/// Which jobs of a request are cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    Nobody,
    /// The waiting jobs.
    Waiting,
    Everybody,
}

impl Told {
    /// The initial state. A request cancelled before its jobs were queued has only jobs leased to workers, which must
    /// not be cancelled. One cancelled later still has to cancel its jobs.
    pub fn of(request: &Request) -> Self {
        match request.is_held() {
            true => Self::Everybody,
            false => Self::Nobody,
        }
    }
}

impl<E: Fn(&Request)> Follower<E> {
    pub async fn follow(mut self, jobs: Vec<Arc<Job>>, mut streams: Vec<JobStream>) {
        loop {
            self.listen(&mut streams).await;
            let request = &self.request;
            if self.stopping.is_cancelled() || request.expires_at() <= wall_clock() {
                break;
            }
            let is_open = |job: &&Arc<Job>| request.output(job.id).is_some_and(Output::is_open);
            let left: Vec<&Arc<Job>> = jobs.iter().filter(is_open).collect();
            if left.is_empty() {
                return;
            }
            let _ = self.stopping.run_until_cancelled(sleep(PAUSE)).await;
            let submission = Submission {
                jobs: left.into_iter().map(|job| again(job, request)).collect(),
                standing: request.standing,
            };
            if self.told > Told::Nobody {
                // Jobs queued again from now on are kept for their workers, even if the client cancels.
                self.told = Told::Everybody;
            }
            let queued = self.switchboard.submit(submission).await;
            streams = queued.unwrap_or_default();
            request.watch(&streams);
        }
        streams.into_iter().for_each(JobStream::leave);
    }

    /// Returns when all streams have ended, or at shutdown.
    async fn listen(&mut self, streams: &mut Vec<JobStream>) {
        let request = &self.request;
        loop {
            select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = request.given_up(), if self.told < Told::Everybody => {
                    self.told = Told::Everybody;
                    streams.iter().for_each(JobStream::cancel);
                }
                () = request.cancelled(), if self.told < Told::Waiting => {
                    self.told = Told::Waiting;
                    let waiting = streams.iter().filter(|stream| request.waits(stream.job()));
                    waiting.for_each(JobStream::cancel);
                }
                next = next(streams) => {
                    let Some((job, delivery)) = next else { return };
                    if let Some(output) = request.output(job) {
                        hear(output, delivery);
                        if matches!(output.ended(), Some(Ended::Made(_))) {
                            request.renew();
                        }
                        if request.has_failed() && self.told < Told::Everybody {
                            // Running jobs may still be delivered to the client.
                            request.end_waiting();
                            self.told = Told::Everybody;
                            streams.iter().for_each(JobStream::cancel);
                        }
                        if output.ended().is_some() {
                            (self.ended)(request);
                        }
                        request.note();
                    }
                }
            }
        }
    }
}

/// The job for another queueing, with the current lifetime of its request.
fn again(job: &Arc<Job>, request: &Request) -> Arc<Job> {
    let job = Job {
        deadline: request.expires_at(),
        ..(**job).clone()
    };
    match request.is_cancelled() {
        true => kept_for_its_worker(&job),
        false => Arc::new(job),
    }
}

/// The job for a cancelled request: no new worker gets it. A worker that already has it may still submit, within its
/// lease.
pub fn kept_for_its_worker(job: &Job) -> Arc<Job> {
    let patience = job
        .limits
        .patience
        .map(|patience| wall_clock().after(patience));
    Arc::new(Job {
        deadline: patience.map_or(job.deadline, |until| until.min(job.deadline)),
        limits: Limits {
            targets: Targets::nobody(),
            ..job.limits
        },
        ..job.clone()
    })
}

/// The next delivery of any job; `None` when all streams have ended.
async fn next(streams: &mut Vec<JobStream>) -> Option<(JobId, Delivery)> {
    poll_fn(|context| poll_next(streams, context)).await
}

fn poll_next(
    streams: &mut Vec<JobStream>,
    context: &mut Context<'_>,
) -> Poll<Option<(JobId, Delivery)>> {
    let mut index = 0;
    while let Some(stream) = streams.get_mut(index) {
        match stream.poll_delivery(context) {
            Poll::Ready(Some(delivery)) => return Poll::Ready(Some((stream.job(), delivery))),
            Poll::Ready(None) => drop(streams.swap_remove(index)),
            Poll::Pending => index += 1,
        }
    }
    match streams.is_empty() {
        true => Poll::Ready(None),
        false => Poll::Pending,
    }
}

fn hear(output: &Output, delivery: Delivery) {
    match delivery {
        Delivery::Event(event) => output.hear(&event),
        Delivery::End { outcome, .. } => output.end(ending(output, outcome)),
    }
}

/// A cancelled job's partial output is delivered all the same.
fn ending(output: &Output, outcome: Outcome) -> Ended {
    match outcome {
        Outcome::Delivered { finish, .. } => Ended::Made(made(output, Hidden::of(&finish))),
        Outcome::Cancelled if output.product().is_of_use_in_part() => {
            Ended::Made(made(output, None))
        }
        Outcome::Cancelled => Ended::Cancelled,
        Outcome::Expired => Ended::Expired,
        Outcome::Failed(failure) if failure.kind == FailureKind::Expired => Ended::Expired,
        Outcome::Failed(failure) => Ended::Failed(failure.code().into()),
    }
}

fn made(output: &Output, hidden: Option<Hidden>) -> Made {
    let (model, worker, worker_id) = match output.stage() {
        Stage::Running {
            worker,
            public_id,
            model,
        } => (model, worker, public_id),
        Stage::Waiting => Default::default(),
    };
    Made {
        product: output.product(),
        model,
        worker,
        worker_id,
        hidden,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Told, again};
    use crate::clock::wall_clock;
    use crate::requests::request::tests::asked;
    use crate::storage::Wanted;
    use muster_protocol::job::{Targets, WorkerId};

    #[test]
    fn a_job_that_is_queued_once_more_lives_as_long_as_its_request_does_by_now() {
        let (request, jobs) = asked(wall_clock());
        request.renew();
        let job = again(&jobs[0], &request);
        assert_eq!((job.id, job.deadline), (jobs[0].id, request.expires_at()));
        assert!(job.deadline > wall_clock().after(Duration::from_secs(60)));
        assert!(job.limits.targets.is_everybody());
    }

    #[test]
    fn what_is_cancelled_before_it_is_followed_has_jobs_to_be_told() {
        let request = || asked(wall_clock()).0;
        let (ended, given_up) = (request(), request());
        ended.end_waiting();
        given_up.cancel();
        let again = request().restored(Wanted::Everything);
        for request in [request(), ended, given_up, again] {
            assert_eq!(Told::of(&request), Told::Nobody);
        }
        for wanted in [Wanted::Begun, Wanted::Nothing] {
            assert_eq!(Told::of(&request().restored(wanted)), Told::Everybody);
        }
    }

    #[test]
    fn of_a_cancelled_request_it_is_kept_for_the_worker_that_has_it() {
        let (request, jobs) = asked(wall_clock());
        request.renew();
        request.cancel();
        let job = again(&jobs[0], &request);
        assert_eq!(job.limits.targets, Targets::nobody());
        assert!(!job.limits.targets.allows(WorkerId(1)));
        let patience = job.limits.patience.unwrap();
        assert!(job.deadline <= wall_clock().after(patience));
    }
}
