//! How a request is doing, for those who ask again and again.

use crate::coordinator::requests::{Counts, Request};
use crate::coordinator::storage::Store;
use crate::coordinator::switchboard::Switchboard;
use crate::protocol::legacy::requests::RequestStatusCheck;

pub async fn of(request: &Request, board: &Switchboard, store: &Store) -> RequestStatusCheck {
    let counts = request.counts();
    let outlook = match request.next() {
        Some(job) => board.outlook(job).await.ok().flatten(),
        None => None,
    };
    let outlook = outlook.unwrap_or_default();
    let whole = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    RequestStatusCheck {
        finished: whole(counts.finished),
        processing: whole(counts.processing),
        restarted: whole(counts.restarted + counts.failed),
        waiting: whole(if request.is_cancelled() {
            0
        } else {
            counts.waiting
        }),
        done: is_done(counts, request),
        faulted: is_faulted(counts),
        wait_time: outlook.wait.as_secs(),
        queue_position: match counts.waiting {
            0 => 0,
            _ => outlook.ahead as u64 + 1,
        },
        kudos: kudos(request, counts, store).await,
        is_possible: counts.processing > 0 || outlook.is_possible,
    }
}

/// Nothing more will come.
fn is_done(counts: Counts, request: &Request) -> bool {
    counts.unfinished() == 0 || request.is_cancelled() && counts.processing == 0
}

fn is_faulted(counts: Counts) -> bool {
    counts.failed > 0 && counts.unfinished() == 0
}

/// Whole kudos, as this API counts. While the store does not answer, what was known last.
async fn kudos(request: &Request, counts: Counts, store: &Store) -> f64 {
    let ended = counts.finished + counts.failed + counts.stopped;
    let charged = request.charged(ended, store).await;
    (charged.0 as f64 / 1000.0).round()
}
