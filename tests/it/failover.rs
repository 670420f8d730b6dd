//! Two coordinators on one PostgreSQL: one serves, the other waits as its standby and takes over.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use muster::coordinator::storage::{Location, Store};
use muster::protocol::job::Kudos;
use muster::tasks::Tasks;
use muster_testing::{ended, eventually_blocking};
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection, Executor};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::killed::Process;
use crate::support::worker::worker;

/// Of a debug build, with the look of the standby and its start.
const TAKEOVER: Duration = Duration::from_millis(1500);
const SECRET: &str = "a secret of 32 characters and more";

/// A PostgreSQL of this test's own.
pub struct Server {
    folder: TempDir,
}

impl Server {
    /// The server runs as another user when the test is root's.
    pub fn new() -> Self {
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(readable).tempdir();
        Self {
            folder: folder.unwrap(),
        }
    }

    /// Starts the server and returns its address.
    pub fn start(&self) -> String {
        self.run("start")
    }

    fn run(&self, verb: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres");
        let folder = self.folder.path().join("server");
        let run = Command::new(script).arg(verb).arg(folder).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{said}");
        String::from_utf8(run.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.run("stop");
    }
}

/// `worker serve` on that database.
struct Node {
    process: Process,
    url: String,
    log: PathBuf,
}

impl Node {
    /// A standby says nothing of its address until it serves, so that it is chosen here.
    fn start(folder: &Path, name: &str, database: &str) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let (data, log) = (folder.join(name), folder.join(format!("{name}.log")));
        let mut command = worker(&["serve", "--listen", &address, "--data-dir"])
            .env("MUSTER_SERVE_DATABASE", database)
            .env("MUSTER_SERVE_SECRET", SECRET)
            .command();
        let command = command.arg(data).stdout(Stdio::null());
        let log_file = std::fs::File::create(&log).unwrap();
        let child = command.stderr(log_file).spawn().unwrap();
        Self {
            process: Process(child),
            url: format!("http://{address}"),
            log,
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.0.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.unwrap().success());
    }

    /// The status in `/health/ready`; empty without a reply.
    fn status(&self) -> String {
        let answer = curl(&["-s", "-m", "1", &format!("{}/health/ready", self.url)]);
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        answer["status"].as_str().unwrap_or_default().to_owned()
    }

    fn is_ready(&self) -> bool {
        self.status() == "ready"
    }

    fn until(&self, status: &str) {
        eventually_blocking("the status of a coordinator", || {
            let now = self.status();
            (now == status)
                .then_some(())
                .ok_or(format!("{now:?}, wanted {status:?}"))
        });
    }

    fn call(&self, key: &str, method: &str, path: &str, body: &Value) -> Value {
        let key = format!("apikey: {key}");
        let url = format!("{}/api/v2/generate/text/{path}", self.url);
        let body = body.to_string();
        let answer = curl(&[
            "-s", "-m", "20", "-X", method, "-d", &body, "-H", &key, &url,
        ]);
        serde_json::from_str(&answer).unwrap_or_default()
    }

    /// The request that it accepted.
    fn accept(&self, key: &str, jobs: u32) -> String {
        let asked = json!({"prompt": "Once", "models": ["any"], "params": {"n": jobs}});
        let accepted = self.call(key, "POST", "async", &asked);
        accepted["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{accepted}"))
            .to_owned()
    }

    fn pop(&self, key: &str) -> Value {
        let worker = json!({"name": "poller", "models": ["any"], "bridge_agent": "test:1:url"});
        self.call(key, "POST", "pop", &worker)
    }

    fn submit(&self, key: &str, popped: &Value, text: &str) -> Value {
        let brought = json!({"id": popped["id"], "generation": text});
        self.call(key, "POST", "submit", &brought)
    }

    /// How it ended, and its log.
    fn ended(mut self) -> (Option<i32>, String) {
        let code = ended(&mut self.process.0).code();
        (code, std::fs::read_to_string(&self.log).unwrap())
    }
}

fn curl(arguments: &[&str]) -> String {
    let out = Command::new("curl").args(arguments).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

/// A leader, its standby, and a key.
struct Pair {
    folder: TempDir,
    database: String,
    key: String,
    leader: Node,
    standby: Node,
}

impl Pair {
    fn start(database: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let leader = Node::start(folder.path(), "first", &database);
        leader.until("ready");
        let key = worker(&["key", "create", "--json", "--full"])
            .env("MUSTER_SERVE_DATABASE", &database)
            .env("MUSTER_SERVE_SECRET", SECRET)
            .env("MUSTER_WORKER_DATA_DIR", folder.path().to_str().unwrap())
            .run()
            .ok();
        let key: Value = serde_json::from_str(&key).unwrap();
        let standby = Node::start(folder.path(), "second", &database);
        standby.until("standby");
        Self {
            key: key["key"]
                .as_str()
                .unwrap_or_else(|| panic!("{key}"))
                .to_owned(),
            folder,
            database,
            leader,
            standby,
        }
    }
}

/// Every job was settled once, and the ledger is whole.
async fn assert_settled(database: &str, jobs: i64) {
    let location = Location::parse(database).unwrap();
    let tasks = Tasks::default();
    let store = Store::open(&location, &tasks).await.unwrap();
    let sums = store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.balances), (Kudos(0), Kudos(0)));
    assert_eq!((sums.wrong_jobs, sums.wrong_balances), (0, 0));
    let mut connection = AnyConnection::connect(database).await.unwrap();
    let row = connection.fetch_one("SELECT COUNT(*) FROM settled").await;
    let settled: i64 = sqlx::Row::try_get(&row.unwrap(), 0).unwrap();
    assert_eq!(settled, jobs);
    tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_within_a_second_of_the_leaders_death() {
    let server = Server::new();
    let pair = Pair::start(server.start());
    let id = pair.leader.accept(&pair.key, 2);
    let first = pair.leader.pop(&pair.key);
    let paid = pair.leader.submit(&pair.key, &first, "one");
    assert!(paid["reward"].is_number(), "{paid}");
    // A standby waits for ever, takes nothing and says so.
    let refused = pair.standby.call(&pair.key, "POST", "async", &json!({}));
    assert!(refused["id"].is_null(), "{refused}");
    let killed = Instant::now();
    drop(pair.leader);
    pair.standby.until("ready");
    let took = killed.elapsed();
    eprintln!("a killed leader was replaced in {took:?}");
    assert!(took < TAKEOVER, "{took:?}");
    let path = format!("status/{id}");
    let found = pair.standby.call(&pair.key, "GET", &path, &json!({}));
    assert_eq!(
        (&found["finished"], &found["waiting"]),
        (&json!(1), &json!(1)),
        "{found}"
    );
    let second = pair.standby.pop(&pair.key);
    let paid = pair.standby.submit(&pair.key, &second, "two");
    assert!(paid["reward"].is_number(), "{paid}");
    // The next one is a standby of the new leader.
    let next = Node::start(pair.folder.path(), "third", &pair.database);
    next.until("standby");
    assert!(pair.standby.is_ready());
    // A clean stop hands over as soon.
    pair.standby.signal("-TERM");
    next.until("ready");
    assert_eq!(pair.standby.ended().0, Some(0));
    assert_settled(&pair.database, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_is_replaced_within_seconds_writes_nothing_and_says_why() {
    let server = Server::new();
    let pair = Pair::start(server.start());
    pair.leader.accept(&pair.key, 2);
    let popped = pair.leader.pop(&pair.key);
    pair.leader.signal("-STOP");
    let stopped = Instant::now();
    pair.standby.until("ready");
    let took = stopped.elapsed();
    eprintln!("a leader that stood still was replaced in {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    // The worker submits jobs of the old leader to the new one.
    let paid = pair.standby.submit(&pair.key, &popped, "one");
    assert!(paid["reward"].is_number(), "{paid}");
    let second = pair.standby.pop(&pair.key);
    assert!(second["id"].is_string(), "{second}");
    while stopped.elapsed() < Duration::from_secs(10) {
        assert!(pair.standby.is_ready());
        sleep(Duration::from_millis(200)).await;
    }
    pair.leader.signal("-CONT");
    // Whatever it still answers is no reward and no job.
    let again = pair.leader.submit(&pair.key, &popped, "again");
    assert!(again["reward"].is_null(), "{again}");
    let third = pair.leader.pop(&pair.key);
    assert!(third["id"].is_null(), "{third}");
    let (code, log) = pair.leader.ended();
    assert!(code.is_some_and(|code| code != 0), "{code:?}\n{log}");
    assert!(
        log.contains("another coordinator has taken over the database"),
        "{log}"
    );
    let paid = pair.standby.submit(&pair.key, &second, "two");
    assert!(paid["reward"].is_number(), "{paid}");
    assert!(pair.standby.is_ready());
    assert_settled(&pair.database, 2).await;
}

/// Of one of two the coordinator that serves; the other does not, for as long as that takes.
async fn only_leader(one: Node, other: Node) -> Node {
    let mut both = [one, other];
    let mut leads = [false; 2];
    for _ in 0..100 {
        leads = [both[0].is_ready(), both[1].is_ready()];
        assert_ne!(leads, [true; 2], "both serve");
        sleep(Duration::from_millis(50)).await;
    }
    let leader = leads.iter().position(|leads| *leads);
    let leader = leader.expect("one of the two serves");
    both.swap(0, leader);
    let [leader, other] = both;
    let status = other.status();
    assert!(["", "standby"].contains(&status.as_str()), "{status}");
    leader
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_connection_leaves_one_coordinator() {
    let server = Server::new();
    let pair = Pair::start(server.start());
    pair.leader.accept(&pair.key, 1);
    let popped = pair.leader.pop(&pair.key);
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(&pair.database).await.unwrap();
    connection
        .execute("SELECT CAST(pg_terminate_backend(pid) AS INT) FROM pg_locks WHERE locktype = 'advisory' AND classid = 778402")
        .await
        .unwrap();
    let leader = only_leader(pair.leader, pair.standby).await;
    let paid = leader.submit(&pair.key, &popped, "one");
    assert!(paid["reward"].is_number(), "{paid}");
    assert_settled(&pair.database, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_beside_a_standby_leaves_one_coordinator() {
    let server = Server::new();
    let pair = Pair::start(server.start());
    pair.leader.accept(&pair.key, 1);
    let popped = pair.leader.pop(&pair.key);
    server.run("kill");
    pair.leader.until("degraded");
    // Nothing is given out and nothing taken meanwhile.
    assert!(pair.leader.pop(&pair.key)["id"].is_null());
    server.start();
    let leader = only_leader(pair.leader, pair.standby).await;
    let paid = leader.submit(&pair.key, &popped, "one");
    assert!(paid["reward"].is_number(), "{paid}");
    assert_settled(&pair.database, 1).await;
}
