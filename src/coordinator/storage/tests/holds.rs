//! Holds of kudos never exceed the balance, and are released once.

use futures_util::FutureExt;
use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::kudos::{Cause, Posted, Posting};
use crate::storage::{Dues, Hold, Purse, RequestRow, Store, Wanted};
use crate::values::{NewSharedKey, Roles};
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, RequestId, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;

on_both_engines! {
    no_more_is_kept_than_there_is,
    a_thousand_at_once_keep_no_more_of_a_key_than_is_left_of_it,
    a_job_that_ends_gives_back_its_share_of_what_is_kept,
    what_a_request_costs_at_once_is_not_kept_of_a_key_as_well,
    what_is_kept_cannot_be_given_away,
    what_was_kept_for_requests_that_are_gone_is_given_back,
    what_was_kept_for_a_request_goes_with_it_when_its_time_is_over,
    whatever_is_spent_at_once_nothing_is_kept_twice_and_nobody_falls_below_a_floor,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);
const LATER: UnixMillis = UnixMillis(1_700_000_000_001);

/// A user who can spend this many kudos.
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
        of: Purse::Account(account),
        amount: Kudos(kudos * 1000),
        at: NOON,
    }
}

fn row(request: RequestId, account: AccountId) -> RequestRow {
    RequestRow {
        id: request,
        account,
        kind: Kind::Text,
        body: "{}".to_owned(),
        accepted_at: NOON,
        expires_at: LATER,
        wanted: Wanted::Everything,
        fee: Kudos(0),
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
    // Released twice, and some that were never held.
    for hold in holds.iter().chain(&holds) {
        store.release(hold.request).await.unwrap();
    }
    assert_eq!(spendable(&store, alice).await, 100);
    assert_eq!(store.held(alice).await, Ok(Kudos(0)));
}

/// A shared key with this budget, or an unlimited one.
async fn key_with(store: &Store, kudos: Option<i64>) -> SharedKeyId {
    let key = NewSharedKey {
        id: SharedKeyId(uuid::Uuid::new_v4()),
        sealed: "v1.sealed".to_owned(),
        owner: person(store, 0).await,
        name: None,
        budget: kudos.map(|kudos| Kudos(kudos * 1000)),
        expires_at: None,
        limits: JobLimits {
            image_pixels: -1,
            image_steps: -1,
            text_tokens: -1,
        },
        now: NOON,
        most: 3,
    };
    assert_eq!(store.create_shared_key(key.clone()).await, Ok(true));
    key.id
}

fn of_key(key: SharedKeyId, kudos: i64) -> Hold {
    Hold {
        of: Purse::Key(key),
        ..hold(AccountId(0), kudos)
    }
}

async fn a_job_that_ends_gives_back_its_share_of_what_is_kept(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = person(&store, 10).await;
    let key = key_with(&store, Some(9)).await;
    let three_jobs = hold(alice, 9);
    let with_key = Hold {
        of: Purse::Key(key),
        ..three_jobs
    };
    assert_eq!(store.hold(three_jobs).await, Ok(true));
    assert_eq!(store.hold(with_key).await, Ok(true));
    for (open, left) in [(3, 4), (2, 7)] {
        store.release_share(with_key.request, open).await.unwrap();
        assert_eq!(spendable(&store, alice).await, left);
        // A key's hold shrinks by the charges, and its rest is released with the request.
        assert_eq!(store.hold(of_key(key, 1)).await, Ok(false));
    }
    store.release(with_key.request).await.unwrap();
    assert_eq!(spendable(&store, alice).await, 10);
    assert_eq!(store.hold(of_key(key, 9)).await, Ok(true));
    // A late release finds no hold.
    store.release_share(with_key.request, 1).await.unwrap();
    assert_eq!(spendable(&store, alice).await, 10);
}

async fn what_a_request_costs_at_once_is_not_kept_of_a_key_as_well(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = person(&store, 100).await;
    let key = key_with(&store, Some(20)).await;
    let kept = of_key(key, 10);
    assert_eq!(store.hold(kept).await, Ok(true));
    let fee = Kudos(2000);
    let dues = Dues {
        shared_key: Some(key),
        ..Dues::default()
    };
    let row = RequestRow {
        fee,
        ..row(kept.request, alice)
    };
    store.accept(row, dues).await.unwrap();
    // The balance is 18, of which 8 are held.
    assert_eq!(store.hold(of_key(key, 11)).await, Ok(false));
    assert_eq!(store.hold(of_key(key, 10)).await, Ok(true));
    store.release(kept.request).await.unwrap();
    assert_eq!(store.hold(of_key(key, 9)).await, Ok(false));
    assert_eq!(store.hold(of_key(key, 8)).await, Ok(true));
}

async fn a_thousand_at_once_keep_no_more_of_a_key_than_is_left_of_it(scratch: Scratch) {
    let store = scratch.open().await;
    let key = key_with(&store, Some(100)).await;
    let endless = key_with(&store, None).await;
    let holds: Vec<Hold> = (0..1000).map(|_| of_key(key, 7)).collect();
    let kept = join_all(holds.iter().map(|hold| store.hold(*hold))).await;
    assert_eq!(kept.iter().filter(|one| **one == Ok(true)).count(), 14);
    assert_eq!(store.hold(of_key(endless, 1_000_000)).await, Ok(true));
    assert_eq!(store.holding().await.unwrap().len(), 15);
    // The process that took the holds has ended: one request is finished, the others do not exist.
    drop(store);
    let store = scratch.open().await;
    let first = holds.iter().zip(&kept).find(|(_, kept)| **kept == Ok(true));
    store.release(first.unwrap().0.request).await.unwrap();
    assert_eq!(store.hold(of_key(key, 10)).await, Ok(false));
    assert_eq!(store.release_lost(LATER).await, Ok(14));
    assert_eq!(store.hold(of_key(key, 100)).await, Ok(true));
    assert_eq!(store.hold(of_key(key, 1)).await, Ok(false));
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
    let row = row(there.request, alice);
    store.accept(row, Dues::default()).await.unwrap();
    assert_eq!(store.release_lost(LATER).await, Ok(1));
    assert_eq!(spendable(&store, alice).await, 10 - 3 - 1);
    let mut holding = store.holding().await.unwrap();
    holding.sort();
    let mut expected = vec![there.request, young.request];
    expected.sort();
    assert_eq!(holding, expected);
}

async fn what_was_kept_for_a_request_goes_with_it_when_its_time_is_over(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = person(&store, 10).await;
    let kept = hold(alice, 6);
    assert_eq!(store.hold(kept).await, Ok(true));
    let row = row(kept.request, alice);
    store.accept(row, Dues::default()).await.unwrap();
    drop(store);
    // The process that took the hold is gone, and no other released it in time.
    let store = scratch.open().await;
    assert_eq!(spendable(&store, alice).await, 4);
    store.forget_requests(LATER).await.unwrap();
    assert_eq!(store.release_lost(LATER).await, Ok(1));
    assert_eq!(spendable(&store, alice).await, 10);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

/// Actions of a user with kudos, and their amounts.
#[derive(Debug, Clone, Copy)]
enum Spend {
    Keep(i64),
    Give(i64),
    /// An ended job is charged, whatever the balance.
    Pay(i64),
}

async fn whatever_is_spent_at_once_nothing_is_kept_twice_and_nobody_falls_below_a_floor(
    scratch: Scratch,
) {
    let store = scratch.open().await;
    let spend = (0..3, 1_i64..30).prop_map(|(what, kudos)| match what {
        0 => Spend::Keep(kudos),
        1 => Spend::Give(kudos),
        _ => Spend::Pay(kudos),
    });
    let mut runner = TestRunner::new(Config::with_cases(1));
    for _ in 0..5 {
        let spends = vec(spend.clone(), 60).new_tree(&mut runner);
        at_once(&store, &spends.unwrap().current()).await;
    }
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn at_once(store: &Store, spends: &[Spend]) {
    let alice = person(store, 200).await;
    let bob = person(store, 0).await;
    let floor = store.balance(bob).await.unwrap();
    let kept: Vec<Hold> = spends
        .iter()
        .filter_map(|spend| match spend {
            Spend::Keep(kudos) => Some(hold(alice, *kudos)),
            _ => None,
        })
        .collect();
    let keeping = kept.iter().map(|one| store.hold(*one));
    let others = spends.iter().filter_map(|spend| match *spend {
        Spend::Keep(_) => None,
        Spend::Give(kudos) => {
            let gift = Posting::between(Cause::Transfer, (alice, bob), Kudos(kudos * 1000), NOON);
            let given = store.post(gift.above_floor(alice));
            Some(given.map(|given| assert!(given.is_ok())).boxed())
        }
        Spend::Pay(kudos) => {
            let mut job = settlement(JobId::random(), kudos);
            job.account = alice;
            job.entries[0].account = alice;
            job.entries[1].account = bob;
            Some(store.settle(job).map(|paid| assert!(paid.is_ok())).boxed())
        }
    });
    let (kept_or_not, _) = tokio::join!(join_all(keeping), join_all(others));
    let held: i64 = kept
        .iter()
        .zip(kept_or_not)
        .filter(|(_, kept)| *kept == Ok(true))
        .map(|(hold, _)| hold.amount.0)
        .sum();
    assert_eq!(store.held(alice).await, Ok(Kudos(held)));
    assert!(held <= 200_000, "{held}");
    assert!(store.balance(alice).await.unwrap() >= floor);
    join_all(kept.iter().map(|hold| store.release(hold.request))).await;
    assert_eq!(store.held(alice).await, Ok(Kudos(0)));
}
