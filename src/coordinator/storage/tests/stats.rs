//! Statistics count each job once, whatever is folded or deleted.

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
    times_and_failures_are_summed_by_model,
    the_latest_delivered_jobs_are_listed,
}

const SECOND: i64 = 1000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// A job that ended this long ago.
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
            reward: 1000,
            delivered: 1,
            ..Made::default()
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
        entries: Vec::new(),
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
        ..Made::default()
    };
    assert_eq!(counts, [(Kind::Image, expected)]);
}

async fn totals_outlast_the_records_of_jobs(scratch: Scratch) {
    let store = scratch.open().await;
    settle(&store, everything()).await;
    while store.forget_before(NOW).await.unwrap() > 0 {}
    assert_eq!(windows(&store, Kind::Text, "a").await, [1, 2, 3, 5, 7]);
}

async fn times_and_failures_are_summed_by_model(scratch: Scratch) {
    let store = scratch.open().await;
    let timed = |first, total| {
        let mut settlement = ended(SECOND, Kind::Text, "a");
        settlement.timing.first_output = Some(Duration::from_millis(first));
        settlement.timing.total = Duration::from_millis(total);
        settlement
    };
    let failed = |reason| Settlement {
        state: State::Failed,
        reason,
        paid_tokens: 0,
        entries: Vec::new(),
        ..ended(SECOND, Kind::Text, "a")
    };
    let all = vec![
        timed(100, 1000),
        timed(300, 3000),
        failed("worker_failed"),
        failed("slow_client"),
    ];
    settle(&store, all).await;
    for _ in 0..2 {
        let made = store.made_since(UnixMillis(0)).await.unwrap();
        let its = made.iter().find(|by| by.model == "a").unwrap().made;
        assert_eq!((its.outputs, its.delivered, its.failed), (2, 2, 1));
        assert_eq!(
            (its.firsts, its.first_millis, its.total_millis),
            (2, 400, 4000)
        );
        assert_eq!(its.reward, 2000);
        store.fold_stats(NOW).await.unwrap();
    }
}

async fn the_latest_delivered_jobs_are_listed(scratch: Scratch) {
    let store = scratch.open().await;
    let [old, new] = [HOUR, SECOND].map(|ago| ended(ago, Kind::Text, "a"));
    let failed = Settlement {
        state: State::Failed,
        ..ended(0, Kind::Text, "a")
    };
    let ids = [new.job, old.job];
    settle(&store, vec![old, new, failed]).await;
    let recent = store.recent_jobs(10).await.unwrap();
    let found: Vec<_> = recent.iter().map(|recent| recent.job.as_str()).collect();
    assert_eq!(found, ids.map(|id| id.to_string()));
    assert_eq!((recent[0].reward, recent[0].units), (Kudos(1000), 10));
    assert_eq!(recent[0].worker, None, "the worker has no row");
    assert_eq!(store.recent_jobs(1).await.unwrap().len(), 1);
}
