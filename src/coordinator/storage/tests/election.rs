//! Leader election: which process takes over, when, and the abilities of an earlier leader afterwards.

use std::time::{Duration, Instant};

use muster_testing::eventually;
use sqlx::{AnyConnection, Executor, Row};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::scratch::{OwnServer, SOUND, Scratch, settlement};
use crate::leadership::{Epoch, Leadership, Tenure};
use crate::storage::{
    CreditHold, CreditOutcome, Dues, Hold, Leader, Location, Purse, RequestCount, RequestRow,
    StorageError, Store, Wanted, connect, lead,
};
use muster_process::tasks::Tasks;
use muster_protocol::job::{
    AccountId, JobId, Kind, Kudos, MicroUsd, RequestId, SharedKeyId, UnixMillis,
};

const NOON: UnixMillis = UnixMillis(1_700_000_000_000);

/// A coordinator without its other parts.
struct ElectedStore {
    leadership: Leadership,
    store: Store,
    tasks: Tasks,
}

impl ElectedStore {
    async fn lead(location: &Location) -> Self {
        Self::lead_or_wait(location, |_| {}).await
    }

    async fn lead_or_wait(location: &Location, waiting: impl FnMut(Option<&Leader>)) -> Self {
        let tasks = Tasks::default();
        let leadership = lead(location, waiting, &tasks).await.unwrap();
        let opened = Store::open_as(leadership.clone(), location, &tasks).await;
        Self {
            leadership,
            store: opened.unwrap(),
            tasks,
        }
    }

    /// A standby, which leads when no other node does.
    async fn stand_by(location: &Location) -> tokio::task::JoinHandle<Self> {
        let location = location.clone();
        let (told, waits) = oneshot::channel();
        let mut told = Some(told);
        let waiting = move |_: Option<&Leader>| {
            if let Some(told) = told.take() {
                told.send(()).unwrap();
            }
        };
        let standby = async move { Self::lead_or_wait(&location, waiting).await };
        let standby = Tasks::default().start(standby);
        timeout(Duration::from_secs(60), waits)
            .await
            .unwrap()
            .unwrap();
        standby
    }

    async fn writes(&self) -> Result<Kudos, StorageError> {
        self.store.settle(settlement(JobId::random(), 1)).await
    }

    async fn stop(self) {
        assert!(self.tasks.stop(Duration::from_secs(10)).await);
    }
}

async fn run(connection: &mut AnyConnection, query: &'static str) -> i64 {
    let row = connection.fetch_one(query).await.unwrap();
    row.try_get(0).unwrap()
}

/// Number of sessions that hold the lock.
const LOCKED: &str = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 778402 AND granted \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
const END_LOCK_HOLDERS: &str = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_locks \
     WHERE locktype = 'advisory' AND classid = 778402 AND granted \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_waits_and_takes_over_within_seconds_of_the_leaders_stop() {
    let scratch = Scratch::postgres().await;
    let first = ElectedStore::lead(&scratch.location).await;
    let standby = ElectedStore::stand_by(&scratch.location).await;
    sleep(Duration::from_secs(1)).await;
    assert!(!standby.is_finished());
    first.writes().await.unwrap();
    let stopped = Instant::now();
    let ((), next) = tokio::join!(first.stop(), standby);
    let next = next.unwrap();
    assert!(stopped.elapsed() < Duration::from_secs(3));
    assert!(next.leadership.epoch() > Epoch(1));
    next.writes().await.unwrap();
    // Each schema has its own leader.
    let other = Scratch::postgres().await;
    let other = timeout(Duration::from_secs(5), ElectedStore::lead(&other.location)).await;
    other.unwrap().writes().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_leader_writes_nothing() {
    let scratch = Scratch::postgres().await;
    let first = ElectedStore::lead(&scratch.location).await;
    first.writes().await.unwrap();
    let mut connection = connect(&scratch.location).await.unwrap();
    // The writes of an election.
    for statement in [
        "INSERT INTO coordinators (epoch, renewed_at) VALUES (100, 0)",
        "DELETE FROM coordinators WHERE epoch < 100",
    ] {
        connection.execute(statement).await.unwrap();
    }
    let before = run(&mut connection, "SELECT COUNT(*) FROM settled").await;
    assert_eq!(first.writes().await, Err(StorageError::Fenced));
    let after = run(&mut connection, "SELECT COUNT(*) FROM settled").await;
    assert_eq!(before, after);
    timeout(Duration::from_secs(5), first.leadership.fenced())
        .await
        .unwrap();
    assert_eq!(first.store.problem(), Some(StorageError::Fenced));
    assert!(!first.store.is_reachable());
    // A command beside the leader may write.
    let tasks = Tasks::default();
    let command = Store::open(&scratch.location, &tasks).await.unwrap();
    let settled = command.settle(settlement(JobId::random(), 1)).await;
    assert_eq!(settled, Ok(Kudos(1000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_ends_a_batch_that_stands_still_within_seconds() {
    let scratch = Scratch::postgres().await;
    let first = ElectedStore::lead(&scratch.location).await;
    let mut batch = connect(&scratch.location).await.unwrap();
    batch.execute("BEGIN").await.unwrap();
    batch
        .execute("SELECT epoch FROM coordinators FOR KEY SHARE")
        .await
        .unwrap();
    // Renewals do not wait for the batch.
    let mut other = connect(&scratch.location).await.unwrap();
    let renewed = other.execute("UPDATE coordinators SET renewed_at = renewed_at + 1");
    timeout(Duration::from_secs(1), renewed)
        .await
        .unwrap()
        .unwrap();
    let began = Instant::now();
    let deleted = timeout(
        Duration::from_secs(10),
        other.execute("DELETE FROM coordinators"),
    )
    .await;
    deleted.unwrap().unwrap();
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(500), "{waited:?}");
    assert!(waited < Duration::from_secs(4), "{waited:?}");
    assert!(batch.execute("COMMIT").await.is_err(), "its session ended");
    assert_eq!(first.writes().await, Err(StorageError::Fenced));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_connection_leaves_one_leader() {
    let scratch = Scratch::postgres().await;
    let first = ElectedStore::lead(&scratch.location).await;
    let standby = ElectedStore::stand_by(&scratch.location).await;
    let mut connection = connect(&scratch.location).await.unwrap();
    // The standby holds the lock briefly at each check, so either session may be ended.
    assert!(run(&mut connection, END_LOCK_HOLDERS).await > 0);
    let next = match timeout(Duration::from_secs(4), standby).await {
        Ok(next) => Some(next.unwrap()),
        Err(_) => None,
    };
    match next {
        Some(next) => {
            assert_eq!(first.writes().await, Err(StorageError::Fenced));
            assert_eq!(next.writes().await, Ok(Kudos(1000)));
        }
        None => {
            assert_eq!(first.leadership.tenure(), Tenure::Leading);
            assert_eq!(first.writes().await, Ok(Kudos(1000)));
            eventually("the leader to hold its lock again", async || {
                (run(&mut connection, LOCKED).await > 0)
                    .then_some(())
                    .ok_or("not locked")
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_beside_a_standby_has_one_leader() {
    let server = OwnServer::unstarted();
    let location = server.start();
    let first = ElectedStore::lead(&location).await;
    let standby = ElectedStore::stand_by(&location).await;
    server.kill();
    eventually("the leader to pause", async || {
        (first.leadership.tenure() == Tenure::Paused)
            .then_some(())
            .ok_or("it leads")
    })
    .await;
    assert_eq!(first.store.problem(), Some(StorageError::Paused));
    server.start();
    // The leader reconnects before the standby may take over.
    eventually("the leader to go on", async || {
        (first.leadership.tenure() == Tenure::Leading && first.store.is_reachable())
            .then_some(())
            .ok_or(first.leadership.tenure())
    })
    .await;
    // A batch may fail on a connection that the server has closed, without any write.
    let written = eventually("the leader to write again", async || {
        let written = first.writes().await;
        match &written {
            Err(StorageError::Unreachable(_)) => None,
            _ => Some(written),
        }
    })
    .await;
    assert_eq!(written, Ok(Kudos(1000)));
    assert!(!standby.is_finished());
    let ((), next) = tokio::join!(first.stop(), standby);
    assert_eq!(next.unwrap().writes().await, Ok(Kudos(1000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_a_new_epoch_with_each_start() {
    let scratch = Scratch::sqlite();
    let first = ElectedStore::lead(&scratch.location).await;
    assert_eq!(first.leadership.epoch(), Epoch(1));
    assert_eq!(first.writes().await, Ok(Kudos(1000)));
    first.stop().await;
    let next = ElectedStore::lead(&scratch.location).await;
    assert_eq!(next.leadership.epoch(), Epoch(2));
    assert_eq!(next.leadership.tenure(), Tenure::Leading);
    assert_eq!(next.writes().await, Ok(Kudos(1000)));
}

fn credit_hold(job: JobId) -> CreditHold {
    CreditHold {
        account: AccountId(1),
        jobs: vec![(job, MicroUsd(10))],
        allowance: MicroUsd(1000),
        count: RequestCount::Uncounted,
        now: NOON,
    }
}

async fn what_a_fenced_coordinator_has_left_goes_to_the_next_and_nothing_of_a_living_one(
    scratch: Scratch,
) {
    let first = ElectedStore::lead(&scratch.location).await;
    let row = RequestRow {
        id: RequestId::random(),
        account: AccountId(1),
        kind: Kind::Text,
        body: "{}".to_owned(),
        accepted_at: NOON,
        expires_at: UnixMillis(i64::MAX),
        wanted: Wanted::Everything,
        fee: Kudos(0),
    };
    let id = row.id;
    first.store.accept(row, Dues::default()).await.unwrap();
    let (stored, lost) = (JobId::random(), JobId::random());
    for job in [stored, lost] {
        let held = first.store.hold_credits(credit_hold(job)).await;
        assert_eq!(held, Ok(CreditOutcome::Held));
    }
    let hold = Hold {
        request: RequestId::random(),
        of: Purse::Key(SharedKeyId(uuid::Uuid::new_v4())),
        amount: Kudos(1),
        at: NOON,
    };
    // An unknown key.
    assert_eq!(first.store.hold(hold).await, Ok(false));
    // The coordinator of these rows still leads.
    first.store.succeed().await.unwrap();
    let released = first.store.release_credits_of_fenced(Vec::new()).await;
    assert_eq!(released, Ok(0));
    assert_eq!(first.store.open_requests(NOON).await.unwrap().len(), 1);
    first.stop().await;

    let next = ElectedStore::lead(&scratch.location).await;
    assert!(next.store.open_requests(NOON).await.unwrap().is_empty());
    next.store.succeed().await.unwrap();
    let open = next.store.open_requests(NOON).await.unwrap();
    assert_eq!(open[0].request.id, id);
    let released = next.store.release_credits_of_fenced(vec![stored]).await;
    assert_eq!(released, Ok(1));
    let again = next.store.release_credits_of_fenced(Vec::new()).await;
    assert_eq!(again, Ok(0), "the kept one has an owner who lives");
    assert_eq!(next.store.ledger_sums().await.unwrap(), SOUND);
}

super::on_both_engines!(
    what_a_fenced_coordinator_has_left_goes_to_the_next_and_nothing_of_a_living_one
);
