//! `worker account`: accounts of a coordinator and their roles, from the command line.

use std::path::Path;
use std::time::Duration;

use muster::coordinator::storage::{Location, PersonChange, Store};
use muster::protocol::job::{AccountId, UnixMillis};
use muster::tasks::Tasks;
use serde_json::{Value, json};

use crate::support::worker::{Run, worker};

fn run(folder: &Path, arguments: &[&str]) -> Run {
    let data = ["--data-dir", folder.to_str().unwrap()];
    worker(&[arguments, &data].concat()).run()
}

fn accounts(folder: &Path) -> Value {
    let list = run(folder, &["account", "list", "--json"]).ok();
    serde_json::from_str(&list).unwrap()
}

#[test]
fn the_roles_of_an_account_are_shown_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["key", "create"]).ok();
    run(folder, &["key", "create", "--account", "alice"]).ok();
    let found = accounts(folder);
    assert_eq!(found[1]["name"], "alice");
    assert_eq!(found[1]["roles"], json!(["user", "worker_owner"]));
    let said = run(folder, &["account", "roles", "alice", "user", "moderator"]).ok();
    assert_eq!(said, "alice#2 now has the roles user, moderator\n");
    assert_eq!(accounts(folder)[1]["roles"], json!(["user", "moderator"]));
    let list = run(folder, &["account", "list"]).ok();
    assert!(list.contains("user,moderator"), "{list}");
    let said = run(folder, &["account", "roles", "alice", "user", "--json"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["roles"], json!(["user"]));
}

#[test]
fn credits_are_added_to_an_account() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["key", "create", "--account", "alice"]).ok();
    let said = run(folder, &["account", "credit", "alice", "2.5"]).ok();
    assert_eq!(
        said,
        "alice#1 now has 2.5 USD of paid and 0 USD of promotional credits\n"
    );
    let more = [
        "account",
        "credit",
        "alice",
        "0.000001",
        "--promotional",
        "--json",
    ];
    let said: Value = serde_json::from_str(&run(folder, &more).ok()).unwrap();
    let wanted = json!({"id": 1, "login": "alice", "paid_usd": 2.5, "promotional_usd": 0.000001});
    assert_eq!(said, wanted);
    for wrong in ["0", "0.0000001", "much"] {
        let wrong = ["account", "credit", "--promotional", "alice", wrong];
        run(folder, &wrong).fails(2, "amount in USD");
    }
    run(folder, &["account", "credit", "bob", "1"])
        .fails(66, "no account has the login or number bob");
}

#[test]
fn misuse_of_accounts_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["account", "list"]).fails(66, "does not exist");
    run(folder, &["key", "create"]).ok();
    run(folder, &["account", "roles", "alice", "user"])
        .fails(66, "no account has the login or number alice");
    run(folder, &["account", "roles", "admin", "king"]).fails(2, "known roles: user");
    run(folder, &["account", "roles", "admin"]).fails(2, "ROLE");
    let said =
        run(folder, &["account", "roles", "admin", "user"]).fails(1, "the last administrator");
    assert!(
        said.contains("give another account the role admin"),
        "{said}"
    );
    run(folder, &["key", "create", "--account", ""]).fails(2, "1 to 200 bytes");
    let said = run(
        folder,
        &["key", "create", "--account", "admin", "--role", "user"],
    )
    .fails(2, "the account admin#1 exists");
    assert!(said.contains("worker account roles"), "{said}");
}

/// An account that calls itself something else than its operator does.
fn rename(folder: &Path, account: i64, name: &str) {
    let (folder, name) = (folder.to_owned(), name.to_owned());
    let renaming = async move {
        let tasks = Tasks::default();
        let store = Store::open(&Location::in_folder(&folder), &tasks).await;
        let change = PersonChange {
            name: Some(name),
            ..PersonChange::default()
        };
        let (store, now) = (store.unwrap(), UnixMillis(1));
        store
            .change_person(AccountId(account), change, now)
            .await
            .unwrap();
        drop(store);
        tasks.stop(Duration::from_secs(5)).await;
    };
    tokio::runtime::Runtime::new().unwrap().block_on(renaming);
}

#[test]
fn a_display_name_never_stands_for_an_account() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["key", "create"]).ok();
    run(folder, &["key", "create", "--account", "bob"]).ok();
    // A user takes the name of an account that the operator is about to make, and then that of the administrator.
    rename(folder, 2, "alice");
    let roles = ["account", "roles", "alice", "user", "moderator"];
    let refused = run(folder, &roles).fails(66, "alice#2");
    assert!(refused.contains("name#id"), "{refused}");
    run(folder, &["key", "create", "--account", "alice"]).fails(66, "alice#2");
    run(folder, &["key", "create", "--account", "alice", "--new"]).ok();
    let said = run(folder, &roles).ok();
    assert_eq!(said, "alice#3 now has the roles user, moderator\n");
    assert_eq!(
        accounts(folder)[1]["roles"],
        json!(["user", "worker_owner"])
    );
    for named in ["bob", "alice#2", "bob#2", "#2", "BOB"] {
        let said = run(folder, &["account", "roles", named, "user"]).ok();
        assert_eq!(said, "alice#2 now has the roles user\n", "{named}");
    }

    rename(folder, 1, "root");
    rename(folder, 2, "admin");
    let made = run(folder, &["key", "create", "--json"]).ok();
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["account"], "root#1");
    let said = run(folder, &["account", "roles", "admin", "user", "admin"]).ok();
    assert_eq!(said, "root#1 now has the roles user, admin\n");
}

#[test]
fn among_several_administrators_the_one_with_the_login_admin_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for login in ["carol", "dave"] {
        let made = ["key", "create", "--account", login, "--role", "admin"];
        run(folder, &made).ok();
    }
    let refused = run(folder, &["key", "create"]).fails(1, "carol#1, dave#2");
    assert!(refused.contains("--account NAME#ID"), "{refused}");
    run(folder, &["account", "roles", "carol", "user"]).ok();
    let made = run(folder, &["key", "create", "--json"]).ok();
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["account"], "dave#2");
    run(folder, &["key", "create", "--account", "admin"]).fails(66, "dave#2");
}

#[test]
fn an_account_is_exported_suspended_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["key", "create"]).ok();
    run(folder, &["key", "create", "--account", "madagascaralice"]).ok();
    rename(folder, 2, "madagascar words");
    let export = run(folder, &["account", "export", "madagascaralice"]).ok();
    let export: Value = serde_json::from_str(&export).unwrap();
    assert_eq!(export["account"][0]["login"], "madagascaralice", "{export}");
    assert_eq!(export["keys"].as_array().unwrap().len(), 1);
    let file = folder.join("alice.json");
    let to_file = ["account", "export", "#2", "-o", file.to_str().unwrap()];
    run(folder, &to_file).ok();
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(written["keys"], export["keys"]);
    run(folder, &to_file).fails(1, "writing");
    std::fs::remove_file(file).unwrap();

    let said = run(folder, &["account", "suspend", "madagascaralice"]).ok();
    assert!(said.contains("is suspended"), "{said}");
    let roles = json!(["user", "worker_owner", "suspended"]);
    assert_eq!(accounts(folder)[1]["roles"], roles);
    let said = run(folder, &["account", "suspend", "madagascaralice", "--lift"]).ok();
    assert!(said.contains("not suspended any more"), "{said}");

    run(folder, &["account", "delete", "admin"]).fails(1, "the last administrator");
    run(folder, &["account", "suspend", "admin"]).fails(1, "the last administrator");
    run(folder, &["account", "delete", "nobody"]).fails(66, "no account has the login");
    let copy = folder.join("coordinator.sqlite.schema-3");
    std::fs::write(&copy, "madagascar").unwrap();
    let said = run(folder, &["account", "delete", "#2", "--json"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["deleted"], true);
    assert_eq!(said["copies"], json!([copy]));
    let left = &accounts(folder)[1];
    assert_eq!(
        (&left["name"], &left["roles"]),
        (&json!("deleted"), &json!(["deleted"]))
    );
    for name in ["coordinator.sqlite", "coordinator.sqlite-wal"] {
        let bytes = std::fs::read(folder.join(name)).unwrap_or_default();
        let holds = bytes.windows(10).any(|part| part == b"madagascar");
        assert!(!holds, "{name}");
    }
}
