//! `worker account`: who has an account with a coordinator and what they may do, from the command line.

use std::path::Path;

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
    assert_eq!(said, "alice may now act as user, moderator\n");
    assert_eq!(accounts(folder)[1]["roles"], json!(["user", "moderator"]));
    let list = run(folder, &["account", "list"]).ok();
    assert!(list.contains("user,moderator"), "{list}");
    let said = run(folder, &["account", "roles", "alice", "user", "--json"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["roles"], json!(["user"]));
}

#[test]
fn misuse_of_accounts_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["account", "list"]).fails(66, "there is no database at");
    run(folder, &["key", "create"]).ok();
    run(folder, &["account", "roles", "alice", "user"])
        .fails(66, "there is no account called alice");
    run(folder, &["account", "roles", "admin", "king"]).fails(2, "the roles are user");
    run(folder, &["account", "roles", "admin"]).fails(2, "ROLE");
    let said =
        run(folder, &["account", "roles", "admin", "user"]).fails(1, "the last administrator");
    assert!(said.contains("make somebody else an admin"), "{said}");
    run(folder, &["key", "create", "--account", ""]).fails(2, "1 to 200 bytes");
    let said =
        run(folder, &["key", "create", "--role", "user"]).fails(2, "the account admin exists");
    assert!(said.contains("worker account roles"), "{said}");
}
