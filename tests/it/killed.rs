//! Killed processes, and the guarantees as seen from outside: by clients, and in the store.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster::coordinator::clock::wall_clock;
use muster::coordinator::storage::{Dues, Location, Store};
use muster::protocol::job::{AccountId, JobId, Kudos, RequestId};
use muster::tasks::Tasks;
use muster_testing::{Lines, eventually, eventually_blocking};
use serde_json::{Value, json};

use crate::support::worker::worker;

/// A process of ours; killed, not asked, when its test ends.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Stops the process, with its sockets still open.
    fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.unwrap().success());
    }
}

/// A coordinator in a process of its own.
pub struct Service {
    pub process: Process,
    pub url: String,
    pub key: String,
}

pub fn serve(folder: &Path) -> Service {
    serve_with(folder, &[])
}

fn serve_with(folder: &Path, more: &[&str]) -> Service {
    let data = folder.join("coordinator");
    let arguments = [
        "serve",
        "--json",
        "--quiet",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
    ];
    let mut command = worker(&arguments).command();
    let command = command.arg(&data).args(more).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = Lines::of(child.stdout.take().unwrap());
    let ready: Value = serde_json::from_str(&stdout.next_line()).unwrap();
    Service {
        url: ready["url"].as_str().unwrap().to_owned(),
        key: ready["api_key"].as_str().unwrap_or_default().to_owned(),
        process: Process(child),
    }
}

impl Service {
    /// A worker in a process of its own, with the model that is part of the program; returns when it is listed.
    pub fn worker(&self, folder: &Path, name: &str) -> Process {
        let data = folder.join(name);
        std::fs::create_dir_all(&data).unwrap();
        let file = data.join("worker.toml");
        let socket = self.url.replacen("http", "ws", 1);
        let text = format!(
            "[worker]\nname = {name:?}\ndata_dir = {data:?}\n[models]\nserve = [\"demo-text\"]\n\
             [[coordinator]]\nurl = {socket:?}\nkey = {:?}\n",
            self.key
        );
        std::fs::write(&file, text).unwrap();
        let mut command = worker(&["--quiet", "--config", file.to_str().unwrap()]).command();
        let process = Process(command.spawn().unwrap());
        eventually_blocking("a worker to connect", || {
            self.workers().contains(&name.to_owned())
        });
        process
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> String {
        self.url.trim_start_matches("http://").to_owned()
    }

    pub fn workers(&self) -> Vec<String> {
        let page = curl(&["-s", &format!("{}/v1/workers", self.url)]);
        let page: Value = serde_json::from_str(&page).unwrap();
        let names = page["workers"].as_array().unwrap().iter();
        names
            .map(|worker| worker["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn wait_until_a_job_runs(&self) {
        let page = format!("{}/metrics", self.url);
        eventually_blocking("a job to run", || {
            curl(&["-s", &page]).contains("\nmuster_jobs_running 1")
        });
    }

    /// A long story, the same for the same seed wherever it is told.
    pub fn story(&self, seed: u64, streaming: bool) -> Command {
        self.chat(&json!({
            "model": "demo-text", "stream": streaming, "seed": seed, "temperature": 1.2, "max_tokens": 700,
            "logit_bias": { "1": -100, "2": -100, "3": -100 },
            "messages": [{ "role": "user", "content": "Tell me a story." }],
        }))
    }

    pub fn chat(&self, body: &Value) -> Command {
        let mut command = Command::new("curl");
        command
            .args([
                "-sN",
                "-d",
                &body.to_string(),
                "-H",
                &format!("apikey: {}", self.key),
            ])
            .arg(format!("{}/v1/chat/completions", self.url))
            .stdout(Stdio::piped());
        command
    }

    pub fn reply(&self, mut request: Command) -> Value {
        let out = request.output().unwrap();
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// The story in one piece.
    pub fn told(&self, seed: u64) -> String {
        let reply = self.reply(self.story(seed, false));
        let content = reply["choices"][0]["message"]["content"].as_str();
        content.unwrap_or_else(|| panic!("{reply}")).to_owned()
    }
}

fn curl(arguments: &[&str]) -> String {
    let out = Command::new("curl").args(arguments).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

/// A stream that is being read.
pub struct Stream {
    lines: Lines,
    child: Process,
    text: String,
    /// The text of the second choice.
    second: String,
    /// Of a tool call.
    arguments: String,
    usage: Value,
}

impl Stream {
    pub fn open(mut command: Command) -> Self {
        let mut child = Process(command.spawn().unwrap());
        let lines = Lines::of(child.0.stdout.take().unwrap());
        Self {
            lines,
            child,
            text: String::new(),
            second: String::new(),
            arguments: String::new(),
            usage: Value::Null,
        }
    }

    /// Reads one event; whether there was one.
    fn read(&mut self) -> bool {
        loop {
            let line = self.lines.next_line();
            if line.is_empty() {
                break;
            }
            let Some(data) = line.trim_end().strip_prefix("data: ") else {
                continue;
            };
            if data == "[DONE]" {
                return false;
            }
            let chunk: Value = serde_json::from_str(data).unwrap();
            assert!(chunk["error"].is_null(), "after {:?}: {chunk}", self.text);
            for choice in chunk["choices"].as_array().into_iter().flatten() {
                let text = match choice["index"].as_u64() {
                    Some(1) => &mut self.second,
                    _ => &mut self.text,
                };
                *text += choice["delta"]["content"].as_str().unwrap_or_default();
            }
            self.arguments +=
                chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]
                    .as_str()
                    .unwrap_or_default();
            if chunk["usage"].is_object() {
                self.usage = chunk["usage"].clone();
            }
            return true;
        }
        panic!("the stream broke off after {:?}", self.text);
    }

    pub fn read_some(&mut self) {
        while self.text.len() < 20 {
            assert!(self.read(), "it ended with {:?}", self.text);
        }
    }

    pub fn read_some_arguments(&mut self) {
        while self.arguments.len() < 20 {
            assert!(self.read(), "it ended with {:?}", self.arguments);
        }
    }

    pub fn read_all_arguments(mut self) -> String {
        while self.read() {}
        let _ = self.child.0.wait();
        self.arguments
    }

    /// The texts of both choices, and the usage.
    pub fn read_both(mut self) -> ([String; 2], Value) {
        while self.read() {}
        let _ = self.child.0.wait();
        ([self.text, self.second], self.usage)
    }

    pub fn read_all(mut self) -> (String, Value) {
        while self.read() {}
        let _ = self.child.0.wait();
        (self.text, self.usage)
    }
}

#[test]
fn a_worker_killed_in_mid_stream_is_replaced_and_no_client_notices() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let first = service.worker(folder.path(), "first");
    let told: Vec<String> = (0..4).map(|seed| service.told(seed)).collect();
    let mut streams: Vec<Stream> = (0..4)
        .map(|seed| Stream::open(service.story(seed, true)))
        .collect();
    streams.iter_mut().for_each(Stream::read_some);
    // All of them are on the first: there was no other.
    drop(first);
    let _second = service.worker(folder.path(), "second");
    for (stream, told) in streams.into_iter().zip(told) {
        let (text, usage) = stream.read_all();
        assert_eq!(text, told);
        assert_eq!(usage["completion_tokens"], 700);
    }
}

#[test]
fn a_worker_killed_before_its_first_token_is_invisible() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let first = service.worker(folder.path(), "first");
    let told = service.told(9);
    first.freeze();
    let stream = Stream::open(service.story(9, true));
    service.wait_until_a_job_runs();
    drop(first);
    let _second = service.worker(folder.path(), "second");
    assert_eq!(stream.read_all().0, told);
}

#[tokio::test]
async fn a_killed_coordinator_has_settled_every_reply_it_gave() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let worker = service.worker(folder.path(), "rig");
    let body = r#"{"model":"demo-text","messages":[{"role":"user","content":"Hello!"}]}"#;
    let (key, url) = (
        format!("apikey: {}", service.key),
        format!("{}/v1/chat/completions", service.url),
    );
    let jobs: Vec<JobId> = (0..5)
        .map(|_| job_of(&curl(&["-si", "-d", body, "-H", &key, &url])))
        .collect();
    drop(service.process);
    drop(worker);
    let location = Location::in_folder(&folder.path().join("coordinator"));
    let tasks = Tasks::default();
    let store = Store::open(&location, &tasks).await.unwrap();
    for job in jobs {
        assert!(
            store
                .reward(job)
                .await
                .unwrap()
                .is_some_and(|reward| reward > Kudos(0)),
            "{job}"
        );
        assert!(!store.entries(job).await.unwrap().is_empty(), "{job}");
    }
    let sums = store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.balances), (Kudos(0), Kudos(0)));
    assert_eq!((sums.wrong_jobs, sums.wrong_balances), (0, 0));
    // A new process on the same data knows its keys.
    tasks.stop(Duration::from_secs(5)).await;
    drop(store);
    let again = serve(folder.path());
    let route = format!("{}/v1/videos/none/remix", again.url);
    let answer = curl(&["-s", "-X", "POST", "-d", "{}", "-H", &key, &route]);
    assert!(answer.contains("not implemented"), "{answer}");
}

/// The job whose reply this is, headers and all.
fn job_of(reply: &str) -> JobId {
    let header = reply.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("x-job-id: ")
            .map(str::to_owned)
    });
    let id = header.unwrap_or_else(|| panic!("{reply}"));
    JobId(id.trim().parse().unwrap())
}

/// Calls the poll API.
fn poll(service: &Service, key: &str, method: &str, path: &str, body: &Value) -> Value {
    legacy(service, key, method, &format!("generate/text/{path}"), body)
}

pub fn legacy(service: &Service, key: &str, method: &str, path: &str, body: &Value) -> Value {
    let key = format!("apikey: {key}");
    let url = format!("{}/api/v2/{path}", service.url);
    let body = body.to_string();
    let answer = curl(&["-s", "-X", method, "-d", &body, "-H", &key, &url]);
    serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer:?}"))
}

#[tokio::test]
async fn a_killed_coordinator_still_has_every_text_it_accepted_and_pays_for_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let key = service.key.clone();
    let worker = json!({"name": "poller", "models": ["any"], "bridge_agent": "test:1:url"});
    let asked = json!({"prompt": "Once", "models": ["any"], "params": {"n": 3}});
    let id = poll(&service, &key, "POST", "async", &asked)["id"].clone();
    let left = poll(&service, &key, "POST", "async", &asked)["id"].clone();
    let status = |id: &Value| format!("status/{}", id.as_str().unwrap());
    poll(&service, &key, "DELETE", &status(&left), &json!({}));
    let first = poll(&service, &key, "POST", "pop", &worker);
    let brought = json!({"id": first["id"], "generation": "the first"});
    let paid = poll(&service, &key, "POST", "submit", &brought);
    assert!(
        paid["reward"].as_f64().is_some_and(|reward| reward > 0.0),
        "{paid}"
    );
    let second = poll(&service, &key, "POST", "pop", &worker);
    drop(service.process);

    let service = serve(folder.path());
    let found = poll(&service, &key, "GET", &status(&id), &json!({}));
    assert_eq!(
        (&found["finished"], &found["waiting"]),
        (&json!(1), &json!(2)),
        "{found}"
    );
    assert_eq!(found["generations"][0]["text"], "the first");
    assert_eq!(found["generations"][0]["worker_name"], "poller");
    let charged = (paid["reward"].as_f64().unwrap() + 2.0).round();
    assert_eq!(found["kudos"], charged);
    let cancelled = poll(&service, &key, "GET", &status(&left), &json!({}));
    assert_eq!(
        (&cancelled["done"], &cancelled["waiting"]),
        (&json!(true), &json!(0))
    );
    let twice = poll(&service, &key, "POST", "submit", &brought);
    assert_eq!(twice["rc"], "DuplicateGen", "{twice}");
    // Out at a worker when the process was killed, and brought before that worker asks for more.
    let late = json!({"id": second["id"], "generation": "the second"});
    let paid = poll(&service, &key, "POST", "submit", &late);
    assert!(paid["reward"].is_number(), "{paid}");
    let twice = poll(&service, &key, "POST", "submit", &late);
    assert_eq!(twice["rc"], "DuplicateGen", "{twice}");
    let popped = poll(&service, &key, "POST", "pop", &worker);
    let brought = json!({"id": popped["id"], "generation": "the third"});
    assert!(poll(&service, &key, "POST", "submit", &brought)["reward"].is_number());
    let nothing = poll(&service, &key, "POST", "pop", &worker);
    assert!(nothing["id"].is_null(), "{nothing}");
    let found = poll(&service, &key, "GET", &status(&id), &json!({}));
    assert_eq!(
        (&found["done"], &found["finished"]),
        (&json!(true), &json!(3))
    );
    drop(service.process);

    let location = Location::in_folder(&folder.path().join("coordinator"));
    let store = Store::open(&location, &Tasks::default()).await.unwrap();
    let sums = store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.wrong_jobs), (Kudos(0), 0));
}

#[tokio::test]
async fn what_was_out_when_its_request_was_cancelled_is_paid_though_the_coordinator_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let key = service.key.clone();
    let worker = json!({"name": "poller", "models": ["any"], "bridge_agent": "test:1:url"});
    let asked = json!({"prompt": "Once", "models": ["any"]});
    let id = poll(&service, &key, "POST", "async", &asked)["id"].clone();
    let out = poll(&service, &key, "POST", "pop", &worker);
    let status = format!("status/{}", id.as_str().unwrap());
    poll(&service, &key, "DELETE", &status, &json!({}));
    drop(service.process);

    let service = serve(folder.path());
    let found = poll(&service, &key, "GET", &status, &json!({}));
    let counts = (&found["done"], &found["waiting"], &found["processing"]);
    assert_eq!(counts, (&json!(false), &json!(0), &json!(1)), "{found}");
    let nothing = poll(&service, &key, "POST", "pop", &worker);
    assert!(nothing["id"].is_null(), "{nothing}");
    let brought = json!({"id": out["id"], "generation": "all the same"});
    let paid = poll(&service, &key, "POST", "submit", &brought);
    assert!(
        paid["reward"].as_f64().is_some_and(|reward| reward > 0.0),
        "{paid}"
    );
    let found = poll(&service, &key, "GET", &status, &json!({}));
    assert_eq!(found["generations"][0]["text"], "all the same", "{found}");
    assert_eq!(found["done"], true);
}

#[tokio::test]
async fn a_request_that_was_to_end_soon_by_what_is_on_disk_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let key = service.key.clone();
    let asked = json!({"prompt": "Once", "models": ["any"]});
    poll(&service, &key, "POST", "async", &asked);
    drop(service.process);
    // One like it that was renewed a moment before, which was not written down yet.
    let location = Location::in_folder(&folder.path().join("coordinator"));
    let tasks = Tasks::default();
    let store = Store::open(&location, &tasks).await.unwrap();
    let now = wall_clock();
    let mut like_it = store.open_requests(now).await.unwrap().remove(0).request;
    let mut body: Value = serde_json::from_str(&like_it.body).unwrap();
    body["jobs"] = json!([JobId::random()]);
    like_it.body = body.to_string();
    like_it.id = RequestId::random();
    like_it.expires_at = now.before(Duration::from_secs(30));
    let id = like_it.id;
    store.accept(like_it, Dues::default()).await.unwrap();
    tasks.stop(Duration::from_secs(5)).await;
    drop(store);

    let service = serve(folder.path());
    let status = format!("status/{id}");
    let found = poll(&service, &key, "GET", &status, &json!({}));
    assert_eq!(found["waiting"], 1, "{found}");
}

/// A style that is drawn at random is drawn once.
#[test]
fn a_killed_coordinator_writes_with_the_style_it_drew() {
    let folder = tempfile::tempdir().unwrap();
    // No limits on how fast styles may be made.
    let service = serve_with(folder.path(), &["--dev"]);
    let key = service.key.clone();
    let names: Vec<_> = (0..8).map(|number| format!("style {number}")).collect();
    for name in &names {
        let style = json!({"name": name, "prompt": format!("{name}: {{p}}"), "models": ["any"]});
        legacy(&service, &key, "POST", "styles/text", &style);
    }
    let all = json!({"name": "all", "styles": names});
    legacy(&service, &key, "POST", "collections", &all);
    let asked = json!({"prompt": "Once", "style": "collection::all"});
    poll(&service, &key, "POST", "async", &asked);
    let listed = legacy(
        &service,
        &key,
        "GET",
        "styles/text?sort=popular",
        &json!({}),
    );
    let drawn = listed[0]["name"].as_str().unwrap();
    assert_eq!(
        (&listed[0]["use_count"], &listed[1]["use_count"]),
        (&json!(1), &json!(0))
    );
    // What becomes of the style later changes no request.
    let path = format!("styles/text/{}", listed[0]["id"].as_str().unwrap());
    legacy(&service, &key, "DELETE", &path, &json!({}));
    drop(service.process);

    let service = serve_with(folder.path(), &["--dev"]);
    let worker = json!({"name": "poller", "models": ["any"], "bridge_agent": "test:1:url"});
    let popped = poll(&service, &key, "POST", "pop", &worker);
    assert_eq!(popped["payload"]["prompt"], format!("{drawn}: Once"));
}

#[tokio::test]
async fn a_killed_coordinator_still_has_every_image_it_accepted_and_what_was_drawn() {
    let image = super::legacy::images::drawn();
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let key = service.key.clone();
    let worker = json!({"name": "artist", "models": ["any"], "bridge_agent": "test:1:url"});
    let asked =
        json!({"prompt": "a cat", "models": ["any"], "r2": false, "params": {"n": 2, "seed": "7"}});
    let at = |path: &str| format!("../{path}");
    let id = poll(&service, &key, "POST", &at("async"), &asked)["id"].clone();
    let status = at(&format!("status/{}", id.as_str().unwrap()));
    let first = poll(&service, &key, "POST", &at("pop"), &worker);
    let brought = json!({"id": first["id"], "generation": image, "seed": 7});
    let paid = poll(&service, &key, "POST", &at("submit"), &brought);
    assert!(paid["reward"].is_number(), "{paid}");
    let second = poll(&service, &key, "POST", &at("pop"), &worker);
    assert_eq!(second["payload"]["seed"], "7");
    drop(service.process);

    let service = serve(folder.path());
    let found = poll(&service, &key, "GET", &status, &json!({}));
    assert_eq!(
        (&found["finished"], &found["waiting"]),
        (&json!(1), &json!(1)),
        "{found}"
    );
    let image = found["generations"][0]["img"].as_str().unwrap();
    // What WebP begins with, in base64.
    assert!(image.starts_with("UklGR"), "{found}");
    let twice = poll(&service, &key, "POST", &at("submit"), &brought);
    assert!(twice["reward"].is_null(), "{twice}");
    // A result of a job that was running when the process was killed is accepted.
    let brought = json!({"id": second["id"], "generation": image, "seed": 7});
    assert!(poll(&service, &key, "POST", &at("submit"), &brought)["reward"].is_number());
    let found = poll(&service, &key, "GET", &status, &json!({}));
    assert_eq!(
        (&found["done"], &found["finished"]),
        (&json!(true), &json!(2))
    );
}

#[tokio::test]
async fn kudos_kept_for_a_text_are_kept_after_a_kill_and_given_back_when_it_has_ended() {
    let params = json!({"max_length": 1000, "max_context_length": 2048});
    let long = json!({"prompt": "Once", "models": ["any"], "params": params});
    are_kept_after_a_kill("generate/text", &long).await;
}

#[tokio::test]
async fn kudos_kept_for_an_image_are_kept_after_a_kill_and_given_back_when_it_has_ended() {
    let heavy = json!({"prompt": "a cat", "models": ["any"], "params": {"steps": 100}});
    are_kept_after_a_kill("generate", &heavy).await;
}

/// Sends two requests with a kudos hold, and cancels one after a kill.
async fn are_kept_after_a_kill(kind: &str, body: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let key = service.key.clone();
    let gift = json!({"username": "admin#1", "amount": 1000});
    let given = legacy(&service, &key, "POST", "kudos/award", &gift);
    assert_eq!(given, json!({"awarded": 1000.0}));
    let ask = || legacy(&service, &key, "POST", &format!("{kind}/async"), body)["id"].clone();
    let (id, kept) = (ask(), ask());
    drop(service.process);

    let service = serve(folder.path());
    let location = Location::in_folder(&folder.path().join("coordinator"));
    let store = Store::open(&location, &Tasks::default()).await.unwrap();
    let admin = AccountId(1);
    let both = store.held(admin).await.unwrap();
    assert!(both.0 > 0);
    let path = format!("{kind}/status/{}", id.as_str().unwrap());
    legacy(&service, &key, "DELETE", &path, &json!({}));
    eventually("half of the hold", async || {
        match store.held(admin).await.unwrap() {
            held if held == Kudos(both.0 / 2) => Ok(()),
            held => Err(held),
        }
    })
    .await;
    let holding = store.holding().await.unwrap();
    assert_eq!(holding.len(), 1);
    assert_eq!(holding[0].to_string(), kept.as_str().unwrap());
}
