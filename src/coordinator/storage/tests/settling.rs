//! Settlement: once per job, in whatever batches and however often repeated.

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::kudos::HOUSE;
use muster_protocol::job::{AccountId, JobId, Kudos};

on_both_engines! {
    a_job_is_settled_once,
    a_batch_with_settled_jobs_in_it_pays_only_the_new_ones,
    absurd_names_are_stored,
}

const CLIENT: AccountId = AccountId(1);
const OWNER: AccountId = AccountId(2);

async fn a_job_is_settled_once(scratch: Scratch) {
    let store = scratch.open().await;
    let job = JobId::random();
    assert_eq!(store.reward(job).await, Ok(None));
    assert_eq!(store.settle(settlement(job, 5)).await, Ok(Kudos(5000)));
    // Repeated with other amounts: the first settlement counts.
    assert_eq!(store.settle(settlement(job, 9)).await, Ok(Kudos(5000)));
    assert_eq!(store.reward(job).await, Ok(Some(Kudos(5000))));
    assert_eq!(store.entries(job).await.unwrap().len(), 3);
    assert_eq!(store.balance(CLIENT).await, Ok(Kudos(-6000)));
    assert_eq!(store.balance(OWNER).await, Ok(Kudos(5000)));
    assert_eq!(store.balance(HOUSE).await, Ok(Kudos(1000)));
}

async fn a_batch_with_settled_jobs_in_it_pays_only_the_new_ones(scratch: Scratch) {
    let store = scratch.open().await;
    let jobs: Vec<JobId> = std::iter::repeat_with(JobId::random).take(300).collect();
    // Every third job twice, concurrently: the first settlement pays, and both get its reward.
    let twice = jobs.iter().step_by(3);
    let all = jobs
        .iter()
        .chain(twice)
        .map(|job| store.settle(settlement(*job, 2)));
    for reward in join_all(all).await {
        assert_eq!(reward, Ok(Kudos(2000)));
    }
    let again = jobs.iter().map(|job| store.settle(settlement(*job, 3)));
    for reward in join_all(again).await {
        assert_eq!(reward, Ok(Kudos(2000)));
    }
    assert_eq!(store.balance(OWNER).await, Ok(Kudos(300 * 2000)));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn absurd_names_are_stored(scratch: Scratch) {
    let store = scratch.open().await;
    let job = JobId::random();
    let mut odd = settlement(job, 1);
    odd.model = format!("a\0b{}", "x".repeat(100_000)).into();
    odd.charge = Kudos(i64::MAX);
    assert_eq!(store.settle(odd).await, Ok(Kudos(1000)));
}
