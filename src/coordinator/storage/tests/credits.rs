//! Holds of credits never exceed the credits, are released once, and become the cost of the job.

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::{Scratch, settlement};
use crate::billing::MicroUsd;
use crate::kudos::Settlement;
use crate::storage::{
    AccountCredits, CreditGrant, CreditHold, CreditKind, CreditOutcome, CreditRelease,
    RequestCount, Store,
};
use muster_protocol::job::{AccountId, JobId, UnixMillis};

on_both_engines! {
    no_more_credits_are_held_than_there_are,
    a_settled_job_costs_what_it_used_and_gives_back_the_rest,
    promotional_credits_are_spent_first_and_paid_ones_last,
    free_credits_begin_anew_every_day,
    requests_are_counted_by_the_day_until_credits_are_paid,
    holds_of_a_crashed_process_are_released,
}

const ALICE: AccountId = AccountId(1);
const NOON: UnixMillis = UnixMillis(1_700_000_000_000);
const TOMORROW: UnixMillis = UnixMillis(1_700_000_000_000 + 86_400_000);

fn hold(job: JobId, micro: i64) -> CreditHold {
    CreditHold {
        account: ALICE,
        jobs: vec![(job, MicroUsd(micro))],
        allowance: MicroUsd(0),
        count: RequestCount::Uncounted,
        now: NOON,
    }
}

async fn add(store: &Store, micro: i64, kind: CreditKind) {
    let grant = CreditGrant {
        account: ALICE,
        amount: MicroUsd(micro),
        kind,
        now: NOON,
    };
    store.add_credits(grant).await.unwrap();
}

/// Paid and promotional credits, and the sum of the holds.
async fn has(store: &Store) -> (i64, i64, i64) {
    let AccountCredits { row, held } = store.credits(ALICE, NOON).await.unwrap();
    (row.paid.0, row.promotional.0, held.0)
}

fn costing(job: JobId, micro: i64) -> Settlement {
    Settlement {
        cost: Some(MicroUsd(micro)),
        ..settlement(job, 1)
    }
}

fn release(job: JobId, was_counted: bool) -> CreditRelease {
    CreditRelease {
        account: ALICE,
        jobs: vec![job],
        was_counted,
        now: NOON,
    }
}

async fn no_more_credits_are_held_than_there_are(scratch: Scratch) {
    let store = scratch.open().await;
    add(&store, 100, CreditKind::Paid).await;
    let jobs: Vec<JobId> = std::iter::repeat_with(JobId::random).take(50).collect();
    let held = jobs.iter().map(|job| store.hold_credits(hold(*job, 7)));
    let held = join_all(held).await;
    let done = held.iter().filter(|it| **it == Ok(CreditOutcome::Held));
    assert_eq!(done.count(), 14);
    let missing = CreditOutcome::Missing(MicroUsd(5));
    assert!(held.contains(&Ok(missing)), "{held:?}");
    assert_eq!(has(&store).await, (2, 0, 98));
    // Released twice, and some that were never held.
    for job in jobs.iter().chain(&jobs) {
        store.release_credits(release(*job, false)).await.unwrap();
    }
    assert_eq!(has(&store).await, (100, 0, 0));
}

async fn a_settled_job_costs_what_it_used_and_gives_back_the_rest(scratch: Scratch) {
    let store = scratch.open().await;
    add(&store, 100, CreditKind::Paid).await;
    let (job, failed, free) = (JobId::random(), JobId::random(), JobId::random());
    for held in [job, failed] {
        let outcome = store.hold_credits(hold(held, 40)).await;
        assert_eq!(outcome, Ok(CreditOutcome::Held));
    }
    assert_eq!(has(&store).await, (20, 0, 80));
    // Concurrently, and each twice, since settlements are idempotent.
    let all = [costing(job, 15), costing(failed, 0), settlement(free, 1)];
    let settled = all.iter().chain(&all).map(|it| store.settle(it.clone()));
    assert!(join_all(settled).await.iter().all(Result::is_ok));
    assert_eq!(has(&store).await, (85, 0, 0));
    let jobs = store.jobs_of(ALICE, None, 10).await.unwrap();
    let cost = |id: JobId| {
        let mut jobs = jobs.iter();
        jobs.find(|job| job.job == id.to_string()).unwrap().cost
    };
    assert_eq!(cost(job), Some(MicroUsd(15)));
    assert_eq!(cost(failed), Some(MicroUsd(0)));
    assert_eq!(cost(free), None);
    // A hold released before the settlement is not charged.
    let late = JobId::random();
    store.hold_credits(hold(late, 10)).await.unwrap();
    store.release_credits(release(late, false)).await.unwrap();
    store.settle(costing(late, 10)).await.unwrap();
    assert_eq!(has(&store).await, (85, 0, 0));
}

async fn promotional_credits_are_spent_first_and_paid_ones_last(scratch: Scratch) {
    let store = scratch.open().await;
    add(&store, 10, CreditKind::Promotional).await;
    add(&store, 100, CreditKind::Paid).await;
    let job = JobId::random();
    let with_free = CreditHold {
        allowance: MicroUsd(20),
        ..hold(job, 50)
    };
    let held = store.hold_credits(with_free.clone()).await;
    assert_eq!(held, Ok(CreditOutcome::Held));
    assert_eq!(has(&store).await, (80, 0, 50));
    store.settle(costing(job, 25)).await.unwrap();
    // Ten promotional and fifteen free credits.
    assert_eq!(has(&store).await, (100, 0, 0));
    let row = store.credits(ALICE, NOON).await.unwrap().row;
    assert_eq!(row.free_used, MicroUsd(15));
}

async fn free_credits_begin_anew_every_day(scratch: Scratch) {
    let store = scratch.open().await;
    let of_day = |job, now| CreditHold {
        allowance: MicroUsd(20),
        now,
        ..hold(job, 15)
    };
    let (yesterdays, todays) = (JobId::random(), JobId::random());
    let held = store.hold_credits(of_day(yesterdays, NOON)).await;
    assert_eq!(held, Ok(CreditOutcome::Held));
    let more = store.hold_credits(of_day(JobId::random(), NOON)).await;
    assert_eq!(more, Ok(CreditOutcome::Missing(MicroUsd(10))));
    let held = store.hold_credits(of_day(todays, TOMORROW)).await;
    assert_eq!(held, Ok(CreditOutcome::Held));
    // The unused part of yesterday's allowance has expired.
    store.settle(costing(yesterdays, 0)).await.unwrap();
    let row = store.credits(ALICE, TOMORROW).await.unwrap().row;
    assert_eq!(row.free_used, MicroUsd(15));
}

async fn requests_are_counted_by_the_day_until_credits_are_paid(scratch: Scratch) {
    let store = scratch.open().await;
    let request = |now| CreditHold {
        jobs: Vec::new(),
        count: RequestCount::UpTo(2),
        now,
        ..hold(JobId::random(), 0)
    };
    let ask = async |now| store.hold_credits(request(now)).await.unwrap();
    assert_eq!(ask(NOON).await, CreditOutcome::Held);
    assert_eq!(ask(NOON).await, CreditOutcome::Held);
    assert_eq!(ask(NOON).await, CreditOutcome::NoRequests);
    store
        .release_credits(release(JobId::random(), true))
        .await
        .unwrap();
    assert_eq!(ask(NOON).await, CreditOutcome::Held);
    assert_eq!(ask(NOON).await, CreditOutcome::NoRequests);
    assert_eq!(ask(TOMORROW).await, CreditOutcome::Held);
    add(&store, 1, CreditKind::Paid).await;
    for _ in 0..5 {
        assert_eq!(ask(NOON).await, CreditOutcome::Held);
    }
}

async fn holds_of_a_crashed_process_are_released(scratch: Scratch) {
    let store = scratch.open().await;
    add(&store, 100, CreditKind::Paid).await;
    for _ in 0..3 {
        store.hold_credits(hold(JobId::random(), 10)).await.unwrap();
    }
    assert_eq!(store.release_credits_before(NOON, Vec::new()).await, Ok(0));
    assert_eq!(
        store.release_credits_before(TOMORROW, Vec::new()).await,
        Ok(3)
    );
    assert_eq!(has(&store).await, (100, 0, 0));
}
