use std::time::Duration;

use tempfile::TempDir;

use super::{Accounts, Denied, KeyOrder, NewKey, SecretSource};
use crate::storage::{Location, RoleChange, Store};
use crate::values::{Roles, Scopes};
use muster_process::tasks::Tasks;

/// A process with the database in this folder.
async fn process(folder: &TempDir) -> Accounts {
    let tasks = Tasks::default();
    let store = Store::open(&Location::in_folder(folder.path()), &tasks)
        .await
        .unwrap();
    let secret = SecretSource::File(folder.path().join("secret"));
    Accounts::open(store, &secret, &tasks).await.unwrap()
}

#[tokio::test]
async fn the_first_start_makes_one_key_that_may_do_everything() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = process(&folder).await;
    let key = accounts.first_start().await.unwrap().unwrap();
    let caller = accounts.authenticate(key.text.expose()).await.unwrap();
    assert_eq!(
        (caller.scopes, caller.roles),
        (Scopes::ALL, Roles::ADMINISTRATOR)
    );
    assert!(caller.may_own().is_ok() && caller.is_for_worker("any name"));
    assert_eq!(&*caller.name, "admin");
    assert!(accounts.first_start().await.unwrap().is_none());
    assert!(
        process(&folder)
            .await
            .first_start()
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn whoever_was_killed_between_account_and_key_gets_the_key_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = process(&folder).await;
    let admin = accounts
        .create_account("admin", Roles::ADMINISTRATOR)
        .await
        .unwrap();
    // A key for requests only.
    let order = KeyOrder {
        scopes: Scopes::INFERENCE_SUBMIT,
        ..KeyOrder::default()
    };
    accounts.create_key(admin, order).await.unwrap();
    let key = accounts.first_start().await.unwrap().unwrap();
    assert_eq!(key.account, admin);
    let caller = accounts.authenticate(key.text.expose()).await.unwrap();
    assert_eq!(caller.scopes, Scopes::ALL);
    accounts.revoke_key(&key.public_id).await.unwrap();
    assert!(accounts.first_start().await.unwrap().is_none(), "once");
}

#[tokio::test]
async fn new_roles_act_at_once_here_and_within_a_second_in_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (process(&folder).await, process(&folder).await);
    let account = here.create_account("alice", Roles::USER).await.unwrap();
    let mut keys = Vec::new();
    for _ in 0..3 {
        let key = here.create_key(account, KeyOrder::default()).await.unwrap();
        assert_eq!(roles(&here, &key).await, Roles::USER);
        assert_eq!(roles(&there, &key).await, Roles::USER);
        keys.push(key);
    }
    let began = std::time::Instant::now();
    let moderator = Roles::USER.with(Roles::MODERATOR);
    let change = here.set_roles(account, moderator).await.unwrap();
    assert_eq!(change, RoleChange::Done);
    for key in &keys {
        assert_eq!(roles(&here, key).await, moderator);
        while roles(&there, key).await != moderator {
            assert!(
                began.elapsed() < Duration::from_secs(1),
                "the roles are old"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn roles(accounts: &Accounts, key: &NewKey) -> Roles {
    let caller = accounts.authenticate(key.text.expose()).await;
    caller.unwrap().roles
}

#[tokio::test]
async fn an_account_without_keys_is_trusted_as_soon_as_its_roles_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = process(&folder).await;
    let trusted = Roles::USER.with(Roles::TRUSTED);
    let alice = accounts.create_account("alice", trusted).await.unwrap();
    assert!(accounts.is_trusted(alice));
    for roles in [Roles::USER, trusted] {
        let change = accounts.set_roles(alice, roles).await.unwrap();
        assert_eq!(change, RoleChange::Done);
        assert_eq!(accounts.is_trusted(alice), roles == trusted, "{roles:?}");
    }
}

#[tokio::test]
async fn whoever_makes_a_key_knows_what_another_process_says_of_the_account() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (process(&folder).await, process(&folder).await);
    let account = here.create_account("alice", Roles::USER).await.unwrap();
    let trusted = Roles::USER.with(Roles::TRUSTED);
    there.set_roles(account, trusted).await.unwrap();
    let key = here.create_key(account, KeyOrder::default()).await.unwrap();
    assert_eq!(roles(&here, &key).await, trusted);
    assert!(here.is_trusted(account));
}

#[tokio::test]
async fn a_wrong_key_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = process(&folder).await;
    for key in [
        "",
        "0000000000",
        "aaaaaaaaaaaaaaaaaaaaaa",
        "'; DROP TABLE keys; --",
    ] {
        let denied = accounts.authenticate(key).await.unwrap_err();
        assert_eq!(denied, Denied::UnknownKey);
    }
}

#[tokio::test]
async fn a_key_for_one_rig_connects_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = process(&folder).await;
    let account = accounts.create_account("owner", Roles::USER).await.unwrap();
    let order = KeyOrder {
        scopes: Scopes::WORKER_CONNECT,
        worker_name: Some("rig".to_owned()),
        ..KeyOrder::default()
    };
    let key = accounts.create_key(account, order).await.unwrap();
    let caller = accounts.authenticate(key.text.expose()).await.unwrap();
    assert!(caller.may(Scopes::WORKER_CONNECT));
    assert!(caller.is_for_worker("rig") && !caller.is_for_worker("rig#2"));
    assert!(!caller.may(Scopes::INFERENCE_SUBMIT));
}

#[tokio::test]
async fn an_expired_key_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = process(&folder).await;
    let account = accounts.create_account("owner", Roles::USER).await.unwrap();
    let order = KeyOrder {
        lifetime: Some(Duration::ZERO),
        ..KeyOrder::default()
    };
    let key = accounts.create_key(account, order).await.unwrap();
    let denied = accounts.authenticate(key.text.expose()).await.unwrap_err();
    assert_eq!(denied, Denied::UnknownKey);
    assert!(!accounts.has_good_key().await.unwrap());
    let lasting = accounts
        .create_key(account, KeyOrder::default())
        .await
        .unwrap();
    assert!(accounts.has_good_key().await.unwrap());
    accounts.revoke_key(&lasting.public_id).await.unwrap();
    assert!(!accounts.has_good_key().await.unwrap());
}

#[tokio::test]
async fn a_revocation_acts_at_once_here_and_within_a_second_in_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (process(&folder).await, process(&folder).await);
    let key = here.first_start().await.unwrap().unwrap();
    let text = key.text.expose();
    let caller = there.authenticate(text).await.unwrap();
    assert!(here.authenticate(text).await.is_ok());
    let began = std::time::Instant::now();
    assert!(here.revoke_key(&key.public_id).await.unwrap());
    assert_eq!(
        here.authenticate(text).await.unwrap_err(),
        Denied::UnknownKey
    );
    while there.authenticate(text).await.is_ok() {
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "the key still opens"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(there.recheck(&caller).await.is_err());
    assert!(!here.revoke_key(&key.public_id).await.unwrap(), "once");
    assert!(!here.revoke_key("nonsense").await.unwrap());
}

#[tokio::test]
async fn a_key_made_by_another_process_is_known_even_if_it_was_tried_before() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (process(&folder).await, process(&folder).await);
    let key = here.first_start().await.unwrap().unwrap();
    let caller = there.authenticate(key.text.expose()).await.unwrap();
    assert_eq!(caller.key, key.id);
}

#[tokio::test]
async fn a_connection_that_looks_again_after_a_change_sees_that_change() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (process(&folder).await, process(&folder).await);
    let key = here.first_start().await.unwrap().unwrap();
    let caller = there.authenticate(key.text.expose()).await.unwrap();
    let mut changes = there.inner.store.keys_revision();
    here.revoke_key(&key.public_id).await.unwrap();
    let revision = here.inner.cache.revision();
    // At the moment of the notification, before another task applies the change.
    changes.wait_for(|seen| *seen >= revision).await.unwrap();
    assert_eq!(
        there.recheck(&caller).await.unwrap_err(),
        Denied::UnknownKey
    );
}

#[tokio::test]
async fn a_revision_that_no_key_has_is_taken_in_once() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = process(&folder).await;
    accounts.revoke_key("nonsense").await.unwrap();
    let mut changes = accounts.inner.store.keys_revision();
    let revision = *changes.wait_for(|seen| *seen >= 1).await.unwrap();
    accounts.inner.be_current().await.unwrap();
    assert_eq!(accounts.inner.cache.revision(), revision);
}
