//! A private database for a test, and settlements for it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;
use uuid::Uuid;

use crate::dispatch::Timing;
use crate::kudos::{Entry, FEE, HOUSE, Reason, Settlement, State};
use crate::storage::{LedgerSums, Location, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, RequestId, UnixMillis, Usage, WorkerId};

pub struct Scratch {
    pub location: Location,
    /// Deleted when dropped.
    _folder: TempDir,
    pub tasks: Tasks,
}

impl Scratch {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            location: Location::in_folder(folder.path()),
            _folder: folder,
            tasks: Tasks::default(),
        }
    }

    pub async fn postgres() -> Self {
        let server = std::env::var("MUSTER_TEST_POSTGRES").expect(
            "MUSTER_TEST_POSTGRES is not set: `./test tests` starts a PostgreSQL and sets it, \
             docs/contributing.md says how to run one test by hand",
        );
        let database = format!("muster_{}", Uuid::new_v4().simple());
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(&server).await.unwrap();
        let create = AssertSqlSafe(format!("CREATE DATABASE {database}"));
        connection.execute(create).await.unwrap();
        let (server, _) = server.rsplit_once('/').expect("a URL with a database");
        Self {
            location: Location::parse(&format!("{server}/{database}")).unwrap(),
            _folder: tempfile::tempdir().unwrap(),
            tasks: Tasks::default(),
        }
    }

    pub async fn open(&self) -> Store {
        Store::open(&self.location, &self.tasks).await.unwrap()
    }
}

/// A job of account 1, served by account 2 for this reward.
pub fn settlement(job: JobId, kudos: i64) -> Settlement {
    let entry = |account, worker, reason, amount| Entry {
        account: AccountId(account),
        worker,
        reason,
        amount: Kudos(amount),
    };
    let (reward, charge) = (kudos * 1000, kudos * 1000 + FEE.0);
    Settlement {
        job,
        request: RequestId::random(),
        account: AccountId(1),
        shared_key: None,
        worker: Some(WorkerId(7)),
        kind: Kind::Text,
        model: "demo-text".into(),
        state: State::Delivered,
        reason: "stop",
        attempts: 1,
        usage: Usage::default(),
        size: 16,
        paid_tokens: 10,
        reward: Kudos(reward),
        charge: Kudos(charge),
        cost: None,
        timing: Timing {
            accepted_at: UnixMillis(1_700_000_000_000),
            queued: Some(Duration::from_millis(1)),
            first_output: None,
            total: Duration::from_millis(20),
        },
        entries: vec![
            entry(1, None, Reason::Charge, -charge),
            entry(2, Some(WorkerId(7)), Reason::Reward, reward),
            entry(HOUSE.0, None, Reason::Fee, FEE.0),
        ],
        result: None,
    }
}

/// Invariants of every ledger.
pub const SOUND: LedgerSums = LedgerSums {
    entries: Kudos(0),
    balances: Kudos(0),
    wrong_jobs: 0,
    wrong_balances: 0,
};

/// A PostgreSQL server for one test.
pub struct OwnServer {
    folder: TempDir,
}

impl OwnServer {
    /// If the test runs as root, the server runs as another user.
    pub fn unstarted() -> Self {
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(readable).tempdir();
        Self {
            folder: folder.unwrap(),
        }
    }

    pub fn start(&self) -> Location {
        Location::parse(&self.run("start")).unwrap()
    }

    /// Kills the server without a clean shutdown.
    pub fn kill(&self) {
        self.run("kill");
    }

    fn run(&self, verb: &str) -> String {
        let script =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/postgres");
        let run = Command::new(script)
            .arg(verb)
            .arg(self.folder.path().join("server"))
            .output();
        let run = run.unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.run("stop");
    }
}
