//! `worker key`: the keys of a coordinator, from the command line.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::worker::{Run, worker};

/// `worker key …` on the database in this folder.
fn key(folder: &Path, arguments: &[&str]) -> Run {
    let folder = folder.to_str().unwrap();
    let arguments = [&["key", "--data-dir", folder], arguments].concat();
    worker(&arguments).run()
}

fn read(output: &str) -> Value {
    serde_json::from_str(output).unwrap()
}

#[test]
fn a_key_is_shown_once_listed_and_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let made = key(
        folder.path(),
        &["create", "--account", "alice", "--label", "laptop"],
    );
    let text = made.stdout.trim();
    assert_eq!(
        text.len(),
        22,
        "a script can take it as it is: {:?}",
        made.stdout
    );
    assert!(!made.stderr.contains(text));

    let list = key(folder.path(), &["list"]).ok();
    assert!(
        list.contains("alice") && list.contains("laptop") && list.contains("valid"),
        "{list}"
    );
    assert!(!list.contains(text), "nobody knows the key any more");

    let listed = read(&key(folder.path(), &["list", "--json"]).ok());
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(
        listed[0]["scopes"],
        json!(["inference.submit", "account.read"])
    );
    assert_eq!(
        key(folder.path(), &["revoke", id]).ok(),
        format!("revoked {id}\n")
    );
    let again = key(folder.path(), &["revoke", id, "--json"]).ok();
    assert_eq!(read(&again)["revoked_now"], false);
    assert!(key(folder.path(), &["list"]).ok().contains("revoked"));
}

#[test]
fn a_key_can_be_bound_to_a_worker_and_expire() {
    let folder = tempfile::tempdir().unwrap();
    let made = ["create", "--worker", "rig-1", "--expires", "30d", "--json"];
    let made = read(&key(folder.path(), &made).ok());
    assert_eq!(made["account"], "admin#1");
    assert_eq!(made["key"].as_str().unwrap().len(), 22);
    let listed = read(&key(folder.path(), &["list", "--json"]).ok());
    assert_eq!(listed[0]["worker"], "rig-1");
    assert_eq!(listed[0]["scopes"], json!(["worker.connect"]));
    let (made, until) = (&listed[0]["created_at"], &listed[0]["expires_at"]);
    assert_eq!(
        until.as_i64().unwrap() - made.as_i64().unwrap(),
        30 * 86_400
    );
    assert!(key(folder.path(), &["list"]).ok().contains("valid for 30"));
}

#[test]
fn misuse_of_keys_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let fails =
        |arguments: &[&str], code, message| key(folder.path(), arguments).fails(code, message);
    fails(&["list"], 66, "does not exist");
    fails(&["revoke", "4f1d02a9c3e8"], 66, "does not exist");
    fails(
        &["create", "--scope", "everything"],
        2,
        "known scopes: inference.submit",
    );
    fails(&["create", "--role", "user"], 2, "--account");
    fails(&["create", "--account", "Ünal"], 2, "a login has 1 to 64");
    fails(&["create", "--account", "house"], 2, "is reserved");
    fails(&["create", "--account", "user-7"], 2, "is reserved");
    fails(&["create", "--role", "king"], 2, "known roles: user");
    fails(
        &["create", "--expires", "soon"],
        2,
        "a duration such as 30d",
    );
    key(folder.path(), &["create"]).ok();
    fails(
        &["create", "--account", "admin", "--role", "user"],
        2,
        "the account admin#1 exists",
    );
    fails(
        &["create", "--account", "bob#7"],
        66,
        "no account has the login or number bob#7",
    );
    fails(
        &["create", "--account", "bob#1"],
        66,
        "similar accounts: admin#1",
    );
    fails(&["revoke", "4f1d02a9c3e8"], 66, "no key has this id");
    fails(
        &["list", "--database", "mysql://host/name"],
        78,
        "serve.database must be a path, sqlite:PATH or postgres://HOST/NAME",
    );
    fails(
        &["create", "--database", "/sys/muster.sqlite"],
        73,
        "read-only",
    );
    fails(
        &["list", "--database", "postgres://nobody@127.0.0.1:1/none"],
        69,
        "the database is unreachable: postgres://127.0.0.1:1/none: ",
    );
}

#[test]
fn a_key_manages_an_account_only_where_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let all = json!([
        "inference.submit",
        "worker.connect",
        "account.read",
        "account.manage"
    ]);
    let some = json!(["inference.submit", "account.read"]);
    for (arguments, scopes) in [
        (["create", "--label", "usual"].as_slice(), &some),
        (&["create", "--full"], &all),
        (&["create", "--scope", "full"], &all),
        (&["create", "--account", "alice", "--full"], &all),
    ] {
        key(folder.path(), arguments).ok();
        let listed = read(&key(folder.path(), &["list", "--json"]).ok());
        let last = listed.as_array().unwrap().last().unwrap();
        assert_eq!(last["scopes"], *scopes, "{arguments:?}");
    }
    let help = key(folder.path(), &["create", "--help"]).ok();
    assert!(
        help.contains("account.manage     manage the account"),
        "{help}"
    );
}

#[test]
fn listing_makes_neither_a_file_nor_tables() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("coordinator.sqlite");
    for command in ["key", "account"] {
        let list = || {
            worker(&[
                command,
                "list",
                "--data-dir",
                folder.path().to_str().unwrap(),
            ])
        };
        list().run().fails(66, "no coordinator has run here");
        assert!(!file.exists());
        std::fs::write(&file, "").unwrap();
        list().run().fails(66, "no coordinator has run here");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("coordinator.sqlite");
    std::fs::write(
        &file,
        "Dear diary, today I wrote a file of some length.".repeat(50),
    )
    .unwrap();
    let before = std::fs::read(&file).unwrap();
    key(folder.path(), &["list"]).fails(65, "not a SQLite database");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}
