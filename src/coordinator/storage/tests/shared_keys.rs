//! Shared keys: limited in number, and changed by their owners only.

use futures_util::future::join_all;
use uuid::Uuid;

use super::on_both_engines;
use super::scratch::{Scratch, settlement};
use crate::kudos::{Cause, Posted, Posting, Settlement};
use crate::storage::Store;
use crate::values::{NewSharedKey, Roles, SharedKeyChange};
use muster_protocol::job::{AccountId, JobId, Kudos, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;

on_both_engines! {
    nobody_has_more_keys_than_they_may,
    a_key_is_changed_by_its_owner_and_only_where_asked,
    a_key_without_a_budget_counts_what_is_spent,
    what_is_sent_to_a_key_raises_its_budget_with_its_owners_balance,
}

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);

async fn owner(store: &Store) -> AccountId {
    store
        .create_account("alice", Roles::USER, NOON)
        .await
        .unwrap()
}

fn key(owner: AccountId, budget: Option<i64>) -> NewSharedKey {
    NewSharedKey {
        id: SharedKeyId(Uuid::new_v4()),
        sealed: "v1.sealed".to_owned(),
        owner,
        name: Some("class\0room".to_owned()),
        budget: budget.map(|kudos| Kudos(kudos * 1000)),
        expires_at: Some(NOON),
        limits: JobLimits {
            image_pixels: 1,
            image_steps: 2,
            text_tokens: 3,
        },
        now: NOON,
        most: 3,
    }
}

async fn created(store: &Store, budget: Option<i64>) -> NewSharedKey {
    let key = key(owner(store).await, budget);
    assert_eq!(store.create_shared_key(key.clone()).await, Ok(true));
    key
}

/// Costs two kudos and the fee.
fn job_of(key: &NewSharedKey) -> Settlement {
    Settlement {
        shared_key: Some(key.id),
        ..settlement(JobId::random(), 2)
    }
}

async fn left(store: &Store, key: &NewSharedKey) -> (Option<Kudos>, Kudos) {
    let key = store.shared_key(key.id).await.unwrap().unwrap();
    (key.budget, key.utilized)
}

async fn nobody_has_more_keys_than_they_may(scratch: Scratch) {
    let store = scratch.open().await;
    let owner = owner(&store).await;
    let creating = (0..20).map(|_| store.create_shared_key(key(owner, Some(5))));
    let created = join_all(creating).await;
    assert_eq!(created.iter().filter(|one| **one == Ok(true)).count(), 3);
    assert_eq!(store.shared_keys(owner).await.unwrap().len(), 3);
}

async fn a_key_is_changed_by_its_owner_and_only_where_asked(scratch: Scratch) {
    let store = scratch.open().await;
    let made = created(&store, Some(5)).await;
    let nothing = SharedKeyChange {
        id: made.id,
        owner: made.owner,
        name: None,
        budget: None,
        expires_at: None,
        image_pixels: None,
        image_steps: None,
        text_tokens: None,
    };
    let before = store.shared_key(made.id).await.unwrap().unwrap();
    assert_eq!(before.name.as_deref(), Some("class\u{fffd}room"));
    assert_eq!(store.change_shared_key(nothing.clone()).await, Ok(true));
    assert_eq!(store.shared_key(made.id).await.unwrap().unwrap(), before);
    let change = SharedKeyChange {
        budget: Some(None),
        expires_at: Some(None),
        text_tokens: Some(80),
        ..nothing
    };
    let of_another = SharedKeyChange {
        owner: AccountId(999),
        ..change.clone()
    };
    assert_eq!(store.change_shared_key(of_another).await, Ok(false));
    assert_eq!(store.change_shared_key(change).await, Ok(true));
    let after = store.shared_key(made.id).await.unwrap().unwrap();
    assert_eq!((after.budget, after.expires_at), (None, None));
    assert_eq!(
        (after.limits.text_tokens, after.limits.image_steps),
        (80, 2)
    );
    assert_eq!(
        store.remove_shared_key(made.id, AccountId(999)).await,
        Ok(false)
    );
    assert_eq!(store.remove_shared_key(made.id, made.owner).await, Ok(true));
    assert_eq!(store.shared_key(made.id).await, Ok(None));
}

async fn a_key_without_a_budget_counts_what_is_spent(scratch: Scratch) {
    let store = scratch.open().await;
    let key = created(&store, None).await;
    store.settle(job_of(&key)).await.unwrap();
    assert_eq!(left(&store, &key).await, (None, Kudos(3000)));
}

async fn what_is_sent_to_a_key_raises_its_budget_with_its_owners_balance(scratch: Scratch) {
    let store = scratch.open().await;
    let key = created(&store, Some(5)).await;
    let before = store.balance(key.owner).await.unwrap();
    let gift = Posting::from_house(Cause::Transfer, key.owner, Kudos(7000), NOON).once("gift");
    for expected in [Posted::Done, Posted::Already] {
        let posted = store.post_to_key(gift.clone(), key.id, Kudos(7000)).await;
        assert_eq!(posted, Ok(expected));
    }
    assert_eq!(left(&store, &key).await.0, Some(Kudos(12_000)));
    let after = store.balance(key.owner).await.unwrap();
    assert_eq!(after.0 - before.0, 7000);
}
