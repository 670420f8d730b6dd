//! Kudos that are kept for a request: never more than there are, and given back once.

use futures_util::future::join_all;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch};
use crate::coordinator::accounts::Roles;
use crate::coordinator::kudos::{Cause, Posted, Posting};
use crate::coordinator::storage::{Hold, RequestRow, Store};
use crate::protocol::job::{AccountId, Kind, Kudos, RequestId, UnixMillis};

on_both_engines! {
    no_more_is_kept_than_there_is,
    what_is_kept_cannot_be_given_away,
    what_was_kept_for_requests_that_are_gone_is_given_back,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);
const LATER: UnixMillis = UnixMillis(1_700_000_000_001);

/// Somebody who may give away so many kudos.
async fn person(store: &Store, kudos: i64) -> AccountId {
    let account = store
        .create_account("alice", Roles::USER, NOON)
        .await
        .unwrap();
    let has = store.spendable(account).await.unwrap();
    let missing = Kudos(kudos * 1000 - has.0);
    let set = Posting::from_house(Cause::Correction, account, missing, NOON);
    assert_eq!(store.post(set).await, Ok(Posted::Done));
    account
}

fn hold(account: AccountId, kudos: i64) -> Hold {
    Hold {
        request: RequestId::random(),
        account,
        amount: Kudos(kudos * 1000),
        at: NOON,
    }
}

async fn spendable(store: &Store, account: AccountId) -> i64 {
    store.spendable(account).await.unwrap().0 / 1000
}

async fn no_more_is_kept_than_there_is(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = person(&store, 100).await;
    let holds: Vec<Hold> = (0..50).map(|_| hold(alice, 7)).collect();
    let kept = join_all(holds.iter().map(|hold| store.hold(*hold))).await;
    assert_eq!(kept.iter().filter(|one| **one == Ok(true)).count(), 14);
    assert_eq!(spendable(&store, alice).await, 2);
    assert_eq!(store.held(alice).await, Ok(Kudos(98_000)));
    // Twice, and those that were never kept.
    for hold in holds.iter().chain(&holds) {
        store.release(hold.request).await.unwrap();
    }
    assert_eq!(spendable(&store, alice).await, 100);
    assert_eq!(store.held(alice).await, Ok(Kudos(0)));
}

async fn what_is_kept_cannot_be_given_away(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = person(&store, 10).await;
    let bob = person(&store, 0).await;
    assert_eq!(store.hold(hold(alice, 6)).await, Ok(true));
    let gift = |kudos: i64| {
        Posting::between(Cause::Transfer, (alice, bob), Kudos(kudos * 1000), NOON)
            .above_floor(alice)
    };
    assert_eq!(store.post(gift(5)).await, Ok(Posted::NotEnough));
    assert_eq!(store.post(gift(4)).await, Ok(Posted::Done));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn what_was_kept_for_requests_that_are_gone_is_given_back(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = person(&store, 10).await;
    let (there, gone) = (hold(alice, 3), hold(alice, 4));
    let young = Hold {
        at: LATER,
        ..hold(alice, 1)
    };
    for one in [there, gone, young] {
        assert_eq!(store.hold(one).await, Ok(true));
    }
    let row = RequestRow {
        id: there.request,
        account: alice,
        kind: Kind::Text,
        body: "{}".to_owned(),
        accepted_at: NOON,
        expires_at: LATER,
        cancelled: false,
    };
    store.accept(row, None).await.unwrap();
    assert_eq!(store.release_lost(LATER).await, Ok(1));
    assert_eq!(spendable(&store, alice).await, 10 - 3 - 1);
    let mut holding = store.holding().await.unwrap();
    holding.sort();
    let mut expected = vec![there.request, young.request];
    expected.sort();
    assert_eq!(holding, expected);
}
