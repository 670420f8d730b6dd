//! Postings: all or nothing, never below a floor, and not repeated with the same `once`.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::kudos::{Cause, HOUSE, MOST_CREATED, Posted, Posting};
use crate::storage::{StorageError, Store};
use crate::values::Roles;
use muster_protocol::job::{AccountId, JobId, Kudos, UnixMillis};

on_both_engines! {
    a_posting_moves_kudos_and_says_why,
    a_posting_that_would_go_below_a_floor_changes_nothing,
    of_postings_with_the_same_key_one_happens,
    a_posting_that_does_not_balance_is_refused_and_its_neighbours_are_not,
    old_postings_are_folded_into_opening_balances,
    a_thousand_parallel_spends_never_overspend,
    any_sequence_of_postings_sums_to_zero_and_keeps_the_floors,
}

const ALICE: AccountId = AccountId(5);
const BOB: AccountId = AccountId(6);
const NOON: UnixMillis = UnixMillis(1_700_000_000_000);

fn gift(kudos: i64) -> Posting {
    Posting::between(Cause::Transfer, (ALICE, BOB), Kudos(kudos * 1000), NOON).above_floor(ALICE)
}

async fn grant(store: &Store, to: AccountId, kudos: i64) {
    let grant = Posting::from_house(Cause::Award, to, Kudos(kudos * 1000), NOON);
    assert_eq!(store.post(grant).await, Ok(Posted::Done));
}

async fn kudos(store: &Store, account: AccountId) -> i64 {
    store.balance(account).await.unwrap().0 / 1000
}

async fn a_posting_moves_kudos_and_says_why(scratch: Scratch) {
    let store = scratch.open().await;
    grant(&store, ALICE, 50).await;
    assert_eq!(store.post(gift(20)).await, Ok(Posted::Done));
    assert_eq!(kudos(&store, ALICE).await, 30);
    assert_eq!(kudos(&store, BOB).await, 20);
    assert_eq!(kudos(&store, HOUSE).await, -50);
    let why = HashMap::from([
        ("award".to_owned(), Kudos(50_000)),
        ("gifted".to_owned(), Kudos(-20_000)),
    ]);
    assert_eq!(store.tallies(ALICE).await, Ok(why));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn a_posting_that_would_go_below_a_floor_changes_nothing(scratch: Scratch) {
    let store = scratch.open().await;
    grant(&store, ALICE, 50).await;
    assert_eq!(store.post(gift(51)).await, Ok(Posted::NotEnough));
    // Accounts of users have a positive floor.
    let carol = store
        .create_account("carol", Roles::USER, NOON)
        .await
        .unwrap();
    grant(&store, carol, 50).await;
    let from_carol = |kudos| {
        Posting::between(Cause::Transfer, (carol, BOB), Kudos(kudos), NOON).above_floor(carol)
    };
    assert_eq!(store.post(from_carol(50_001)).await, Ok(Posted::NotEnough));
    assert_eq!(store.post(from_carol(50_000)).await, Ok(Posted::Done));
    let given = Posting::between(Cause::Correction, (BOB, HOUSE), Kudos(50_000), NOON);
    assert_eq!(store.post(given).await, Ok(Posted::Done));
    // A later account in the lock order counts as well.
    let back = Posting::between(Cause::Transfer, (BOB, ALICE), Kudos(1), NOON);
    assert_eq!(
        store.post(back.above_floor(BOB)).await,
        Ok(Posted::NotEnough)
    );
    assert_eq!(kudos(&store, ALICE).await, 50);
    assert_eq!(store.post(gift(50)).await, Ok(Posted::Done));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn of_postings_with_the_same_key_one_happens(scratch: Scratch) {
    let store = scratch.open().await;
    grant(&store, ALICE, 50).await;
    let same = (0..20).map(|_| store.post(gift(3).once("key")));
    let done = join_all(same).await;
    let first = done.iter().filter(|posted| **posted == Ok(Posted::Done));
    assert_eq!(first.count(), 1);
    let again = done.iter().filter(|posted| **posted == Ok(Posted::Already));
    assert_eq!(again.count(), 19);
    assert_eq!(store.post(gift(4).once("key")).await, Ok(Posted::Conflict));
    assert_eq!(
        store.post(gift(3).about("else").once("key")).await,
        Ok(Posted::Conflict)
    );
    assert_eq!(kudos(&store, BOB).await, 3);
    // A refused posting does not use up its key.
    assert_eq!(
        store.post(gift(90).once("other")).await,
        Ok(Posted::NotEnough)
    );
    assert_eq!(store.post(gift(9).once("other")).await, Ok(Posted::Done));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn a_posting_that_does_not_balance_is_refused_and_its_neighbours_are_not(scratch: Scratch) {
    let store = scratch.open().await;
    grant(&store, ALICE, 50).await;
    let lost = vec![(ALICE, Kudos(-5)), (BOB, Kudos(4))];
    let lost = Posting::new(Cause::Correction, lost, NOON);
    let absurd = Posting::from_house(Cause::Award, BOB, Kudos(MOST_CREATED.0 + 1), NOON);
    let (lost, absurd, good, job) = tokio::join!(
        store.post(lost),
        store.post(absurd),
        store.post(gift(1)),
        store.settle(settlement(JobId::random(), 5)),
    );
    assert!(matches!(lost, Err(StorageError::Refused(_))), "{lost:?}");
    assert!(
        matches!(absurd, Err(StorageError::Refused(_))),
        "{absurd:?}"
    );
    assert_eq!((good, job), (Ok(Posted::Done), Ok(Kudos(5000))));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn old_postings_are_folded_into_opening_balances(scratch: Scratch) {
    let store = scratch.open().await;
    let day = Duration::from_secs(86_400);
    grant(&store, ALICE, 50).await;
    let later = Posting {
        at: NOON.after(2 * day),
        ..gift(7)
    };
    store.post(later.once("later")).await.unwrap();
    assert_eq!(store.forget_before(NOON.after(day)).await, Ok(1));
    assert_eq!(store.forget_before(NOON.after(day)).await, Ok(0));
    assert_eq!(kudos(&store, ALICE).await, 43);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
    let again = store.post(gift(7).once("later")).await;
    assert_eq!(again, Ok(Posted::Already), "it is still known");
}

async fn a_thousand_parallel_spends_never_overspend(scratch: Scratch) {
    let store = scratch.open().await;
    grant(&store, ALICE, 100).await;
    let spends = (0..1000).map(|_| store.post(gift(1)));
    let spent = join_all(spends).await;
    let done = spent.iter().filter(|posted| **posted == Ok(Posted::Done));
    assert_eq!(done.count(), 100);
    assert_eq!(
        (kudos(&store, ALICE).await, kudos(&store, BOB).await),
        (0, 100)
    );
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

/// Giver, receiver, amount, and one of a few idempotency keys.
type Gift = (i64, i64, i64, Option<u8>);

fn waves() -> impl Strategy<Value = Vec<Vec<Gift>>> {
    let key = proptest::option::of(0_u8..6);
    vec(vec((5_i64..9, 5_i64..9, 1_i64..400, key), 0..20), 0..5)
}

async fn any_sequence_of_postings_sums_to_zero_and_keeps_the_floors(scratch: Scratch) {
    let store = scratch.open().await;
    let mut runner = TestRunner::new(Config::default());
    for round in 0..12 {
        grant(&store, AccountId(5 + round % 4), 300).await;
        for wave in waves().new_tree(&mut runner).unwrap().current() {
            let gifts = wave.iter().map(|(from, to, amount, key)| {
                let pair = (AccountId(*from), AccountId(*to));
                let gift = Posting::between(Cause::Transfer, pair, Kudos(*amount * 1000), NOON);
                let gift = gift.above_floor(pair.0);
                store.post(match key {
                    Some(key) => gift.once(format!("{round} {key}")),
                    None => gift,
                })
            });
            assert!(join_all(gifts).await.iter().all(Result::is_ok));
            assert_eq!(store.ledger_sums().await.unwrap(), SOUND, "{wave:?}");
            for account in 5..9 {
                assert!(kudos(&store, AccountId(account)).await >= 0, "{wave:?}");
            }
        }
    }
}
