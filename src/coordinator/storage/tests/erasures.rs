//! Deletion, suspension and export of accounts.

use super::on_both_engines;
use super::scratch::Scratch;
use crate::storage::{
    AccountChange, Dues, ExportSection, NewKeyRow, ReplyRow, RequestRow, ResponseRow, Store, Wanted,
};
use crate::values::{Roles, Scopes};
use muster_protocol::job::{AccountId, Kind, Kudos, RequestId, UnixMillis};
use serde_json::Value;

on_both_engines! {
    a_deleted_account_has_nothing_stored_and_gets_nothing_stored,
    an_account_is_suspended_but_the_last_administrators,
    an_export_has_every_section_of_the_account_alone,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

async fn account(store: &Store, name: &str, roles: Roles) -> AccountId {
    let account = store.create_account(name, roles, NOW).await.unwrap();
    let key = NewKeyRow {
        account,
        public_id: format!("id of {name}"),
        digest: format!("digest of {name}"),
        label: format!("label of {name}"),
        scopes: Scopes::ALL,
        worker_name: None,
        joins: false,
        limit: None,
        created_at: NOW,
        expires_at: None,
    };
    store.create_key(key).await.unwrap();
    account
}

fn response(account: AccountId, id: &str) -> ResponseRow {
    ResponseRow {
        id: id.to_owned(),
        account,
        previous: None,
        response: "{\"output\": 1}".to_owned(),
        input: "[]".to_owned(),
        body: None,
        model: None,
        created_at: NOW,
        expires_at: UnixMillis(NOW.0 + 1000),
    }
}

async fn ask(store: &Store, account: AccountId) -> RequestId {
    let id = RequestId::random();
    let row = RequestRow {
        id,
        account,
        kind: Kind::Text,
        body: "{\"prompt\": \"p\"}".to_owned(),
        accepted_at: NOW,
        expires_at: UnixMillis(NOW.0 + 1000),
        wanted: Wanted::Everything,
        fee: Kudos(0),
    };
    store.accept(row, Dues::default()).await.unwrap();
    id
}

fn reply(account: AccountId) -> ReplyRow {
    ReplyRow {
        account,
        key: "key".to_owned(),
        sealed: "sealed".to_owned(),
        expires_at: UnixMillis(NOW.0 + 1000),
    }
}

async fn rows(store: &Store, name: &str, account: AccountId) -> Vec<Value> {
    let section = ExportSection::ALL.iter().find(|it| it.name() == name);
    let rows = store.export_page(*section.unwrap(), account, 0).await;
    rows.unwrap()
}

async fn a_deleted_account_has_nothing_stored_and_gets_nothing_stored(scratch: Scratch) {
    let store = scratch.open().await;
    account(&store, "admin", Roles::ADMIN).await;
    let alice = account(&store, "alice", Roles::USER).await;
    let bob = account(&store, "bob", Roles::USER).await;
    for owner in [alice, bob] {
        let saved = response(owner, &format!("resp_{}", owner.0));
        store.save_response(saved).await.unwrap();
        store.save_reply(reply(owner)).await.unwrap();
    }
    let has_reply = async |owner| store.reply(owner, "key", NOW).await.unwrap().is_some();
    assert!(has_reply(alice).await && has_reply(bob).await);
    let later = UnixMillis(NOW.0 + 1000);
    assert_eq!(store.reply(alice, "key", later).await, Ok(None));
    let request = ask(&store, alice).await;
    let others = ask(&store, bob).await;
    let owners = store.object_owners(alice, NOW).await.unwrap();
    assert!(owners.contains(&request.0) && !owners.contains(&others.0));

    assert_eq!(
        store.delete_account(alice, NOW).await,
        Ok(AccountChange::Done)
    );
    assert_eq!(store.erasures().await.unwrap(), [(alice, NOW)]);
    let left = store.account(alice).await.unwrap().unwrap();
    assert_eq!((&*left.name, left.roles), ("deleted", Roles::DELETED));
    let keys = store.keys_of(alice).await.unwrap();
    assert!(keys[0].revoked_at.is_some() && keys[0].label.is_empty());
    for section in ["responses", "requests"] {
        assert_eq!(rows(&store, section, alice).await.len(), 0, "{section}");
        assert_eq!(rows(&store, section, bob).await.len(), 1, "{section}");
    }
    store.save_reply(reply(alice)).await.unwrap();
    assert!(!has_reply(alice).await && has_reply(bob).await);
    // A response that arrives late is not stored, and a late request is deleted by the next call.
    let late = response(alice, "resp_late");
    store.save_response(late).await.unwrap();
    assert_eq!(rows(&store, "responses", alice).await.len(), 0);
    ask(&store, alice).await;
    assert_eq!(store.delete_contents(alice).await, Ok(1));
    store.compact().await.unwrap();
    store.end_erasures(UnixMillis(NOW.0 + 1)).await.unwrap();
    assert_eq!(store.erasures().await.unwrap(), []);
    let nobody = store.delete_account(AccountId(0), NOW).await;
    assert_eq!(
        nobody,
        Ok(AccountChange::Missing),
        "the anonymous account stays"
    );
    let house = store.delete_account(AccountId(-1), NOW).await;
    assert_eq!(house, Ok(AccountChange::Missing));
}

async fn an_account_is_suspended_but_the_last_administrators(scratch: Scratch) {
    let store = scratch.open().await;
    let admin = account(&store, "admin", Roles::ADMIN).await;
    let other = account(&store, "other", Roles::ADMIN).await;
    let roles = async |account| store.account(account).await.unwrap().unwrap().roles;
    let suspend = |account, is_suspended| store.suspend_account(account, is_suspended);
    assert_eq!(suspend(other, true).await, Ok(AccountChange::Done));
    assert!(roles(other).await.contains(Roles::SUSPENDED));
    assert_eq!(suspend(admin, true).await, Ok(AccountChange::LastAdmin));
    let deleted = store.delete_account(admin, NOW).await;
    assert_eq!(deleted, Ok(AccountChange::LastAdmin));
    assert_eq!(suspend(other, false).await, Ok(AccountChange::Done));
    assert_eq!(roles(other).await, Roles::ADMIN);
    assert_eq!(suspend(admin, true).await, Ok(AccountChange::Done));
}

async fn an_export_has_every_section_of_the_account_alone(scratch: Scratch) {
    let store = scratch.open().await;
    let alice = account(&store, "alice", Roles::USER).await;
    account(&store, "bob", Roles::USER).await;
    for number in 0..6 {
        let row = response(alice, &format!("resp_{number}"));
        store.save_response(row).await.unwrap();
    }
    for section in ExportSection::ALL {
        let page = store.export_page(*section, alice, 0).await.unwrap();
        assert!(page.len() <= section.page(), "{}", section.name());
    }
    let found = rows(&store, "account", alice).await;
    assert_eq!(found[0]["name"], "alice");
    assert_eq!(found[0]["created_at"], "2023-11-14T22:13:20Z");
    assert_eq!(found[0]["kudos"], 14.0);
    let keys = rows(&store, "keys", alice).await;
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["label"], "label of alice");
    assert!(keys[0].get("digest").is_none());
    let first = rows(&store, "responses", alice).await;
    assert_eq!(first[0]["response"]["output"], 1);
    let section = ExportSection::ALL
        .iter()
        .find(|it| it.name() == "responses");
    let rest = store.export_page(*section.unwrap(), alice, first.len());
    assert_eq!(first.len() + rest.await.unwrap().len(), 6);
}
