//! Opening new, older, newer and damaged databases, and two programs at once.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use sqlx::{AnyConnection, Executor, Row};

use super::on_both_engines;
use super::scratch::{SOUND, Scratch, settlement};
use crate::storage::{Location, StorageError, Store, connect, migrate};
use muster_protocol::job::{AccountId, JobId, Kudos, UnixMillis, WorkerId};

on_both_engines! {
    a_newer_database_is_refused,
    an_older_database_is_migrated_with_a_copy_kept,
    a_database_of_the_first_schema_is_brought_to_the_last,
    gifts_of_an_older_database_are_told_apart,
    accounts_of_an_older_database_have_logins_that_nobody_took,
    workers_of_an_older_database_that_are_gone_have_had_their_numbers,
    a_migration_that_fails_leaves_the_database_as_it_was,
    two_programs_may_open_a_new_database_at_once,
    what_was_settled_is_there_after_opening_again,
}

/// Statements of a future migration.
const NEXT: &str =
    "ALTER TABLE accounts ADD COLUMN note TEXT; UPDATE accounts SET note = 'migrated';";

/// All migrations and an additional one.
fn and(one: &'static str) -> Vec<&'static str> {
    let mut all = migrate::ALL.to_vec();
    all.push(one);
    all
}

async fn a_newer_database_is_refused(scratch: Scratch) {
    drop(scratch.open().await);
    let mut connection = connect(&scratch.location).await.unwrap();
    let newer = "UPDATE counters SET value = 99 WHERE name = 'schema'";
    connection.execute(newer).await.unwrap();
    let refused = Store::open(&scratch.location, &scratch.tasks)
        .await
        .unwrap_err();
    let known = migrate::ALL.len() as i64;
    assert_eq!(refused, StorageError::Newer { found: 99, known });
    assert!(refused.to_string().contains("newer version"));
}

async fn an_older_database_is_migrated_with_a_copy_kept(scratch: Scratch) {
    let job = JobId::random();
    let store = scratch.open().await;
    store.settle(settlement(job, 3)).await.unwrap();
    let connection = connect(&scratch.location).await.unwrap();
    let migrated = migrate::migrate(connection, &scratch.location, &and(NEXT)).await;
    let note = text(
        &mut migrated.unwrap(),
        "SELECT note FROM accounts WHERE id = 0",
    )
    .await;
    assert_eq!(note, "migrated");
    assert_eq!(store.reward(job).await, Ok(Some(Kudos(3000))));
    if let Location::Sqlite(path) = &scratch.location {
        let copy = PathBuf::from(format!("{}.schema-{}", path.display(), migrate::ALL.len()));
        let mode = copy.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let copy = Store::open(&Location::Sqlite(copy), &scratch.tasks).await;
        assert_eq!(copy.unwrap().reward(job).await, Ok(Some(Kudos(3000))));
    }
}

async fn a_database_of_the_first_schema_is_brought_to_the_last(scratch: Scratch) {
    if let Location::Sqlite(path) = &scratch.location {
        migrate::prepare_file(path).unwrap();
    }
    sqlx::any::install_default_drivers();
    let connection = connect(&scratch.location).await.unwrap();
    let first = migrate::migrate(connection, &scratch.location, &migrate::ALL[..1]).await;
    let account = "INSERT INTO accounts (name, roles, created_at) VALUES ('alice', 'user', 1)";
    first.unwrap().execute(account).await.unwrap();
    let store = scratch.open().await;
    assert!(store.account_with_login("alice").await.unwrap().is_some());
    store.settle(settlement(JobId::random(), 3)).await.unwrap();
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

/// A database from before the migration with this text.
async fn before(words: &str, scratch: &Scratch) -> AnyConnection {
    if let Location::Sqlite(path) = &scratch.location {
        migrate::prepare_file(path).unwrap();
    }
    sqlx::any::install_default_drivers();
    let connection = connect(&scratch.location).await.unwrap();
    let is_it = |text: &&str| text.contains(words);
    let before = migrate::ALL.iter().position(is_it).unwrap();
    let older = migrate::migrate(connection, &scratch.location, &migrate::ALL[..before]).await;
    older.unwrap()
}

async fn workers_of_an_older_database_that_are_gone_have_had_their_numbers(scratch: Scratch) {
    let mut older = before("SELECT 'workers'", &scratch).await;
    for rows in [
        "INSERT INTO workers (id, public_id, name, owner, trusted, created_at) VALUES (3, 'p', 'w', 1, 0, 1)",
        "INSERT INTO suspicions (account, worker, reason, at) VALUES (1, 9, 'x', 1)",
    ] {
        older.execute(rows).await.unwrap();
    }
    let store = scratch.open().await;
    let new = store.worker("new", AccountId(1), UnixMillis(1)).await;
    assert_eq!(new.unwrap().id, WorkerId(10));
}

async fn accounts_of_an_older_database_have_logins_that_nobody_took(scratch: Scratch) {
    let mut older = before("accounts_login", &scratch).await;
    for (id, name, roles) in [
        (1, "root", "user admin"),
        (2, "admin", "user"),
        (3, "Alice", "user"),
        (4, "alice", "user"),
        (5, "Ünal", "user"),
        (6, "user-3", "user"),
        (7, "7", "user"),
        (8, "\u{212a}ate", "user"),
        (9, "two words", "user"),
        (10, "Admin", "user moderator admin"),
        (11, "", "user"),
    ] {
        let row = sqlx::query(
            "INSERT INTO accounts (id, name, roles, created_at) VALUES ($1, $2, $3, 1)",
        );
        let row = row.bind(i64::from(id)).bind(name).bind(roles);
        row.execute(&mut older).await.unwrap();
    }
    let store = scratch.open().await;
    let logins: Vec<_> = store.accounts().await.unwrap();
    let logins: Vec<_> = logins.into_iter().map(|it| it.login.unwrap()).collect();
    let expected = [
        "root", "user-2", "alice", "user-4", "user-5", "user-6", "user-7", "user-8", "user-9",
        "admin", "user-11",
    ];
    assert_eq!(logins, expected);
}

async fn gifts_of_an_older_database_are_told_apart(scratch: Scratch) {
    let mut older = before("'gifted'", &scratch).await;
    for rows in [
        "INSERT INTO ledger (job, account, reason, amount, at) VALUES ('a', 5, 'transfer', -7, 1), \
         ('a', 6, 'transfer', 7, 1), ('b', 5, 'transfer', 4, 1), ('b', 6, 'transfer', -4, 1), \
         ('c', 5, 'donation', -2, 1), ('c', 7, 'donation', 2, 1)",
        // Account 5 gave ten more earlier; the records of that are deleted.
        "INSERT INTO tallies (account, cause, kudos) VALUES (5, 'transfer', -13), (6, 'transfer', 3), \
         (5, 'donation', -2), (7, 'donation', 2)",
    ] {
        older.execute(rows).await.unwrap();
    }
    let store = scratch.open().await;
    let check = async |account, expected: &[(&str, i64)]| {
        let mut tallies = store.tallies(AccountId(account)).await.unwrap();
        tallies.retain(|_, kudos| kudos.0 != 0);
        let expected = expected.iter();
        let expected = expected.map(|(name, kudos)| ((*name).to_owned(), Kudos(*kudos)));
        assert_eq!(tallies, expected.collect());
    };
    let fifth = [
        ("gifted", -7),
        ("received", 4),
        ("donated", -2),
        ("transfer", -10),
    ];
    check(5, &fifth).await;
    check(6, &[("gifted", -4), ("received", 7)]).await;
    check(7, &[("received", 2)]).await;
}

async fn a_migration_that_fails_leaves_the_database_as_it_was(scratch: Scratch) {
    drop(scratch.open().await);
    let connection = connect(&scratch.location).await.unwrap();
    let broken = and("CREATE TABLE half (id BIGINT); CREATE TABLE (;");
    let failed = migrate::migrate(connection, &scratch.location, &broken).await;
    assert!(
        matches!(failed, Err(StorageError::Refused(_))),
        "{failed:?}"
    );
    let mut connection = connect(&scratch.location).await.unwrap();
    assert!(connection.execute("SELECT * FROM half").await.is_err());
    assert!(Store::open(&scratch.location, &scratch.tasks).await.is_ok());
}

async fn two_programs_may_open_a_new_database_at_once(scratch: Scratch) {
    let (one, other) = tokio::join!(
        Store::open(&scratch.location, &scratch.tasks),
        Store::open(&scratch.location, &scratch.tasks)
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    let job = JobId::random();
    let (first, second) = tokio::join!(
        one.settle(settlement(job, 1)),
        other.settle(settlement(job, 2))
    );
    assert_eq!(first, second, "both are told what stands there");
}

async fn what_was_settled_is_there_after_opening_again(scratch: Scratch) {
    let job = JobId::random();
    let store = scratch.open().await;
    store.settle(settlement(job, 3)).await.unwrap();
    drop(store);
    let store = scratch.open().await;
    assert_eq!(store.settle(settlement(job, 4)).await, Ok(Kudos(3000)));
}

#[tokio::test]
async fn the_file_is_its_owners_alone() {
    let scratch = Scratch::sqlite();
    scratch.open().await;
    let Location::Sqlite(path) = &scratch.location else {
        panic!("a file is wanted");
    };
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

async fn text(connection: &mut AnyConnection, query: &'static str) -> String {
    sqlx::query(query)
        .fetch_one(connection)
        .await
        .unwrap()
        .try_get(0)
        .unwrap()
}
