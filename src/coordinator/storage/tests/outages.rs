//! Outages: a locked, full or missing database.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use muster_testing::eventually;
use sqlx::{AnyConnection, Executor};
use tokio::time::{sleep, timeout};

use super::scratch::{OwnServer, SOUND, Scratch, settlement};
use crate::accounts::{Accounts, Denied, SecretSource};
use crate::storage::file::Companions;
use crate::storage::rescue::Rescuer;
use crate::storage::write::Change;
use crate::storage::{Location, READERS, StorageError, Store, connect, file};
use muster_process::tasks::Tasks;
use muster_protocol::job::{JobId, Kudos, UnixMillis};

/// A statement on the writer's own connection.
#[derive(Debug)]
struct Statement(&'static str);

impl Change for Statement {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            connection.execute(self.0).await?;
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let scratch = Scratch::sqlite();
    let store = scratch.open().await;
    store
        .change(Statement("PRAGMA max_page_count = 20"))
        .await
        .unwrap();
    let full = async {
        loop {
            let settled = store.settle(settlement(JobId::random(), 1)).await;
            if let Err(error) = settled {
                return error;
            }
        }
    };
    assert_eq!(full.await, StorageError::Full);
    store
        .change(Statement("PRAGMA max_page_count = 1000000"))
        .await
        .unwrap();
    let job = JobId::random();
    assert_eq!(store.settle(settlement(job, 1)).await, Ok(Kudos(1000)));
    assert!(store.is_reachable());
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

#[tokio::test]
async fn a_file_that_another_program_holds_is_locked_until_it_lets_go() {
    let scratch = Scratch::sqlite();
    let store = scratch.open().await;
    store.change(Statement("SELECT 1")).await.unwrap();
    // Sets a timeout of 50 ms, which applies from the next transaction on.
    store
        .change(Statement("PRAGMA busy_timeout = 50"))
        .await
        .unwrap();
    let mut other = connect(&scratch.location).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let job = JobId::random();
    let locked = store.settle(settlement(job, 1)).await.unwrap_err();
    assert_eq!(locked, StorageError::Locked(5));
    assert!(!store.is_reachable());
    other.execute("ROLLBACK").await.unwrap();
    assert_eq!(store.settle(settlement(job, 1)).await, Ok(Kudos(1000)));
    assert!(store.is_reachable());
}

/// Deletes or replaces the database of an open store.
async fn file_gone(take_away: impl Fn(&Path)) {
    let scratch = Scratch::sqlite();
    let Location::Sqlite(path) = &scratch.location else {
        unreachable!("it is a file")
    };
    let store = scratch.open().await;
    let job = JobId::random();
    store.settle(settlement(job, 1)).await.unwrap();
    take_away(path);
    let lost = store.settle(settlement(JobId::random(), 2)).await;
    assert_eq!(lost, Err(StorageError::FileGone));
    until("it is noticed", || {
        store.problem() == Some(StorageError::FileGone)
    })
    .await;
    let copy = eventually("a copy is made", async || match file::rescued(path) {
        Some(name) => Ok(path.with_file_name(name)),
        None => Err(files_beside(path)),
    });
    let copy = Location::Sqlite(copy.await);
    let copy = Store::open(&copy, &scratch.tasks).await.unwrap();
    assert_eq!(copy.settle(settlement(job, 1)).await, Ok(Kudos(1000)));
    let other = copy.ledger_sums().await.unwrap();
    assert_eq!(other, SOUND, "only the first job is there");
    assert!(!store.is_reachable(), "it needs its operator");
}

fn files_beside(path: &Path) -> String {
    let entries = path.parent().unwrap().read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    format!("{:?}", names.collect::<Vec<_>>())
}

#[tokio::test]
async fn a_copy_of_a_lost_database_that_fails_is_tried_again() {
    let scratch = Scratch::sqlite();
    let Location::Sqlite(path) = &scratch.location else {
        unreachable!("it is a file")
    };
    let _store = scratch.open().await;
    let rescuer = Rescuer::open(&scratch.location).await.unwrap();
    let copy = path.with_extension("copy");
    let hindrance = copy.with_added_extension("part");
    std::fs::create_dir(&hindrance).unwrap();
    let companions = Companions::default();
    let remove = async { std::fs::remove_dir(&hindrance).unwrap() };
    tokio::join!(rescuer.rescue(&copy, &companions), remove);
    assert!(copy.is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_database_is_not_replaced_by_an_empty_one_beside_its_copy() {
    let scratch = Scratch::sqlite();
    let Location::Sqlite(path) = &scratch.location else {
        unreachable!("it is a file")
    };
    let name = path.file_name().unwrap().to_str().unwrap();
    let [older, latest] = [900, 1000].map(|time| format!("{name}.rescued-{time}"));
    for copy in [&older, &latest, &format!("{name}.rescued-2000.part")] {
        std::fs::write(path.with_file_name(copy), "").unwrap();
    }
    let refused = Store::open(&scratch.location, &scratch.tasks).await;
    assert_eq!(refused.err(), Some(StorageError::Rescued(latest)));
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_database_is_noticed_refused_and_rescued() {
    file_gone(|path| std::fs::remove_file(path).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_secret_that_is_deleted_with_its_database_is_written_again() {
    let scratch = Scratch::sqlite();
    let Location::Sqlite(path) = &scratch.location else {
        unreachable!("it is a file")
    };
    let store = scratch.open().await;
    let source = SecretSource::usual(&scratch.location, path);
    let opened = Accounts::open(store.clone(), &source, &scratch.tasks).await;
    opened.unwrap();
    let SecretSource::File(file) = &source else {
        unreachable!("it is a file")
    };
    let secret = std::fs::read_to_string(file).unwrap();
    for entry in path.parent().unwrap().read_dir().unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    until("a copy is made", || file::rescued(path).is_some()).await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), secret);
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_database_is_noticed_refused_and_rescued() {
    file_gone(|path| {
        let other = path.with_extension("other");
        std::fs::copy(path, &other).unwrap();
        std::fs::rename(other, path).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_log_of_the_database_is_noticed_refused_and_rescued() {
    file_gone(|path| {
        let log = format!("{}-wal", path.display());
        std::fs::remove_file(log).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_made_also_while_every_reader_is_taken() {
    let scratch = Scratch::sqlite();
    let Location::Sqlite(path) = &scratch.location else {
        unreachable!("it is a file")
    };
    let store = scratch.open().await;
    let mut taken = Vec::new();
    for _ in 0..READERS {
        taken.push(store.readers.acquire().await.unwrap());
    }
    std::fs::remove_file(path).unwrap();
    until("a copy is made", || file::rescued(path).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_put_back_is_written_again() {
    let scratch = Scratch::sqlite();
    let Location::Sqlite(path) = &scratch.location else {
        unreachable!("it is a file")
    };
    let store = scratch.open().await;
    let away = path.with_extension("away");
    std::fs::rename(path, &away).unwrap();
    until("it is noticed", || !store.is_reachable()).await;
    assert!(!path.exists(), "no connection made an empty database");
    std::fs::rename(&away, path).unwrap();
    until("it is noticed", || store.is_reachable()).await;
    let settled = store.settle(settlement(JobId::random(), 1)).await;
    assert_eq!(settled, Ok(Kudos(1000)));
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_written_is_noticed_before_anybody_writes() {
    let scratch = Scratch::sqlite();
    let store = scratch.open().await;
    let mut other = connect(&scratch.location).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    until("it is noticed", || {
        matches!(store.problem(), Some(StorageError::Locked(_)))
    })
    .await;
    other.execute("ROLLBACK").await.unwrap();
    until("it is noticed", || store.is_reachable()).await;
}

#[tokio::test]
async fn a_bad_write_does_not_fail_its_neighbours() {
    let scratch = Scratch::sqlite();
    let store = scratch.open().await;
    let (job, other) = (JobId::random(), JobId::random());
    let (before, bad, after) = tokio::join!(
        store.settle(settlement(job, 1)),
        store.change(Statement("INSERT INTO nowhere VALUES (1)")),
        store.settle(settlement(other, 2)),
    );
    assert_eq!((before, after), (Ok(Kudos(1000)), Ok(Kudos(2000))));
    assert!(matches!(bad, Err(StorageError::Refused(_))), "{bad:?}");
    assert!(store.is_reachable());
}

#[tokio::test]
async fn a_server_that_turned_read_only_is_connected_to_anew() {
    let scratch = Scratch::postgres().await;
    let store = scratch.open().await;
    let read_only = Statement("SET default_transaction_read_only = on");
    store.change(read_only).await.unwrap();
    let job = JobId::random();
    let refused = store.settle(settlement(job, 1)).await;
    assert_eq!(refused, Err(StorageError::ReadOnly));
    assert_eq!(store.settle(settlement(job, 1)).await, Ok(Kudos(1000)));
}

#[tokio::test]
async fn changed_keys_are_noticed_while_a_writer_that_failed_is_stuck() {
    let scratch = Scratch::postgres().await;
    let (here, there) = (scratch.open().await, scratch.open().await);
    let mut seen = here.keys_revision();
    here.health.note_write(&Err(StorageError::Full));
    let stuck = here.change(Statement("SELECT pg_sleep(4)"));
    let noticed = async {
        // The pulse has sent its probe, which is queued behind the sleep.
        sleep(Duration::from_millis(1000)).await;
        there.revoke_key("nobody", UnixMillis(1)).await.unwrap();
        timeout(Duration::from_secs(1), seen.changed()).await
    };
    let (stuck, noticed) = tokio::join!(stuck, noticed);
    stuck.unwrap();
    noticed.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_down_and_back_is_survived() {
    let server = OwnServer::unstarted();
    let location = server.start();
    let tasks = Tasks::default();
    let store = Store::open(&location, &tasks).await.unwrap();
    let accounts = Accounts::open(
        store.clone(),
        &SecretSource::Given("a secret of 32 characters and more".to_owned()),
        &tasks,
    )
    .await
    .unwrap();
    let key = accounts.first_start().await.unwrap().unwrap();
    let key = key.text.expose();
    accounts.authenticate(key).await.unwrap();
    store.settle(settlement(JobId::random(), 1)).await.unwrap();

    server.kill();
    let job = JobId::random();
    let lost = store.settle(settlement(job, 2)).await;
    assert!(
        matches!(lost, Err(StorageError::Unreachable(_))),
        "{lost:?}"
    );
    until("it is noticed", || !store.is_reachable()).await;
    assert!(accounts.authenticate(key).await.is_ok(), "known keys go on");
    let stranger = accounts
        .authenticate("aaaaaaaaaaaaaaaaaaaaaa")
        .await
        .unwrap_err();
    assert_eq!(
        stranger,
        Denied::Unavailable,
        "nobody can say that it is wrong"
    );

    server.start();
    until("it is noticed", || store.is_reachable()).await;
    assert_eq!(store.settle(settlement(job, 2)).await, Ok(Kudos(2000)));
    assert_eq!(store.settle(settlement(job, 2)).await, Ok(Kudos(2000)));
    let stranger = accounts
        .authenticate("aaaaaaaaaaaaaaaaaaaaaa")
        .await
        .unwrap_err();
    assert_eq!(stranger, Denied::UnknownKey);
    assert_eq!(store.ledger_sums().await.unwrap(), SOUND);
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    eventually(what, async || is_so()).await;
}
