//! A coordinator and a worker as their operator runs them: signals, a configuration that changes, files that go away.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_testing::{Lines, PATIENCE, ended, eventually_blocking};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::worker::worker;

/// A process that stays, killed when its test ends.
pub struct Running {
    child: Child,
    /// Standard error output.
    log: Lines,
    pub folder: Arc<TempDir>,
}

/// `worker serve` that is ready.
pub struct Serve {
    pub running: Running,
    pub address: String,
    pub key: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub fn start(arguments: &[&str], configuration: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::start_in(folder, arguments, configuration)
    }

    fn start_in(folder: Arc<TempDir>, arguments: &[&str], configuration: &str) -> Self {
        let file = folder.path().join("worker.toml");
        fs::write(&file, configuration).unwrap();
        let data = folder.path().join("data");
        let mut command = worker(arguments).command();
        command.arg("--config").arg(&file);
        command.arg("--data-dir").arg(&data);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Lines::of(child.stderr.take().unwrap());
        Self { child, log, folder }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("worker.toml")
    }

    /// The worker of this process, as `worker status` tells it.
    pub fn report(&self) -> Value {
        let data = self.folder.path().join("data");
        let said = worker(&["status", "--json", "--data-dir", data.to_str().unwrap()]);
        let report: Value = serde_json::from_str(&said.run().ok()).unwrap();
        report["worker"].clone()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args([name, &pid]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until the log says this.
    #[track_caller]
    pub fn wait_for(&mut self, words: &str) {
        self.log.until(words);
    }

    #[track_caller]
    pub fn ends(&mut self) -> Option<i32> {
        ended(&mut self.child).code()
    }
}

pub fn serve(configuration: &str) -> Serve {
    serve_at("127.0.0.1:0", configuration)
}

fn serve_at(listen: &str, configuration: &str) -> Serve {
    let arguments = ["serve", "--json", "--listen", listen];
    let mut running = Running::start(&arguments, configuration);
    let line = Lines::of(running.child.stdout.take().unwrap()).next_line();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
        running.wait_for("error");
        panic!("it is not ready:\n{}", running.log.text())
    });
    let url = ready["url"].as_str().unwrap();
    Serve {
        running,
        address: url.split_once("://").unwrap().1.to_owned(),
        key: ready["api_key"].as_str().unwrap().to_owned(),
    }
}

/// The whole answer to one request.
pub fn ask(address: &str, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Serve {
    pub fn get(&self, path: &str) -> String {
        ask(&self.address, "GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        let headers = format!("apikey: {}\r\ncontent-type: application/json\r\n", self.key);
        ask(&self.address, "POST", path, &headers, body)
    }

    fn chat(&self) -> String {
        let body = r#"{"model": "demo-text", "messages": [{"role": "user", "content": "hi"}]}"#;
        self.post("/v1/chat/completions", body)
    }

    /// Waits until a path answers with this status.
    #[track_caller]
    fn wait_for_status(&self, path: &str, status: u16) -> String {
        eventually_blocking(path, || {
            let answer = self.get(path);
            match answer.starts_with(&format!("HTTP/1.1 {status} ")) {
                true => Ok(answer),
                false => Err(answer),
            }
        })
    }

    fn data(&self) -> PathBuf {
        self.running.folder.path().join("data")
    }
}

#[test]
fn sighup_reloads_the_configuration_and_names_what_needs_a_restart() {
    let mut serve = serve("[worker]\nlog_level = \"info\"\n");
    assert!(!serve.chat().contains("\nx-ratelimit-limit-requests:"));
    let secret = serve.running.folder.path().join("secret");
    fs::write(&secret, "0123456789abcdef".repeat(4)).unwrap();
    let changed = format!(
        "[worker]\nlog_level = \"debug\"\n[serve]\nrequests_per_minute = 7\nretention_days = 5\n\
         secret = \"file:{}\"\n",
        secret.display()
    );
    fs::write(serve.running.file(), changed).unwrap();
    serve.running.signal("-HUP");
    serve
        .running
        .wait_for("configuration reloaded: serve.requests_per_minute, worker.log_level changed");
    serve
        .running
        .wait_for("restart to apply these changed settings: serve.retention_days, serve.secret");
    let limit = "\nx-ratelimit-limit-requests: 7";
    assert!(serve.chat().contains(limit));

    fs::write(serve.running.file(), "[serve]\nretention_days = \"many\"\n").unwrap();
    serve.running.signal("-HUP");
    serve
        .running
        .wait_for("reloading the configuration failed, keeping the old one");
    assert!(serve.chat().contains(limit));
    serve.running.signal("-TERM");
    assert_eq!(serve.running.ends(), Some(0));
}

#[test]
fn a_model_answers_to_an_alias_of_the_configuration() {
    let serve = serve("[[serve.alias]]\nname = \"gpt-4o-mini\"\nmodel = \"demo-text\"\n");
    let worker = format!(
        "[models]\nserve = [\"demo-text\"]\n[[coordinator]]\nurl = \"ws://{}\"\nkey = {:?}\n",
        serve.address, serve.key
    );
    let _worker = Running::start(&[], &worker);
    let shown = serve.wait_for_status("/v1/models/gpt-4o-mini", 200);
    assert!(shown.contains("\"id\":\"demo-text\""), "{shown}");
    let body = r#"{"model": "gpt-4o-mini", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}"#;
    let answer = serve.post("/v1/chat/completions", body);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("\"model\":\"demo-text\""), "{answer}");
}

#[test]
fn sigusr1_and_sigusr2_end_nothing() {
    let mut serve = serve("");
    let mut worker = Running::start(&[], "");
    worker.wait_for("SIGHUP reloads the configuration");
    for name in ["-USR1", "-USR2"] {
        serve.running.signal(name);
        worker.signal(name);
    }
    serve.wait_for_status("/health/ready", 200);
    for running in [&mut serve.running, &mut worker] {
        assert!(running.child.try_wait().unwrap().is_none());
        running.signal("-TERM");
        assert_eq!(running.ends(), Some(0));
    }
}

#[test]
fn an_idle_coordinator_stops_within_a_second() {
    let mut serve = serve("");
    serve.wait_for_status("/health/ready", 200);
    let asked = Instant::now();
    serve.running.signal("-TERM");
    assert_eq!(serve.running.ends(), Some(0));
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_coordinator_needs_no_home() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut command = worker(&["serve", "--json", "--listen", "127.0.0.1:0"]).command();
    command.arg("--data-dir").arg(&data).env_remove("HOME");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let ready = Lines::of(child.stdout.take().unwrap()).next_line();
    assert!(ready.contains("\"url\""), "{ready}");
    let mut running = Running {
        log: Lines::of(child.stderr.take().unwrap()),
        child,
        folder: Arc::new(folder),
    };
    running.wait_for(&format!("the data folder is {}", data.display()));
    running.signal("-TERM");
    assert_eq!(running.ends(), Some(0));
    // Where none is named it is below the home folder of the user database, or of services.
    let shown = worker(&["config", "check"])
        .command()
        .env_remove("HOME")
        .output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    assert!(shown.contains("/.local/share/muster"), "{shown}");
}

#[test]
fn a_full_disk_refuses_the_first_request_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // A disk of its own, that goes with the process.
    let own_disk = |command: &str| {
        let script = format!("mount -t tmpfs -o size=64m none \"$0\" && exec {command}");
        let mut own = Command::new("unshare");
        own.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(&disk);
        own.stdin(Stdio::null());
        own
    };
    if !own_disk("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("skipped: this machine lets no process mount a disk for itself");
        return;
    }
    let program = worker(&["serve", "--json", "--listen", "127.0.0.1:0", "--data-dir"]).command();
    let mut command = own_disk("\"$@\"");
    command
        .arg(program.get_program())
        .args(program.get_args())
        .arg(disk.join("data"));
    command.env("HOME", "/nonexistent").stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let ready = Lines::of(child.stdout.take().unwrap()).next_line();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let mut serve = Serve {
        address: ready["url"]
            .as_str()
            .unwrap()
            .split_once("://")
            .unwrap()
            .1
            .to_owned(),
        key: ready["api_key"].as_str().unwrap().to_owned(),
        running: Running {
            log: Lines::of(child.stderr.take().unwrap()),
            child,
            folder: Arc::new(folder),
        },
    };
    serve.wait_for_status("/health/ready", 200);
    let inside = format!("/proc/{}/root{}", serve.running.child.id(), disk.display());
    let filler = Path::new(&inside).join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 1 << 16]).is_ok() {}
    drop(file);
    serve.running.wait_for("the disk of the database is full");
    let began = std::time::Instant::now();
    let refused = serve.chat();
    assert!(
        refused.starts_with("HTTP/1.1 503 ")
            && refused.contains("the disk of the database is full"),
        "{refused}"
    );
    assert!(began.elapsed() < std::time::Duration::from_secs(1));
    serve.wait_for_status("/health/ready", 503);
    fs::remove_file(&filler).unwrap();
    serve.wait_for_status("/health/ready", 200);
}

#[test]
fn a_worker_reloads_its_log_level_and_goes_on() {
    let mut worker = Running::start(&[], "[worker]\nlog_level = \"info\"\n");
    worker.wait_for("SIGHUP reloads the configuration");
    fs::write(
        worker.file(),
        "[worker]\nlog_level = \"warn\"\ndrain = \"5s\"\n[engine]\nmax_running = 3\n[owner]\nmost_heat = 100\n",
    )
    .unwrap();
    worker.signal("-HUP");
    worker.wait_for("restart to apply these changed settings: engine.max_running");
    worker.signal("-QUIT");
    assert_eq!(worker.ends(), Some(0));
    let said = worker.log.text();
    assert!(!said.contains("INFO stopping"), "{said}");
    // The rules of the owner are followed at once.
    assert!(!said.contains("owner.most_heat"), "{said}");
}

/// With a real coordinator, whose list equals the worker's models.
#[test]
fn a_worker_loads_and_unloads_models_when_its_configuration_changes() {
    let serve = serve("");
    let configuration = |models: &str| {
        let (address, key) = (&serve.address, &serve.key);
        format!(
            "[models]\nserve = [{models}]\n[[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
        )
    };
    let mut worker = Running::start(&["--offline"], &configuration("\"demo-text\""));
    let lists = |wanted: &[&str]| {
        eventually_blocking("the models to be listed", || {
            let answer = serve.get("/v1/models?type=all");
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let listed: Value = serde_json::from_str(body).unwrap_or_default();
            let ids = listed["data"].as_array().into_iter().flatten();
            let ids: Vec<_> = ids.filter_map(|model| model["id"].as_str()).collect();
            let ids: Vec<_> = ids.into_iter().filter(|id| *id != "auto").collect();
            match ids == wanted {
                true => Ok(()),
                false => Err(ids.join(", ")),
            }
        });
    };
    lists(&["demo-text"]);
    let mut change = |models: &str, last_words: &str| {
        fs::write(worker.file(), configuration(models)).unwrap();
        // Words of an earlier change begin as those of a later one.
        worker.log.forget();
        worker.signal("-HUP");
        worker.wait_for(last_words);
    };
    change(
        "\"demo-image\", \"demo-text\"",
        "ready again with demo-image, demo-text",
    );
    lists(&["demo-image", "demo-text"]);
    change("\"demo-image\"", "ready again with demo-image");
    lists(&["demo-image"]);
    // A model that is not here leaves the others as they are.
    change(
        "\"demo-image\", \"no-such-model\"",
        "not serving no-such-model",
    );
    lists(&["demo-image"]);
    worker.signal("-TERM");
    assert_eq!(worker.ends(), Some(0));
}

#[test]
fn jobs_go_on_while_models_leave_a_worker() {
    let serve = serve("");
    let (address, key) = (&serve.address, &serve.key);
    let configuration = |models: &str| {
        format!(
            "[models]\nserve = [{models}]\n[[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
        )
    };
    let mut worker = Running::start(
        &["--offline"],
        &configuration("\"demo-text\", \"demo-image\", \"demo-music\""),
    );
    worker.wait_for("SIGHUP reloads the configuration");
    let listed = || serve.get("/v1/models?type=all");
    eventually_blocking("the models to be listed", || {
        let listed = listed();
        let names = ["demo-text", "demo-image", "demo-music"];
        match names.iter().all(|name| listed.contains(name)) {
            true => Ok(()),
            false => Err(listed),
        }
    });
    let begin = || {
        let body = r#"{"model":"demo-text","max_tokens":900,"stream":true,"stream_options":{"include_usage":true},
            "logit_bias":{"0":-100,"1":-100,"2":-100},"messages":[{"role":"user","content":"Tell me a story."}]}"#;
        let mut curl = Command::new("curl");
        curl.args(["-sN", "-d", body, "-H", &format!("apikey: {key}")]);
        curl.arg(format!("http://{address}/v1/chat/completions"));
        let mut curl = curl.stdout(Stdio::piped()).spawn().unwrap();
        let mut stream = Lines::of(curl.stdout.take().unwrap());
        stream.until("\"content\":\"");
        (curl, stream)
    };
    let whole = |(mut curl, mut stream): (Child, Lines)| {
        let rest = stream.rest();
        assert!(rest.contains("\"completion_tokens\":900"), "{rest}");
        assert!(rest.trim_end().ends_with("data: [DONE]"), "{rest}");
        curl.wait().unwrap();
    };
    // Another model leaves at once.
    let story = begin();
    let remaining = configuration("\"demo-text\", \"demo-music\"");
    fs::write(worker.file(), remaining).unwrap();
    worker.signal("-HUP");
    worker.wait_for("unloaded demo-image");
    worker.wait_for("ready again with demo-text, demo-music");
    assert!(!listed().contains("demo-image"));
    whole(story);
    // A model with a job leaves with its end, and is listed no more before.
    let story = begin();
    fs::write(worker.file(), configuration("\"demo-music\"")).unwrap();
    worker.signal("-HUP");
    eventually_blocking("the model to be listed no more", || {
        let listed = listed();
        match listed.contains("demo-text") {
            true => Err(listed),
            false => Ok(()),
        }
    });
    whole(story);
    worker.wait_for("unloaded demo-text");
    worker.wait_for("ready again with demo-music");
    worker.signal("-TERM");
    assert_eq!(worker.ends(), Some(0));
    let log = worker.log.text();
    for word in ["handed back", "changing models"] {
        assert!(!log.contains(word), "{log}");
    }
}

#[test]
fn the_owner_loads_and_unloads_models_of_a_running_worker() {
    let serve = serve("");
    let (address, key) = (&serve.address, &serve.key);
    let configuration = format!(
        "[models]\nserve = [\"demo-text\"]\n[[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
    );
    let mut daemon = Running::start(&["--offline"], &configuration);
    let data = daemon.folder.path().join("data");
    let data = data.to_str().unwrap().to_owned();
    let tell = |words: &[&str]| {
        let place = ["--data-dir", data.as_str()];
        worker(&[words, &place].concat()).run()
    };
    let lists = |wanted: &[&str]| {
        let answer = serve.get("/v1/models?type=all");
        wanted
            .iter()
            .all(|name| answer.contains(&format!("\"id\":\"{name}\"")))
    };
    daemon.wait_for("SIGHUP reloads the configuration");
    eventually_blocking("demo-text to be listed", || match lists(&["demo-text"]) {
        true => Ok(()),
        false => Err(()),
    });
    assert!(!lists(&["demo-image"]));

    // A model that is not configured is served at once, and a change of the configuration leaves it.
    let said = tell(&["models", "load", "demo-image"]).ok();
    assert!(
        said.contains("loaded demo-image; served until this worker ends"),
        "{said}"
    );
    assert!(lists(&["demo-text", "demo-image"]));
    daemon.signal("-HUP");
    daemon.wait_for("configuration reloaded");
    assert!(lists(&["demo-text", "demo-image"]));

    // The next job of an unloaded model loads it again.
    let said = tell(&["models", "unload", "demo-text"]).ok();
    assert!(said.contains("its next job loads it again"), "{said}");
    assert!(lists(&["demo-text"]));
    let said = tell(&["stop", "demo-text"]).ok();
    assert_eq!(said, "demo-text is not in memory\n");
    let answer = serve.chat();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    daemon.wait_for("loaded demo-text again");
    let said = tell(&["models", "load", "demo-text", "--json"]).ok();
    let outcome: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        outcome,
        serde_json::json!({"model": "demo-text", "state": "loaded"})
    );
    assert!(
        tell(&["stop", "demo-text"])
            .ok()
            .starts_with("unloaded demo-text")
    );
    assert_eq!(
        tell(&["models", "load", "demo-text"]).ok(),
        "loaded demo-text\n"
    );

    tell(&["models", "load", "demo-txt"]).fails(66, "demo-text");
    tell(&["models", "load", "qwen3-0.6b"]).fails(66, "worker models pull qwen3-0.6b");
    tell(&["stop", "demo-imag"]).fails(66, "did you mean demo-image?");
    daemon.signal("-TERM");
    assert_eq!(daemon.ends(), Some(0));
    tell(&["stop", "demo-text"]).fails(69, "no worker runs with the data folder");
}

#[test]
fn a_worker_rests_while_a_program_of_its_owner_runs() {
    let serve = serve("");
    let (address, key) = (&serve.address, &serve.key);
    let configuration = format!(
        "[models]\nserve = [\"demo-text\"]\n[owner]\npause_for = [\"muster-game\"]\nresume_after = \"1s\"\n\
         [[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
    );
    let mut daemon = Running::start(&["--offline"], &configuration);
    daemon.wait_for("SIGHUP reloads the configuration");
    let data = daemon.folder.path().join("data");
    let data = data.to_str().unwrap().to_owned();
    let report = || daemon.report();
    assert!(report()["pause"].is_null());

    let folder = tempfile::tempdir().unwrap();
    let game = folder.path().join("muster-game");
    std::fs::copy("/bin/sleep", &game).unwrap();
    let mut game = Command::new(game).arg("600").spawn().unwrap();
    let paused = eventually_blocking("the worker to rest", || {
        let report = report();
        match report["pause"]["state"] == "paused" && report["models"][0]["state"] == "unloaded" {
            true => Ok(report),
            false => Err(report),
        }
    });
    let reason = "while muster-game runs (owner.pause_for)";
    assert_eq!(paused["pause"]["reasons"][0], reason, "{paused}");
    // The owner's word does not lift a rule.
    let said = worker(&["resume", "--data-dir", &data]).run().ok();
    assert_eq!(said, format!("paused {reason}\n"));

    game.kill().unwrap();
    game.wait().unwrap();
    eventually_blocking("jobs to be taken again", || {
        match report()["pause"].is_null() {
            true => Ok(()),
            false => Err(()),
        }
    });
    // The coordinator hears of it a moment later.
    eventually_blocking("a reply", || {
        let answer = serve.chat();
        match answer.starts_with("HTTP/1.1 200 ") {
            true => Ok(()),
            false => Err(answer),
        }
    });
    daemon.signal("-TERM");
    assert_eq!(daemon.ends(), Some(0));
}

#[test]
fn a_coordinator_is_offered_the_models_that_its_section_names() {
    let (one, other) = (serve(""), serve(""));
    let section = |serve: &Serve, models: &str| {
        let (address, key) = (&serve.address, &serve.key);
        format!("[[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n{models}\n")
    };
    let configuration = format!(
        "[models]\nserve = [\"demo-text\", \"demo-vision\"]\n{}{}",
        section(&one, "models = [\"demo-text\"]"),
        section(&other, "")
    );
    let mut daemon = Running::start(&["--offline"], &configuration);
    daemon.wait_for("SIGHUP reloads the configuration");
    let names = |serve: &Serve, count: usize| {
        eventually_blocking("the models to be listed", || {
            let answer = serve.get("/v1/models");
            let body: Value =
                serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            let data = body["data"].as_array().unwrap().iter();
            let names: Vec<String> = data
                .map(|one| one["id"].as_str().unwrap().to_owned())
                .collect();
            let names: Vec<String> = names
                .into_iter()
                .filter(|name| name.starts_with("demo"))
                .collect();
            match names.len() == count {
                true => Ok(names),
                false => Err(answer),
            }
        })
    };
    let mut both = names(&other, 2);
    both.sort();
    assert_eq!(both, ["demo-text", "demo-vision"]);
    assert_eq!(names(&one, 1), ["demo-text"]);
    let answer = one.chat();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn jobs_and_kudos_of_today_survive_a_restart_of_the_worker() {
    let serve = serve("");
    let (address, key) = (&serve.address, &serve.key);
    let configuration = format!(
        "[models]\nserve = [\"demo-text\"]\n[owner]\nenergy_price = 0.25\nhours = [\"00:00-24:00\"]\n\
         [[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
    );
    let mut first = Running::start(&["--offline"], &configuration);
    first.wait_for("connected to");
    for _ in 0..2 {
        let answer = serve.chat();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let report = eventually_blocking("both jobs to be counted", || {
        let report = first.report();
        let is_settled = report["coordinators"][0]["held_jobs"] == 0;
        match report["today"]["done"] == 2 && is_settled {
            true => Ok(report),
            false => Err(report),
        }
    });
    for counts in [
        &report["jobs"],
        &report["models"][0]["since_start"],
        &report["models"][0]["today"],
        &report["coordinators"][0]["since_start"],
        &report["coordinators"][0]["today"],
    ] {
        assert_eq!(counts["done"], 2, "{report}");
        assert!(counts["tokens"].as_u64() > Some(0), "{report}");
    }
    let earned = report["today"]["earned_thousandths"].as_i64().unwrap();
    assert_eq!(report["jobs"]["earned_thousandths"], earned, "{report}");
    assert_eq!(report["no_jobs"].as_array().unwrap().len(), 0, "{report}");
    assert_eq!(report["rules"][0], "owner.hours = 00:00-24:00", "{report}");
    let energy = &report["energy"];
    assert_eq!(energy["price"], 0.25, "{report}");
    let tells_power = energy["processor_watts"].is_number() || energy["processor_note"].is_string();
    assert!(tells_power, "{report}");
    first.signal("-TERM");
    assert_eq!(first.ends(), Some(0));

    let history = first.folder.path().join("data/worker-history.jsonl");
    let mut lines = fs::OpenOptions::new().append(true).open(history).unwrap();
    lines.write_all(b"{\"at\": 5, \xff").unwrap();
    let mut second = Running::start_in(Arc::clone(&first.folder), &["--offline"], &configuration);
    second.wait_for("connected to");
    let report = eventually_blocking("the history to be read", || {
        let report = second.report();
        match report["today"]["done"] == 2 {
            true => Ok(report),
            false => Err(report),
        }
    });
    assert_eq!(report["jobs"]["done"], 0, "{report}");
    let today = &report["coordinators"][0]["today"];
    assert_eq!(today["earned_thousandths"], earned, "{report}");
    let data = second.folder.path().join("data");
    let shown = worker(&["status", "--data-dir", data.to_str().unwrap()])
        .run()
        .ok();
    assert!(shown.contains("today: 2 done, "), "{shown}");
    second.signal("-TERM");
    assert_eq!(second.ends(), Some(0));
}

#[test]
fn a_worker_says_why_no_jobs_come() {
    let serve = serve("");
    // An address without a listener.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (address, key) = (&serve.address, &serve.key);
    let configuration = format!(
        "[models]\nserve = [\"demo-text\"]\n\
         [[coordinator]]\nurl = \"ws://{closed}\"\nkey = \"any\"\n\
         [[coordinator]]\nurl = \"ws://{address}\"\nkey = \"not-a-key\"\n"
    );
    let mut daemon = Running::start(&["--offline"], &configuration);
    daemon.wait_for("SIGHUP reloads the configuration");
    let causes = eventually_blocking("both causes", || {
        let report = daemon.report();
        let causes: Vec<Value> = report["no_jobs"].as_array().unwrap().clone();
        let names: Vec<&str> = causes
            .iter()
            .filter_map(|one| one["cause"].as_str())
            .collect();
        let first = causes.first().and_then(|cause| cause["text"].as_str());
        let is_examined = first.is_some_and(|text| text.contains("refused"));
        match names == ["not_connected", "wrong_key"] && is_examined {
            true => Ok(causes),
            false => Err(report),
        }
    });
    assert_eq!(causes[0]["coordinator"], closed.to_string());
    let remedy = causes[1]["remedy"].as_str().unwrap();
    assert!(remedy.contains("worker key join"), "{remedy}");
    let data = daemon.folder.path().join("data");
    let data = data.to_str().unwrap();
    let shown = worker(&["status", "--data-dir", data]).run().ok();
    let (_, shown) = shown.split_once("why no jobs come:").unwrap();
    assert!(shown.contains(&closed.to_string()), "{shown}");
    worker(&["pause", "--data-dir", data]).run().ok();
    let report = daemon.report();
    assert_eq!(report["no_jobs"][0]["cause"], "paused", "{report}");
    drop(daemon);

    // A model without requests.
    let configuration = format!(
        "[models]\nserve = [\"demo-text\"]\n[[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
    );
    let mut daemon = Running::start(&["--offline"], &configuration);
    daemon.wait_for("connected to");
    let cause = eventually_blocking("half a minute without jobs", || {
        let report = daemon.report();
        match &report["no_jobs"][0]["cause"] {
            Value::Null => Err(report),
            _ => Ok(report["no_jobs"][0].clone()),
        }
    });
    assert_eq!(cause["cause"], "no_demand", "{cause}");
    assert_eq!(cause["model"], "demo-text", "{cause}");
    let text = cause["text"].as_str().unwrap();
    assert!(
        text.contains("no client requested this model in the last 24 hours"),
        "{text}"
    );
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_the_arithmetic() {
    let configuration = "[models]\nserve = [\"demo-image\"]\n[engine]\nkv_memory = \"900TiB\"\n";
    let mut daemon = Running::start(&["--offline"], configuration);
    let data = daemon.folder.path().join("data");
    daemon.wait_for("SIGHUP reloads the configuration");
    let arguments = [
        "models",
        "load",
        "demo-text",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let said = worker(&arguments)
        .run()
        .fails(69, "demo-text does not fit: needs ");
    assert!(said.contains("left for models"), "{said}");
    assert!(
        said.contains("`worker models unload NAME` frees memory"),
        "{said}"
    );
}

#[test]
fn a_model_without_jobs_leaves_memory_and_its_next_job_loads_it_again() {
    let serve = serve("");
    let (address, key) = (&serve.address, &serve.key);
    let configuration = format!(
        "[models]\nserve = [\"demo-text\"]\n[engine]\nkeep_alive = \"0s\"\n\
         [[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
    );
    let mut worker = Running::start(&["--offline"], &configuration);
    worker.wait_for("unloaded demo-text after");
    eventually_blocking("the model to be listed", || {
        let answer = serve.get("/v1/models");
        match answer.contains("demo-text") {
            true => Ok(()),
            false => Err(answer),
        }
    });
    // Two jobs at once load it once, and none loses it before its end.
    let headers = format!("apikey: {key}\r\ncontent-type: application/json\r\n");
    let (address, headers) = (address.as_str(), headers.as_str());
    let body = r#"{"model": "demo-text", "messages": [{"role": "user", "content": "hi"}]}"#;
    std::thread::scope(|scope| {
        let path = "/v1/chat/completions";
        let chats = [(); 2].map(|()| scope.spawn(|| ask(address, "POST", path, headers, body)));
        for chat in chats {
            let answer = chat.join().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    });
    worker.wait_for("loaded demo-text again");
    worker.wait_for("unloaded demo-text after");
    let answer = serve.chat();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    worker.signal("-TERM");
    assert_eq!(worker.ends(), Some(0));
}

#[test]
fn sigquit_drains_as_sigterm_does_and_a_hangup_before_the_start_is_survived() {
    let mut serve = serve("");
    serve.running.signal("-HUP");
    serve.running.wait_for("configuration reloaded");
    serve.running.signal("-QUIT");
    assert_eq!(serve.running.ends(), Some(0));
    serve.running.wait_for("stopped");
}

#[test]
fn a_database_deleted_under_a_coordinator_is_told_and_requests_are_refused() {
    let mut serve = serve("");
    serve.wait_for_status("/health/ready", 200);
    // From here on its key is known without the database.
    serve.chat();
    fs::remove_file(serve.data().join("coordinator.sqlite")).unwrap();
    let answer = serve.wait_for_status("/health/ready", 503);
    assert!(
        answer.contains("degraded") && answer.contains("was deleted"),
        "{answer}"
    );
    let health = serve.get("/health");
    assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
    assert!(health.contains("\"degraded\""), "{health}");
    serve.wait_for_status("/health/live", 200);
    assert!(
        serve
            .get("/metrics")
            .contains("\nmuster_store_available 0\n")
    );
    let chat = serve.chat();
    assert!(chat.starts_with("HTTP/1.1 503 "), "{chat}");
    assert!(
        chat.contains("\"error\":{\"message\":\"new requests are refused: "),
        "{chat}"
    );
    let text = serve.post("/api/v2/generate/text/async", "{\"prompt\": \"x\"}");
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(
        text.contains("\"message\":\"new requests are refused: "),
        "{text}"
    );
    serve
        .running
        .wait_for("stop the coordinator, rename the copy to the database file, start again");
    let copy = fs::read_dir(serve.data()).unwrap().find_map(|file| {
        let path = file.unwrap().path();
        path.to_string_lossy().contains(".rescued-").then_some(path)
    });
    serve.running.signal("-TERM");
    assert_eq!(serve.running.ends(), Some(0));
    fs::rename(copy.unwrap(), serve.data().join("coordinator.sqlite")).unwrap();
    let keys = worker(&["key", "list", "--data-dir", serve.data().to_str().unwrap()]).run();
    assert!(keys.ok().contains("admin"), "the first key is still there");
}

#[test]
fn a_media_folder_that_was_deleted_is_made_anew_and_one_that_is_another_is_told() {
    let mut serve = serve("");
    let media = serve.data().join("media");
    fs::remove_dir_all(&media).unwrap();
    serve.running.wait_for("its images are lost");
    assert!(media.join("results").is_dir());
    let away = serve.data().join("away");
    fs::rename(&media, &away).unwrap();
    fs::create_dir(&media).unwrap();
    let answer = serve.wait_for_status("/health/ready", 503);
    assert!(answer.contains("mount its disk again"), "{answer}");
    fs::remove_dir_all(&media).unwrap();
    fs::rename(&away, &media).unwrap();
    serve.wait_for_status("/health/ready", 200);
}

#[test]
fn a_coordinator_that_waits_for_its_database_is_live_and_not_ready() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let database = format!(
        "[serve]\ndatabase = \"postgres://muster@{}/none\"\n",
        silent.local_addr().unwrap()
    );
    let mut waiting = Running::start(&["serve", "--listen", &address], &database);
    let _waiting = silent.accept().unwrap();
    let status = |path: &str| ask(&address, "GET", path, "", "");
    assert!(status("/health/live").starts_with("HTTP/1.1 200 "));
    let ready = status("/health/ready");
    assert!(
        ready.starts_with("HTTP/1.1 503 ") && ready.contains("starting"),
        "{ready}"
    );
    assert!(status("/v1/models").starts_with("HTTP/1.1 503 "));
    waiting.signal("-TERM");
    assert_eq!(waiting.ends(), Some(0));
}

#[test]
fn a_coordinator_on_all_addresses_warns_of_plain_text() {
    let mut serve = serve_at("0.0.0.0:0", "");
    serve
        .running
        .wait_for("without TLS: keys and prompts cross the network in plain text");
    serve.running.wait_for("serve.public_url is not set");
}

#[test]
fn a_certificate_that_has_expired_is_named_at_the_start() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let tls = format!(
        "[serve]\ntls_certificate = \"{0}/expired-certificate.pem\"\ntls_key = \"{0}/other-key.pem\"\n",
        fixtures.display()
    );
    let mut serve = serve(&tls);
    serve
        .running
        .wait_for("the certificate expired 2024-03-01T12:00:00Z");
}

/// What its model replies with an adapter of `tests/fixtures/golden/text-adapters`, by the reference.
fn adapter_reply(name: &str) -> String {
    let path = adapter_fixture("tiny-llama/replies.json");
    let replies: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    replies[name].as_str().unwrap().to_owned()
}

fn adapter_fixture(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden/text-adapters");
    root.join(name)
}

fn copy_adapter(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(adapter_fixture(name).join(file), to.join(file)).unwrap();
    }
}

impl Serve {
    fn json(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap()
    }

    fn reply(&self, model: &str) -> String {
        greedy_reply(&self.address, &self.key, model)
    }
}

/// Eight greedy tokens after `Hello`.
fn greedy_reply(address: &str, key: &str, model: &str) -> String {
    let headers = format!("apikey: {key}\r\ncontent-type: application/json\r\n");
    let body = hello(model).to_string();
    let answer = ask(address, "POST", "/v1/chat/completions", &headers, &body);
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let reply: Value = serde_json::from_str(body).unwrap();
    assert_eq!(reply["model"], model, "{answer}");
    assert_eq!(reply["usage"]["completion_tokens"], 8, "{answer}");
    let content = &reply["choices"][0]["message"]["content"];
    content.as_str().unwrap().to_owned()
}

fn hello(model: &str) -> Value {
    let messages = serde_json::json!([{"role": "user", "content": "Hello"}]);
    serde_json::json!({"model": model, "messages": messages, "temperature": 0, "max_tokens": 8})
}

#[test]
fn adapters_of_a_text_model_are_served_beside_it() {
    let serve = serve("");
    let (address, key) = (&serve.address, &serve.key);
    let folder = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-llama");
    let of_model = |name: &str| folder.path().join("tiny-llama").join(name);
    copy_adapter("tiny-llama/pirate", &of_model("pirate"));
    let configuration = format!(
        "[models]\nserve = [\"{}\"]\n[engine]\nadapters = \"{}\"\n\
         [[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n",
        model.display(),
        folder.path().display()
    );
    let mut daemon = Running::start(&["--offline"], &configuration);
    daemon.wait_for("SIGHUP reloads the configuration");
    let data = daemon.folder.path().join("data");
    let data = data.to_str().unwrap().to_owned();
    let tell = |words: &[&str]| {
        let place = ["--data-dir", data.as_str()];
        worker(&[words, &place].concat()).run()
    };
    let lists = |wanted: &[(&str, Option<&str>)]| {
        eventually_blocking("the models to be listed", || {
            let answer = serve.get("/v1/models");
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let listed: Value = serde_json::from_str(body).unwrap_or_default();
            let listed = listed["data"].as_array().cloned().unwrap_or_default();
            let listed = listed.iter().filter(|model| model["id"] != "auto");
            let listed: Vec<_> = listed
                .map(|model| (model["id"].as_str().unwrap(), model["parent"].as_str()))
                .collect();
            match listed == wanted {
                true => Ok(()),
                false => Err(answer.clone()),
            }
        });
    };
    let base = "tiny-llama";
    lists(&[(base, None), ("tiny-llama:pirate", Some(base))]);

    // Jobs of both at once; the first one of the adapter loads it.
    let plain = serve.reply(base);
    std::thread::scope(|scope| {
        let replies = [base, "tiny-llama:pirate", base, "tiny-llama:pirate"];
        let (address, key) = (address.as_str(), key.as_str());
        let reply = |model| scope.spawn(move || greedy_reply(address, key, model));
        let replies = replies.map(|model| (model, reply(model)));
        for (model, reply) in replies {
            let wanted = match model == base {
                true => plain.clone(),
                false => adapter_reply("pirate"),
            };
            assert_eq!(reply.join().unwrap(), wanted, "{model}");
        }
    });
    assert_ne!(plain, adapter_reply("pirate"));
    // The other APIs take the name, too.
    let mut of_ollama = hello("tiny-llama:pirate");
    of_ollama["stream"] = false.into();
    of_ollama["options"] = serde_json::json!({"temperature": 0, "num_predict": 8});
    let answer = serve.json("/api/chat", &of_ollama);
    assert_eq!(answer["message"]["content"], adapter_reply("pirate"));
    let answer = serve.json("/v1/messages", &hello("tiny-llama:pirate"));
    assert_eq!(answer["content"][0]["text"], adapter_reply("pirate"));
    let tags = serve.get("/api/tags");
    assert!(tags.contains("\"parent_model\":\"tiny-llama\""), "{tags}");

    // A new one is found by its name, and one that was unloaded by its next job.
    copy_adapter("tiny-llama/sailor", &of_model("sailor"));
    let said = tell(&["models", "load", "tiny-llama:sailor"]).ok();
    assert_eq!(said, "loaded tiny-llama:sailor\n");
    lists(&[
        (base, None),
        ("tiny-llama:pirate", Some(base)),
        ("tiny-llama:sailor", Some(base)),
    ]);
    assert_eq!(serve.reply("tiny-llama:sailor"), adapter_reply("sailor"));
    let said = tell(&["models", "unload", "tiny-llama:pirate"]).ok();
    assert!(said.contains("its next job loads it again"), "{said}");
    assert_eq!(serve.reply("tiny-llama:pirate"), adapter_reply("pirate"));
    // With its model an adapter leaves the memory, and both come back.
    let said = tell(&["models", "unload", base]).ok();
    assert!(said.contains("its next job loads it again"), "{said}");
    assert_eq!(serve.reply("tiny-llama:sailor"), adapter_reply("sailor"));

    // An adapter for another model is refused by name without affecting others; an adapter without files is no longer
    // served.
    copy_adapter("qwen2/all", &of_model("broken"));
    fs::remove_dir_all(of_model("sailor")).unwrap();
    daemon.log.forget();
    daemon.signal("-HUP");
    daemon.wait_for("not serving the adapter tiny-llama:broken");
    daemon.wait_for("ready again with");
    lists(&[(base, None), ("tiny-llama:pirate", Some(base))]);
    tell(&["models", "load", "tiny-llama:broken"]).fails(1, "made for another model (\"qwen2\")");
    assert_eq!(serve.reply("tiny-llama:pirate"), adapter_reply("pirate"));
    assert_eq!(serve.reply(base), plain);
    eventually_blocking("the jobs to be counted by model", || {
        let counted = serve.get("/v1/stats/models");
        let mut models = [base, "tiny-llama:pirate", "tiny-llama:sailor"].into_iter();
        match models.all(|model| counted.contains(&format!("\"{model}\""))) {
            true => Ok(()),
            false => Err(counted),
        }
    });
    daemon.signal("-TERM");
    assert_eq!(daemon.ends(), Some(0));
}
