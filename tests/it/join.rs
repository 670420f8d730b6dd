//! A worker joins a coordinator of its owner's network: an own certificate, a token, one command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use muster_testing::{Lines, eventually_blocking};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::worker::{Run, Worker, worker};

/// A coordinator that a test started, and its folder.
struct Coordinator {
    child: Child,
    folder: TempDir,
    ready: Value,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Coordinator {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_str().unwrap();
        let usual = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--json",
            "--data-dir",
            data,
        ];
        let mut command = worker(&[&usual[..], more].concat()).command();
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = piped.spawn().unwrap();
        let mut stdout = Lines::of(child.stdout.take().unwrap());
        Self {
            child,
            ready: serde_json::from_str(&stdout.next_line()).unwrap(),
            folder,
        }
    }

    fn key(&self, arguments: &[&str]) -> Run {
        let data = self.folder.path().to_str().unwrap();
        worker(&[&["key"], arguments, &["--data-dir", data]].concat()).run()
    }

    fn token(&self, more: &[&str]) -> String {
        let token = self.key(&[&["join"], more].concat()).ok();
        token.trim_end().to_owned()
    }

    fn fingerprint(&self) -> &str {
        self.ready["certificate_sha256"].as_str().unwrap()
    }
}

/// The machine of a GPU's owner.
struct Owner(TempDir);

impl Owner {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn types(&self, arguments: &[&str]) -> Worker {
        worker(arguments)
            .inside(self.0.path())
            .env("HOME", self.0.path().to_str().unwrap())
            // The model that is part of the program fits everywhere.
            .env("HF_HUB_OFFLINE", "1")
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("worker.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

/// The log of a worker up to a line with these words.
fn log_until(worker: Worker, words: &str) -> String {
    let mut command: Command = worker.command();
    let piped = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let log = Lines::of(child.stderr.take().unwrap()).until(words);
    child.kill().unwrap();
    child.wait().unwrap();
    log
}

#[test]
fn one_line_joins_a_coordinator_with_its_own_certificate() {
    let coordinator = Coordinator::start(&["--self-signed"]);
    let url = coordinator.ready["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let key = coordinator.folder.path().join("self-signed.key");
    assert_eq!(mode(&key), 0o600);

    let owner = Owner::new();
    let token = coordinator.token(&["--worker", "attic"]);
    let told = owner.types(&["join", &token]).run().ok();
    assert!(told.contains(&format!("joined {url} as attic")), "{told}");
    assert!(told.contains("next: worker --config worker.toml"), "{told}");
    assert_eq!(mode(&owner.file()), 0o600);
    let text = owner.text();
    assert!(text.contains(coordinator.fingerprint()), "{text}");
    assert!(text.contains("serve = [\"demo-text\"]"), "{text}");

    let address = url.trim_start_matches("https://");
    let running = owner.types(&["--config", "worker.toml"]);
    let log = log_until(running, "connected to");
    assert!(log.contains(&format!("connected to {address}")), "{log}");

    let report = owner
        .types(&["doctor", "--config", "worker.toml"])
        .run()
        .ok();
    for line in [
        "the certificate matches the pinned one",
        "the key is accepted, and the name attic belongs to the key's account",
        "matches the coordinator's clock",
        "socket: jobs arrive over one connection",
    ] {
        assert!(report.contains(line), "{line:?} is not in:\n{report}");
    }

    owner
        .types(&["join", &token])
        .run()
        .fails(73, "already has the coordinator https://127.0.0.1");
}

#[test]
fn the_key_of_a_join_token_only_connects_workers() {
    let coordinator = Coordinator::start(&["--self-signed"]);
    coordinator.token(&[]);
    let keys: Value = serde_json::from_str(&coordinator.key(&["list", "--json"]).ok()).unwrap();
    let keys = keys.as_array().unwrap();
    let joins = keys.iter().filter(|key| key["label"] == "worker key join");
    let scopes: Vec<&Value> = joins.map(|key| &key["scopes"]).collect();
    assert_eq!(scopes, [&serde_json::json!(["worker.connect"])]);
}

#[test]
fn a_worker_whose_key_belongs_to_another_one_says_so_with_the_remedy() {
    let coordinator = Coordinator::start(&["--self-signed"]);
    let owner = Owner::new();
    let token = coordinator.token(&["--worker", "attic"]);
    owner.types(&["join", &token]).run().ok();
    // The coordinator knows the worker of the key from now on.
    log_until(owner.types(&["--config", "worker.toml"]), "connected to");
    let text = owner.text().replace("\"attic\"", "\"cellar\"");
    assert!(text.contains("cellar"), "{text}");
    fs::write(owner.file(), text).unwrap();

    let mut command = owner.types(&["--config", "worker.toml"]).command();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let status = ["status", "--config", "worker.toml", "--json"];
    let cause = eventually_blocking("the cause", || {
        let run = owner.types(&status).command().output().unwrap();
        let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
        let cause = report["worker"]["no_jobs"][0].clone();
        match cause["text"].as_str().unwrap_or_default().contains("attic") {
            true => Ok(cause),
            false => Err(report),
        }
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(cause["cause"], "key_of_another_worker", "{cause}");
    let remedy = cause["remedy"].as_str().unwrap();
    assert!(remedy.contains("set name = \"attic\""), "{remedy}");
}

#[test]
fn another_certificate_than_the_pinned_one_is_refused_with_both_fingerprints() {
    let coordinator = Coordinator::start(&["--self-signed"]);
    let owner = Owner::new();
    owner.types(&["join", &coordinator.token(&[])]).run().ok();
    let other = "0f".repeat(32);
    let text = owner.text().replace(coordinator.fingerprint(), &other);
    fs::write(owner.file(), text).unwrap();

    let run = owner.types(&["doctor", "--config", "worker.toml"]).run();
    let line = run
        .stdout
        .lines()
        .find(|line| line.contains("coordinator TLS"));
    let line = line.unwrap().to_owned();
    assert!(line.starts_with("fail"), "{line}");
    assert!(
        line.contains(coordinator.fingerprint()) && line.contains(&other),
        "{line}"
    );
    run.fails(1, "1 check failed");
    let log = log_until(owner.types(&["--config", "worker.toml"]), "reconnecting in");
    assert!(log.contains("does not match the pinned one"), "{log}");
}

#[test]
fn joining_says_why_it_failed_and_writes_nothing() {
    let coordinator = Coordinator::start(&[]);
    let url = coordinator.ready["url"].as_str().unwrap().to_owned();
    let token = coordinator.token(&[]);
    drop(coordinator);
    let owner = Owner::new();
    let said = owner.types(&["join", &token]).run().fails(69, &url);
    assert!(said.contains("connection refused"), "{said}");
    assert!(!owner.file().exists());
    owner
        .types(&["join", &token[..30]])
        .run()
        .fails(2, "copy all of it");
    owner.types(&["join", &token, "--unchecked"]).run().ok();
    assert!(owner.text().contains(&url));
}

#[test]
fn doctor_says_that_a_key_is_unknown_and_that_tls_is_missing() {
    let coordinator = Coordinator::start(&[]);
    let url = coordinator.ready["url"].as_str().unwrap().to_owned();
    let owner = Owner::new();
    let failing = |url: &str| {
        let text = format!(
            "[[coordinator]]\nurl = {url:?}\nkey = {:?}\n",
            "A".repeat(22)
        );
        fs::write(owner.file(), text).unwrap();
        fs::set_permissions(owner.file(), fs::Permissions::from_mode(0o600)).unwrap();
        let run = owner.types(&["doctor", "--config", "worker.toml"]).run();
        let lines = run
            .stdout
            .lines()
            .skip_while(|line| !line.starts_with("fail"));
        let lines: Vec<String> = lines.take(2).map(str::to_owned).collect();
        run.fails(1, "1 check failed");
        lines.join("\n")
    };
    let unknown = failing(&url);
    assert!(unknown.contains("does not accept the key"), "{unknown}");
    assert!(unknown.contains("worker key join"), "{unknown}");
    let plain = failing(&url.replace("http://", "https://"));
    assert!(plain.contains("does not use TLS"), "{plain}");
    assert!(plain.contains("ws:// or http://"), "{plain}");
}

#[test]
fn a_file_with_a_key_that_others_can_read_is_warned_of_and_fails_doctor() {
    let owner = Owner::new();
    let text = "[[coordinator]]\nurl = \"ws://127.0.0.1:9\"\nkey = \"secret-key\"\n";
    fs::write(owner.file(), text).unwrap();
    fs::set_permissions(owner.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let log = log_until(owner.types(&["--config", "worker.toml"]), "chmod 600");
    assert!(log.contains("coordinator[1].key"), "{log}");
    assert!(!log.contains("secret-key"), "{log}");
    let doctor = || {
        owner
            .types(&["doctor", "--offline", "--config", "worker.toml"])
            .run()
    };
    let run = doctor();
    assert!(run.stdout.contains("fail  secrets"), "{run:?}");
    run.fails(1, "1 check failed");
    fs::set_permissions(owner.file(), fs::Permissions::from_mode(0o600)).unwrap();
    doctor().ok();
}

#[test]
fn init_writes_the_coordinator_it_is_given_for_its_owners_eyes_only() {
    let owner = Owner::new();
    let told = owner.types(&["init", "--yes"]).run().ok();
    assert!(told.contains("next: worker join TOKEN"), "{told}");
    let join = ["--join", "wss://muster.example", "--key", "file:key"];
    fs::write(owner.0.path().join("key"), "k").unwrap();
    let told = owner
        .types(&[&["init", "--yes", "--force"], &join[..]].concat())
        .run()
        .ok();
    assert!(!told.contains("worker join"), "{told}");
    assert_eq!(mode(&owner.file()), 0o600);
    let text = owner.text();
    let section = "[[coordinator]]\nurl = \"wss://muster.example\"\nkey = \"file:key\"\n";
    assert!(text.contains(section), "{text}");
    owner
        .types(&["init", "--yes", "--force", "--join", "wss://muster.example"])
        .run()
        .fails(2, "--join needs a key");
    owner
        .types(&[
            "init", "--yes", "--force", "--join", "nonsense", "--key", "k",
        ])
        .run()
        .fails(2, "found nonsense");
    let said = owner
        .types(&[
            "init",
            "--yes",
            "--force",
            "--join",
            "ws://muster.example",
            "--key",
            "k",
        ])
        .run()
        .fails(78, "insecure = true");
    assert!(
        said.contains("worker.toml:") && !said.contains("draft"),
        "{said}"
    );
}
