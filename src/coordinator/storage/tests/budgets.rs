//! Charges to shared keys never exceed the budget, concurrent or in sequence.

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use uuid::Uuid;

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::kudos::{Cause, Posting, Settlement};
use crate::storage::{Dues, Hold, Purse, RequestRow, Store, Wanted};
use crate::values::{NewSharedKey, Roles};
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, RequestId, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;

on_both_engines! {
    jobs_are_charged_to_their_key_down_to_nothing_and_the_house_pays_the_rest,
    what_is_kept_for_one_request_is_spent_by_no_other,
    of_a_key_that_was_taken_back_what_was_kept_is_spent_and_no_more,
    what_is_forgiven_beyond_a_budget_is_not_forgiven_below_a_floor_as_well,
    whatever_is_asked_for_at_once_an_owner_loses_no_more_than_the_budget,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);
/// The owner of the worker.
const WORKS: AccountId = AccountId(1000);

/// A shared key whose owner has far more than its budget.
struct Shared {
    id: SharedKeyId,
    owner: AccountId,
}

async fn key_with(store: &Store, kudos: i64) -> Shared {
    let owner = store.create_account("alice", Roles::USER, NOON).await;
    let owner = owner.unwrap();
    let gift = Posting::from_house(Cause::Award, owner, Kudos(10_000_000), NOON);
    store.post(gift).await.unwrap();
    let id = SharedKeyId(Uuid::new_v4());
    let key = NewSharedKey {
        id,
        sealed: "v1.sealed".to_owned(),
        owner,
        name: None,
        budget: Some(Kudos(kudos * 1000)),
        expires_at: None,
        limits: JobLimits {
            image_pixels: -1,
            image_steps: -1,
            text_tokens: -1,
        },
        now: NOON,
        most: 3,
    };
    assert_eq!(store.create_shared_key(key).await, Ok(true));
    Shared { id, owner }
}

impl Shared {
    fn hold(&self, request: RequestId, kudos: i64) -> Hold {
        Hold {
            request,
            of: Purse::Key(self.id),
            amount: Kudos(kudos * 1000),
            at: NOON,
        }
    }

    /// A job of another user with this key, charged in full.
    fn job(&self, request: RequestId, kudos: i64) -> Settlement {
        let mut job = settlement(JobId::random(), kudos - 1);
        job.entries[0].account = self.owner;
        job.entries[1].account = WORKS;
        Settlement {
            request,
            account: self.owner,
            shared_key: Some(self.id),
            ..job
        }
    }

    async fn accept(&self, store: &Store, request: RequestId, fee: i64) {
        let row = RequestRow {
            id: request,
            account: self.owner,
            kind: Kind::Text,
            body: "{}".to_owned(),
            accepted_at: NOON,
            expires_at: UnixMillis(NOON.0 + 1),
            wanted: Wanted::Everything,
            fee: Kudos(fee * 1000),
        };
        let dues = Dues {
            shared_key: Some(self.id),
            ..Dues::default()
        };
        store.accept(row, dues).await.unwrap();
    }

    async fn keep_rest(&self, store: &Store, request: RequestId, kudos: i64) -> bool {
        let kept = store.hold_rest(self.id, request, Kudos(kudos * 1000), NOON);
        kept.await.unwrap()
    }

    /// Budget left, amount spent, and the owner's balance, in thousandths.
    async fn books(&self, store: &Store) -> (i64, i64, i64) {
        let key = store.shared_key(self.id).await.unwrap().unwrap();
        let has = store.balance(self.owner).await.unwrap();
        (key.budget.unwrap().0, key.utilized.0, has.0)
    }
}

async fn jobs_are_charged_to_their_key_down_to_nothing_and_the_house_pays_the_rest(
    scratch: Scratch,
) {
    let store = scratch.open().await;
    let key = key_with(&store, 5).await;
    let (_, _, before) = key.books(&store).await;
    let job = key.job(RequestId::random(), 3);
    for _ in 0..3 {
        // Repeated settlements change nothing.
        store.settle(job.clone()).await.unwrap();
    }
    assert_eq!(key.books(&store).await, (2000, 3000, before - 3000));
    let jobs = (0..40).map(|_| store.settle(key.job(RequestId::random(), 3)));
    assert!(join_all(jobs).await.iter().all(Result::is_ok));
    assert_eq!(key.books(&store).await, (0, 5000, before - 5000));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn what_is_kept_for_one_request_is_spent_by_no_other(scratch: Scratch) {
    let store = scratch.open().await;
    let key = key_with(&store, 10).await;
    let (_, _, before) = key.books(&store).await;
    let [covered, short, late] = [(); 3].map(|()| RequestId::random());
    assert_eq!(store.hold(key.hold(covered, 8)).await, Ok(true));
    assert_eq!(store.hold(key.hold(short, 20)).await, Ok(false));
    assert!(key.keep_rest(&store, short, 20).await);
    // Nothing is left for this request.
    assert!(!key.keep_rest(&store, late, 20).await);
    let shown = store.shared_key(key.id).await.unwrap().unwrap();
    assert_eq!(shown.budget, Some(shown.held));
    assert!(!shown.is_empty(), "nothing is spent so far");
    key.accept(&store, short, 1).await;
    for _ in 0..3 {
        store.settle(key.job(short, 20)).await.unwrap();
    }
    assert_eq!(key.books(&store).await, (8000, 2000, before - 2000));
    let jobs = (0..2).map(|_| store.settle(key.job(covered, 4)));
    assert!(join_all(jobs).await.iter().all(Result::is_ok));
    assert_eq!(key.books(&store).await, (0, 10_000, before - 10_000));
    for request in [covered, short, late] {
        store.release(request).await.unwrap();
    }
    let held = store.shared_key(key.id).await.unwrap().unwrap().held;
    assert_eq!(held, Kudos(0));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn of_a_key_that_was_taken_back_what_was_kept_is_spent_and_no_more(scratch: Scratch) {
    let store = scratch.open().await;
    let key = key_with(&store, 10).await;
    let (_, _, before) = key.books(&store).await;
    let request = RequestId::random();
    assert!(key.keep_rest(&store, request, 50).await);
    let removed = store.remove_shared_key(key.id, key.owner).await;
    assert_eq!(removed, Ok(true));
    for _ in 0..3 {
        store.settle(key.job(request, 4)).await.unwrap();
    }
    let has = store.balance(key.owner).await.unwrap();
    assert_eq!(has, Kudos(before - 10_000));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn what_is_forgiven_beyond_a_budget_is_not_forgiven_below_a_floor_as_well(scratch: Scratch) {
    let store = scratch.open().await;
    let key = key_with(&store, 5).await;
    let floor = {
        let poor = store.create_account("poor", Roles::USER, NOON).await;
        store.balance(poor.unwrap()).await.unwrap()
    };
    let (_, _, has) = key.books(&store).await;
    // Two kudos above the floor.
    let less = Kudos(floor.0 + 2000 - has);
    let set = Posting::from_house(Cause::Correction, key.owner, less, NOON);
    store.post(set).await.unwrap();
    store
        .settle(key.job(RequestId::random(), 20))
        .await
        .unwrap();
    assert_eq!(key.books(&store).await, (0, 5000, floor.0));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

/// A request: its estimated price, its fee, and the prices of its jobs, which may be higher.
type Ask = (i64, i64, Vec<i64>);

async fn whatever_is_asked_for_at_once_an_owner_loses_no_more_than_the_budget(scratch: Scratch) {
    let store = scratch.open().await;
    let ask = (1_i64..40, 0_i64..4, vec(1_i64..30, 0..4));
    let mut runner = TestRunner::default();
    for _ in 0..5 {
        let asks = vec(ask.clone(), 40).new_tree(&mut runner);
        at_once(&store, &asks.unwrap().current()).await;
    }
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn at_once(store: &Store, asks: &[Ask]) {
    let key = key_with(store, 200).await;
    let (_, _, before) = key.books(store).await;
    let asked = join_all(asks.iter().map(|ask| serve(store, &key, ask)));
    let whole: i64 = asked.await.into_iter().sum();
    let (left, spent, has) = key.books(store).await;
    assert_eq!(left + spent, 200_000, "{asks:?}");
    assert_eq!(before - has, spent, "{asks:?}");
    let is_sound = left >= 0 && spent <= whole * 1000;
    assert!(is_sound, "{left} {spent} {whole} of {asks:?}");
    let held = store.shared_key(key.id).await.unwrap().unwrap().held;
    assert_eq!(held, Kudos(0), "{asks:?}");
}

/// The amount charged; zero if refused.
async fn serve(store: &Store, key: &Shared, (price, fee, jobs): &Ask) -> i64 {
    let request = RequestId::random();
    let is_covered = store.hold(key.hold(request, *price)).await.unwrap();
    if !is_covered && !key.keep_rest(store, request, *price).await {
        return 0;
    }
    key.accept(store, request, *fee).await;
    let jobs_settled = jobs.iter().map(|job| store.settle(key.job(request, *job)));
    assert!(join_all(jobs_settled).await.iter().all(Result::is_ok));
    store.release(request).await.unwrap();
    fee + jobs.iter().sum::<i64>()
}
