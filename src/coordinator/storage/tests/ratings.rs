//! Ratings: a request is rated and paid for once, even with concurrent calls.

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch};
use crate::kudos::{Cause, Posted, Posting};
use crate::storage::{RatingRow, StorageError, Store};
use crate::values::Roles;
use muster_protocol::job::{AccountId, JobId, Kudos, UnixMillis};

on_both_engines! {
    a_request_is_rated_and_paid_for_once,
    another_judgement_of_the_same_request_is_a_conflict,
    an_image_is_rated_once_whatever_the_request,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);

async fn rater(store: &Store) -> AccountId {
    let made = store.create_account("alice", Roles::USER, NOON).await;
    made.unwrap()
}

fn reward(to: AccountId, request: &str, kudos: i64) -> Posting {
    let amount = Kudos(kudos * 1000);
    Posting::from_house(Cause::Rating, to, amount, NOON).once(format!("rating {request}"))
}

fn row(job: JobId, rating: Option<u32>) -> RatingRow {
    RatingRow {
        job,
        rating,
        artifacts: rating.map(|_| 2),
        best: rating.is_none(),
    }
}

async fn a_request_is_rated_and_paid_for_once(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = rater(&store).await;
    let before = store.balance(alice).await.unwrap();
    let rows = vec![row(JobId::random(), Some(8)), row(JobId::random(), None)];
    let rating = (0..20).map(|_| store.rate(reward(alice, "one", 9), rows.clone()));
    let rated = join_all(rating).await;
    let done = rated.iter().filter(|one| **one == Ok(Posted::Done));
    assert_eq!(done.count(), 1, "{rated:?}");
    let again = rated.iter().filter(|one| **one == Ok(Posted::Already));
    assert_eq!(again.count(), 19);
    let after = store.balance(alice).await.unwrap();
    assert_eq!(after.0 - before.0, 9000);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn another_judgement_of_the_same_request_is_a_conflict(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = rater(&store).await;
    let first = store.rate(reward(alice, "one", 9), Vec::new()).await;
    assert_eq!(first, Ok(Posted::Done));
    let other = store.rate(reward(alice, "one", 5), Vec::new()).await;
    assert_eq!(other, Ok(Posted::Conflict));
    let elsewhere = store.rate(reward(alice, "two", 5), Vec::new()).await;
    assert_eq!(elsewhere, Ok(Posted::Done));
}

async fn an_image_is_rated_once_whatever_the_request(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = rater(&store).await;
    let rows = vec![row(JobId::random(), Some(1))];
    let first = store.rate(reward(alice, "one", 5), rows.clone()).await;
    assert_eq!(first, Ok(Posted::Done));
    let before = store.balance(alice).await.unwrap();
    let again = store.rate(reward(alice, "two", 5), rows).await;
    assert!(matches!(again, Err(StorageError::Refused(_))), "{again:?}");
    // A refused rating pays nothing.
    assert_eq!(store.balance(alice).await.unwrap(), before);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}
