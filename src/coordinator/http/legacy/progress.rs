//! The progress of a request, for polling clients.

use std::time::Duration;

use crate::dispatch::Outlook;
use crate::requests::{Counts, Output, Request};
use crate::storage::Store;
use crate::switchboard::Switchboard;
use muster_protocol::job::Progress;
use muster_protocol::legacy::requests::RequestStatusCheck;

pub async fn of(request: &Request, board: &Switchboard, store: &Store) -> RequestStatusCheck {
    let counts = request.counts();
    let outlook = look_ahead(request, board).await;
    let is_possible = may_be_served(request, outlook);
    let outlook = outlook.unwrap_or_default();
    let wait = outlook.wait.max(wait_for_last(request, board).await);
    let (percent, steps) = heard(request);
    let whole = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    RequestStatusCheck {
        finished: whole(counts.finished),
        processing: whole(counts.processing),
        restarted: whole(counts.restarted + counts.failed),
        waiting: whole(if request.is_cancelled() || request.has_failed() {
            0
        } else {
            counts.waiting
        }),
        done: is_done(counts, request),
        faulted: request.has_failed(),
        wait_time: wait.as_secs(),
        queue_position: match counts.waiting {
            0 => 0,
            _ => outlook.requests_ahead as u64 + 1,
        },
        kudos: kudos(request, counts, store).await,
        is_possible,
        progress_percent: percent,
        current_step: steps.map(|(step, _)| step),
        total_steps: steps.map(|(_, steps)| steps),
    }
}

/// Whether an online worker can serve the request, as far as dispatch knows.
pub async fn is_possible(request: &Request, board: &Switchboard) -> bool {
    may_be_served(request, look_ahead(request, board).await)
}

/// `None` if no job is open.
async fn look_ahead(request: &Request, board: &Switchboard) -> Option<Outlook> {
    board.outlook(request.next()?).await.ok().flatten()
}

/// The wait of the request's last job, which queues behind the others.
async fn wait_for_last(request: &Request, board: &Switchboard) -> Duration {
    let Some(last) = request.last() else {
        return Duration::ZERO;
    };
    let outlook = board.outlook(last).await.ok().flatten();
    outlook.unwrap_or_default().wait
}

/// True for a finished request as well: public clients read `is_possible` before `done`.
fn may_be_served(request: &Request, outlook: Option<Outlook>) -> bool {
    outlook.is_none_or(|outlook| outlook.is_possible)
        || request.counts().processing > 0
        || request.awaits_workers()
}

/// Progress reports of the running jobs: the percentage over the whole request, and the steps of the first job. `None`
/// without reports.
fn heard(request: &Request) -> (Option<u8>, Option<(u32, u32)>) {
    let told: Vec<Progress> = request
        .outputs
        .iter()
        .filter_map(Output::progress)
        .collect();
    let Some(first) = told.first() else {
        return (None, None);
    };
    let running: usize = told.iter().map(|one| usize::from(one.percent)).sum();
    let made = request.counts().finished * 100;
    let percent = (running + made) / request.outputs.len().max(1);
    (u8::try_from(percent).ok(), first.steps)
}

/// Whether no more output will come.
pub fn is_done(counts: Counts, request: &Request) -> bool {
    counts.unfinished() == 0
        || request.has_failed()
        || request.is_cancelled() && counts.processing == 0
}

/// Charged kudos, in whole kudos. While the database is down, the last known price counts.
async fn kudos(request: &Request, counts: Counts, store: &Store) -> f64 {
    let ended = counts.finished + counts.failed + counts.stopped;
    let charged = request.charged(ended, store).await;
    (charged.0 as f64 / 1000.0).round()
}
