//! The measured service: a separate program that reports its address in one line of JSON.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};

/// A running server, killed when it is dropped.
pub struct Service {
    child: Child,
    pub name: &'static str,
    pub address: SocketAddr,
    pub key: String,
    _folder: tempfile::TempDir,
}

impl Service {
    /// The coordinator, on an empty store.
    pub fn coordinator() -> Self {
        Self::serve(&[])
    }

    /// The same without limits of rate and number, as for tests of clients.
    pub fn dev() -> Self {
        Self::serve(&["--dev"])
    }

    fn serve(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command
            .args([
                "serve",
                "--json",
                "--quiet",
                "--listen",
                "127.0.0.1:0",
                "--data-dir",
            ])
            .arg(folder.path())
            .args(more)
            .env("MUSTER_SERVE_QUEUE", "200000")
            // All clients have one key.
            .env("MUSTER_SERVE_TEXTS_IN_FLIGHT", "0");
        if std::env::args().any(|word| word == "postgres") {
            command.env("MUSTER_SERVE_DATABASE", database());
        }
        Self::start("muster", command, folder)
    }

    /// A peer: this program again.
    pub fn peer(name: &'static str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(format!("peer-{name}"));
        Self::start(name, command, tempfile::tempdir().unwrap())
    }

    fn start(name: &'static str, mut command: Command, folder: tempfile::TempDir) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).expect("the server says where it is");
        let address = ready["url"].as_str().unwrap().trim_start_matches("http://");
        Self {
            name,
            address: address.parse().unwrap(),
            key: ready["api_key"].as_str().unwrap_or("none").to_owned(),
            child,
            _folder: folder,
        }
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    /// Processor time used so far, in seconds.
    pub fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        ticks as f64 / 100.0
    }
}

/// A new one, on the server that the tests use.
fn database() -> String {
    let server = std::env::var("MUSTER_TEST_POSTGRES")
        .expect("MUSTER_TEST_POSTGRES is not set: tests/postgres starts one and prints its URL");
    let (host, _) = server.rsplit_once('/').expect("a URL with a database");
    let name = format!("load_{}", uuid::Uuid::new_v4().simple());
    let url = format!("{host}/{name}");
    // The caller already runs in a runtime.
    let create = async move {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(&server).await.unwrap();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        connection.execute(create).await.unwrap();
    };
    let created = std::thread::spawn(|| tokio::runtime::Runtime::new().unwrap().block_on(create));
    created.join().unwrap();
    url
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
