//! Old records are deleted, and their sums stay.

use std::time::Duration;

use futures_util::future::join_all;
use muster_testing::eventually;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::kudos::{HOUSE, Settlement};
use crate::storage::{Dues, RequestRow, Store, Wanted};
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, RequestId, UnixMillis, WorkerId};

on_both_engines! {
    old_jobs_and_their_entries_go_and_no_balance_changes,
    much_goes_in_steps,
    two_processes_forget_each_job_once,
    a_job_of_a_clock_that_was_ahead_stays_until_its_time,
    records_go_by_themselves,
    requests_that_live_on_are_kept_and_never_shorter,
    expired_requests_go_in_steps_with_what_they_brought,
    what_jobs_brought_goes_when_their_request_is_nowhere,
}

const DAY: i64 = 86_400_000;
const TODAY: UnixMillis = UnixMillis(1_700_000_000_000);

fn days(days: i64) -> UnixMillis {
    UnixMillis(TODAY.0 + days * DAY)
}

/// Settled on that day, for this price.
fn ended(day: i64, kudos: i64) -> Settlement {
    let mut settlement = settlement(JobId::random(), kudos);
    settlement.timing.accepted_at = days(day);
    settlement
}

async fn settle(store: &Store, settlement: Settlement) -> JobId {
    let job = settlement.job;
    store.settle(settlement).await.unwrap();
    job
}

async fn balances(store: &Store) -> Vec<Kudos> {
    let accounts = [HOUSE, AccountId(1), AccountId(2)];
    let balances = accounts.map(|account| store.balance(account));
    let balances = join_all(balances).await.into_iter();
    balances.collect::<Result<_, _>>().unwrap()
}

async fn forget_all(store: &Store, before: UnixMillis) -> u64 {
    let mut all = 0;
    loop {
        match store.forget_before(before).await.unwrap() {
            0 => return all,
            jobs => all += jobs,
        }
    }
}

async fn old_jobs_and_their_entries_go_and_no_balance_changes(scratch: Scratch) {
    let store = scratch.open().await;
    let old = settle(&store, ended(-3, 5)).await;
    let young = settle(&store, ended(0, 7)).await;
    let before = balances(&store).await;
    assert_eq!(forget_all(&store, days(-1)).await, 1);
    assert_eq!(store.reward(old).await, Ok(None));
    assert!(store.entries(old).await.unwrap().is_empty());
    assert_eq!(store.reward(young).await, Ok(Some(Kudos(7000))));
    assert_eq!(store.entries(young).await.unwrap().len(), 3);
    assert_eq!(balances(&store).await, before);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
    // Entries carried over twice add up.
    settle(&store, ended(-2, 1)).await;
    let before = balances(&store).await;
    assert_eq!(forget_all(&store, days(1)).await, 2);
    assert_eq!(balances(&store).await, before);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn much_goes_in_steps(scratch: Scratch) {
    let store = scratch.open().await;
    let jobs = (0..1200).map(|minute| {
        let mut job = ended(-9, 2);
        job.timing.accepted_at.0 += minute * 60_000;
        store.settle(job)
    });
    for settled in join_all(jobs).await {
        settled.unwrap();
    }
    let before = balances(&store).await;
    let first = store.forget_before(days(-1)).await.unwrap();
    assert_eq!(first, 500);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
    assert_eq!(forget_all(&store, days(-1)).await, 700);
    assert_eq!(balances(&store).await, before);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn two_processes_forget_each_job_once(scratch: Scratch) {
    let (one, other) = (scratch.open().await, scratch.open().await);
    let jobs = (0..300).map(|_| one.settle(ended(-9, 2)));
    for settled in join_all(jobs).await {
        settled.unwrap();
    }
    let before = balances(&one).await;
    let settling = (0..300).map(|_| other.settle(ended(0, 1)));
    let (mine, yours, settled) = tokio::join!(
        forget_all(&one, days(-1)),
        forget_all(&other, days(-1)),
        join_all(settling)
    );
    assert!(settled.iter().all(Result::is_ok));
    assert_eq!(mine + yours, 300);
    let after = balances(&one).await;
    assert_eq!(after[2].0 - before[2].0, 300 * 1000);
    assert_eq!(one.ledger_sums().await.unwrap(), SOUND);
}

async fn a_job_of_a_clock_that_was_ahead_stays_until_its_time(scratch: Scratch) {
    let store = scratch.open().await;
    let ahead = settle(&store, ended(400, 1)).await;
    // Then the clock was set back, so later jobs have earlier end times.
    let back = settle(&store, ended(-3, 1)).await;
    assert_eq!(forget_all(&store, days(-1)).await, 1);
    assert_eq!(store.reward(back).await, Ok(None));
    assert_eq!(store.reward(ahead).await, Ok(Some(Kudos(1000))));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
    // With an earlier clock nothing is deleted.
    assert_eq!(forget_all(&store, UnixMillis(i64::MIN)).await, 0);
    assert_eq!(forget_all(&store, days(401)).await, 1);
}

async fn records_go_by_themselves(scratch: Scratch) {
    let store = scratch.open().await;
    let old = settle(&store, ended(0, 5)).await;
    let before = balances(&store).await;
    store.keep_records(Duration::from_secs(86_400), &scratch.tasks);
    eventually("the end of the record", async || {
        store.reward(old).await.unwrap().is_none()
    })
    .await;
    assert_eq!(balances(&store).await, before);
    assert!(scratch.tasks.stop(Duration::from_secs(5)).await);
}

/// Accepts a request that expires tomorrow.
async fn accept(store: &Store, id: RequestId) {
    let row = RequestRow {
        id,
        account: AccountId(1),
        kind: Kind::Image,
        body: "{}".to_owned(),
        accepted_at: TODAY,
        expires_at: days(1),
        wanted: Wanted::Everything,
        fee: Kudos(0),
    };
    store.accept(row, Dues::default()).await.unwrap();
}

/// Settles a job of the request, ended today.
async fn bring(store: &Store, request: RequestId) {
    let brought = Settlement {
        request,
        result: Some("brought".into()),
        ..ended(0, 1)
    };
    store.settle(brought).await.unwrap();
}

async fn expired_requests_go_in_steps_with_what_they_brought(scratch: Scratch) {
    let store = scratch.open().await;
    let all: Vec<RequestId> = (0..700).map(|_| RequestId::random()).collect();
    join_all(all.iter().map(|id| accept(&store, *id))).await;
    join_all(all.iter().map(|id| bring(&store, *id))).await;
    let open = async || {
        let open = store.open_requests(TODAY).await.unwrap();
        assert!(open.iter().all(|one| one.results.len() == 1));
        open.len()
    };
    assert_eq!(store.forget_requests(TODAY).await, Ok(false));
    assert_eq!(open().await, 700);
    assert_eq!(store.forget_requests(days(1)).await, Ok(true));
    assert_eq!(open().await, 200);
    assert_eq!(store.has_results(WorkerId(7)).await, Ok(true));
    assert_eq!(store.forget_requests(days(1)).await, Ok(false));
    assert_eq!(open().await, 0);
    assert_eq!(store.has_results(WorkerId(7)).await, Ok(false));
}

async fn what_jobs_brought_goes_when_their_request_is_nowhere(scratch: Scratch) {
    let store = scratch.open().await;
    let (known, unknown) = (RequestId::random(), RequestId::random());
    accept(&store, known).await;
    bring(&store, known).await;
    bring(&store, unknown).await;
    bring(&store, unknown).await;
    // The request may not be written yet.
    assert_eq!(store.forget_lost_results(TODAY).await, Ok(0));
    assert_eq!(store.forget_lost_results(days(1)).await, Ok(2));
    assert_eq!(store.forget_lost_results(days(1)).await, Ok(0));
    assert_eq!(
        store.open_requests(TODAY).await.unwrap()[0].results.len(),
        1
    );
    // A deleted job gets no further results.
    bring(&store, unknown).await;
    forget_all(&store, days(1)).await;
    assert_eq!(store.forget_lost_results(TODAY).await, Ok(1));
}

async fn requests_that_live_on_are_kept_and_never_shorter(scratch: Scratch) {
    let store = scratch.open().await;
    // One more than fit into one statement.
    let all: Vec<RequestId> = (0..10).map(|_| RequestId::random()).collect();
    for id in &all {
        accept(&store, *id).await;
    }
    let longer = all[1..].to_vec();
    store.keep_requests(longer, days(3)).await.unwrap();
    store.keep_requests(all.clone(), days(2)).await.unwrap();
    store.forget_requests(days(2)).await.unwrap();
    let open = store.open_requests(TODAY).await.unwrap();
    let mut kept: Vec<_> = open
        .iter()
        .map(|one| (one.request.id, one.request.expires_at))
        .collect();
    kept.sort();
    let mut expected: Vec<_> = all[1..].iter().map(|id| (*id, days(3))).collect();
    expected.sort();
    assert_eq!(kept, expected);
}
