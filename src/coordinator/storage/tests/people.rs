//! Accounts and keys, shared by all processes of a store.

use std::time::Duration;

use tokio::time::timeout;

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::{NewKeyRow, RoleChange, StorageError, Store};
use crate::values::{Roles, Scopes};
use muster_protocol::job::{AccountId, UnixMillis};

on_both_engines! {
    two_keys_cannot_be_called_the_same_or_open_the_same,
    a_revocation_reaches_another_process_within_a_second,
    a_revocation_needs_no_clock,
    roles_are_changed_but_the_last_administrators,
    many_keys_of_one_account_are_all_told_of_its_roles,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

fn key(account: AccountId, public_id: &str, digest: &str) -> NewKeyRow {
    NewKeyRow {
        account,
        public_id: public_id.to_owned(),
        digest: digest.to_owned(),
        label: String::new(),
        scopes: Scopes::ALL,
        worker_name: None,
        joins: false,
        limit: None,
        created_at: NOW,
        expires_at: None,
    }
}

async fn account(store: &Store, name: &str, roles: Roles) -> AccountId {
    store.create_account(name, roles, NOW).await.unwrap()
}

async fn two_keys_cannot_be_called_the_same_or_open_the_same(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice", Roles::USER).await;
    store.create_key(key(alice, "abc", "1")).await.unwrap();
    for twin in [key(alice, "abc", "2"), key(alice, "abd", "1")] {
        let refused = store.create_key(twin).await;
        assert!(
            matches!(refused, Err(StorageError::Refused(_))),
            "{refused:?}"
        );
    }
    // A prefix of a key's name matches no key.
    store.create_key(key(alice, "abcd", "3")).await.unwrap();
    assert_eq!(store.revoke_key("ab", NOW).await, Ok(false));
    assert_eq!(store.revoke_key("abc", NOW).await, Ok(true));
    let keys = store.keys().await.unwrap();
    let revoked = keys.iter().map(|key| key.revoked_at.is_some());
    assert_eq!(revoked.collect::<Vec<_>>(), [true, false]);
}

async fn a_revocation_reaches_another_process_within_a_second(scratch: Scratch) {
    let (here, there) = (scratch.open().await, scratch.open().await);
    let alice = account(&here, "alice", Roles::USER).await;
    here.create_key(key(alice, "abc", "1")).await.unwrap();
    let known = here.keys().await.unwrap()[0].revision;
    let mut seen = there.keys_revision();
    seen.wait_for(|revision| *revision >= known).await.unwrap();
    here.revoke_key("abc", NOW).await.unwrap();
    let told = seen.wait_for(|revision| *revision > known);
    timeout(Duration::from_secs(1), told)
        .await
        .unwrap()
        .unwrap();
    let changed = there.keys_changed_after(known).await.unwrap();
    assert!(changed[0].revoked_at.is_some(), "{changed:?}");
}

/// Independent of the revoker's clock, at the time and later.
async fn a_revocation_needs_no_clock(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice", Roles::USER).await;
    for (number, clock) in [i64::MIN, 0, i64::MAX].into_iter().enumerate() {
        let (id, digest) = (format!("id{number}"), format!("digest{number}"));
        store.create_key(key(alice, &id, &digest)).await.unwrap();
        assert_eq!(store.revoke_key(&id, UnixMillis(clock)).await, Ok(true));
        let row = store.key_with_digest(&digest).await.unwrap().unwrap();
        assert!(row.revoked_at.is_some());
    }
}

async fn roles_are_changed_but_the_last_administrators(scratch: Scratch) {
    let store = scratch.open().await;
    let (admin, alice) = (
        account(&store, "admin", Roles::ALL).await,
        account(&store, "alice", Roles::USER).await,
    );
    let user = |account| store.set_roles(account, Roles::USER);
    assert_eq!(user(admin).await, Ok(RoleChange::LastAdmin));
    assert_eq!(user(alice).await, Ok(RoleChange::Done));
    let both = store.set_roles(alice, Roles::ADMIN).await;
    assert_eq!(both, Ok(RoleChange::Done));
    assert_eq!(user(admin).await, Ok(RoleChange::Done));
    let roles = store.accounts().await.unwrap().into_iter();
    let roles: Vec<_> = roles.map(|row| (row.name, row.roles)).collect();
    let expected = [("admin", Roles::USER), ("alice", Roles::ADMIN)];
    assert_eq!(
        roles,
        expected.map(|(name, roles)| (name.to_owned(), roles))
    );
}

async fn many_keys_of_one_account_are_all_told_of_its_roles(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice", Roles::USER).await;
    // More than one page.
    let keys =
        (0..600).map(|it| store.create_key(key(alice, &format!("i{it}"), &format!("d{it}"))));
    for made in futures_util::future::join_all(keys).await {
        made.unwrap();
    }
    let mut known = 600;
    store.set_roles(alice, Roles::ALL).await.unwrap();
    let mut told = 0;
    loop {
        let changed = store.keys_changed_after(known).await.unwrap();
        let Some(last) = changed.last() else { break };
        assert!(changed.iter().all(|key| key.roles == Roles::ALL));
        (known, told) = (last.revision, told + changed.len());
    }
    assert_eq!(told, 600);
}
