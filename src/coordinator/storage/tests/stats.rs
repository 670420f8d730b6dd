//! What was made is counted once, whatever is folded or forgotten.

use std::time::Duration;

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::{Scratch, settlement};
use crate::kudos::{Settlement, State};
use crate::storage::{Made, Store};
use muster_protocol::job::{JobId, Kind, Kudos, UnixMillis};

on_both_engines! {
    what_was_made_is_counted_in_each_window,
    folding_changes_no_count,
    a_job_that_is_settled_twice_counts_once,
    an_image_that_a_worker_had_counts_though_it_came_to_nothing,
    totals_outlast_the_records_of_jobs,
}

const SECOND: i64 = 1000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// Ended so long ago.
fn ended(ago: i64, kind: Kind, model: &str) -> Settlement {
    let mut settlement = settlement(JobId::random(), 1);
    settlement.timing.accepted_at = UnixMillis(NOW.0 - ago);
    settlement.timing.total = Duration::ZERO;
    settlement.kind = kind;
    settlement.model = model.into();
    settlement
}

async fn settle(store: &Store, settlements: Vec<Settlement>) {
    let settled = settlements.into_iter().map(|one| store.settle(one));
    for settled in join_all(settled).await {
        settled.unwrap();
    }
}

async fn outputs(store: &Store, since: i64, kind: Kind, model: &str) -> u64 {
    let made = store.made_since(UnixMillis(NOW.0 - since)).await.unwrap();
    let its = made.iter().find(|by| by.kind == kind && by.model == model);
    its.map_or(0, |by| by.made.outputs)
}

async fn windows(store: &Store, kind: Kind, model: &str) -> Vec<u64> {
    let windows = [60 * SECOND, HOUR, DAY, 30 * DAY, NOW.0];
    join_all(windows.map(|since| outputs(store, since, kind, model))).await
}

fn everything() -> Vec<Settlement> {
    let ago = [
        SECOND,
        90 * SECOND,
        3 * HOUR,
        5 * DAY,
        29 * DAY,
        40 * DAY,
        400 * DAY,
    ];
    let mut all: Vec<_> = ago.map(|ago| ended(ago, Kind::Text, "a")).into();
    all.push(ended(SECOND, Kind::Image, "a"));
    all.push(ended(2 * HOUR, Kind::Text, "b"));
    all
}

async fn what_was_made_is_counted_in_each_window(scratch: Scratch) {
    let store = scratch.open().await;
    settle(&store, everything()).await;
    assert_eq!(windows(&store, Kind::Text, "a").await, [1, 2, 3, 5, 7]);
    assert_eq!(windows(&store, Kind::Image, "a").await, [1; 5]);
    assert_eq!(windows(&store, Kind::Text, "b").await, [0, 0, 1, 1, 1]);
    let made = store.made_since(UnixMillis(0)).await.unwrap();
    let image = made.iter().find(|by| by.kind == Kind::Image).unwrap();
    assert_eq!(
        image.made,
        Made {
            outputs: 1,
            size: 16,
            done: 16,
            busy_millis: 0
        }
    );
}

async fn folding_changes_no_count(scratch: Scratch) {
    let store = scratch.open().await;
    settle(&store, everything()).await;
    let other = scratch.open().await;
    for hours in [0, 0, 1, 3, 26, 26, 26] {
        let later = UnixMillis(NOW.0 + hours * HOUR);
        let (here, there) = tokio::join!(store.fold_stats(later), other.fold_stats(later));
        assert!(!here.unwrap() && !there.unwrap());
        assert_eq!(windows(&store, Kind::Text, "a").await[2..], [3, 5, 7]);
    }
    let ever = UnixMillis(NOW.0 + 500 * DAY);
    for _ in 0..6 {
        store.fold_stats(ever).await.unwrap();
    }
    settle(&store, vec![ended(0, Kind::Text, "a")]).await;
    assert_eq!(outputs(&store, NOW.0, Kind::Text, "a").await, 8);
    assert_eq!(outputs(&store, DAY, Kind::Text, "a").await, 1);
}

async fn a_job_that_is_settled_twice_counts_once(scratch: Scratch) {
    let store = scratch.open().await;
    let once = ended(SECOND, Kind::Text, "a");
    settle(&store, vec![once.clone(), once.clone(), once]).await;
    assert_eq!(outputs(&store, HOUR, Kind::Text, "a").await, 1);
    let nothing = Settlement {
        state: State::Expired,
        worker: None,
        attempts: 0,
        ..ended(SECOND, Kind::Image, "a")
    };
    settle(&store, vec![nothing]).await;
    assert_eq!(outputs(&store, HOUR, Kind::Image, "a").await, 0);
}

async fn an_image_that_a_worker_had_counts_though_it_came_to_nothing(scratch: Scratch) {
    let store = scratch.open().await;
    let ended_as = |state, kind| Settlement {
        state,
        worker: None,
        reward: Kudos(0),
        paid_tokens: 0,
        ..ended(SECOND, kind, "a")
    };
    let all = [State::Failed, State::Cancelled]
        .into_iter()
        .flat_map(|state| [Kind::Image, Kind::Text].map(|kind| ended_as(state, kind)));
    settle(&store, all.collect()).await;
    let made = store.made_since(UnixMillis(0)).await.unwrap();
    let counts: Vec<_> = made.iter().map(|by| (by.kind, by.made)).collect();
    let expected = Made {
        outputs: 2,
        size: 32,
        done: 0,
        busy_millis: 0,
    };
    assert_eq!(counts, [(Kind::Image, expected)]);
}

async fn totals_outlast_the_records_of_jobs(scratch: Scratch) {
    let store = scratch.open().await;
    settle(&store, everything()).await;
    while store.forget_before(NOW).await.unwrap() > 0 {}
    assert_eq!(windows(&store, Kind::Text, "a").await, [1, 2, 3, 5, 7]);
}
