//! The task that listens to the jobs of one request until all have ended. Should the process end first, they are on
//! disk, and another process goes on with them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::select;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::request::{Ended, Made, Output, Request};
use crate::coordinator::clock::wall_clock;
use crate::coordinator::dispatch::{Outcome, Submission};
use crate::coordinator::switchboard::{Delivery, JobStream, Stage, Switchboard};
use crate::protocol::job::{FailureKind, Hidden, Job, JobId};

/// Jobs that were let go without an end (the store could not write it down) are queued again after this.
const PAUSE: Duration = Duration::from_secs(5);

pub async fn follow(
    request: Arc<Request>,
    jobs: Vec<Arc<Job>>,
    mut streams: Vec<JobStream>,
    switchboard: Switchboard,
    stopping: CancellationToken,
) {
    loop {
        listen(&request, &mut streams, &stopping).await;
        if stopping.is_cancelled() || request.expires_at() <= wall_clock() {
            break;
        }
        let is_open = |job: &&Arc<Job>| request.output(job.id).is_some_and(Output::is_open);
        let left: Vec<Arc<Job>> = jobs.iter().filter(is_open).cloned().collect();
        if left.is_empty() {
            return;
        }
        let _ = stopping.run_until_cancelled(sleep(PAUSE)).await;
        let submission = Submission {
            jobs: left,
            standing: request.standing,
        };
        streams = switchboard.submit(submission).await.unwrap_or_default();
        request.watch(&streams);
    }
    streams.into_iter().for_each(JobStream::leave);
}

/// Returns when no stream is left, or the process ends.
async fn listen(request: &Request, streams: &mut Vec<JobStream>, stopping: &CancellationToken) {
    let mut told = false;
    loop {
        select! {
            biased;
            () = stopping.cancelled() => return,
            () = request.cancelled(), if !told => {
                told = true;
                let given_up = streams.iter().filter(|stream| request.gives_up(stream.job()));
                given_up.for_each(JobStream::cancel);
            }
            next = next(streams) => {
                let Some((job, delivery)) = next else { return };
                if let Some(output) = request.output(job) {
                    hear(output, delivery);
                    if matches!(output.ended(), Some(Ended::Made(_))) {
                        request.renew();
                    }
                    request.note();
                }
            }
        }
    }
}

/// What comes next, of whichever job; nothing when all streams have ended.
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

/// What a cancelled job had brought before is handed out all the same.
fn ending(output: &Output, outcome: Outcome) -> Ended {
    match outcome {
        Outcome::Delivered { finish, .. } => Ended::Made(made(output, Hidden::of(&finish))),
        Outcome::Cancelled if !output.product().is_empty() => Ended::Made(made(output, None)),
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
