//! What is measured: a program of its own that says in one line of JSON where it is.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

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
            .env("MUSTER_SERVE_QUEUE", "200000");
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

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
