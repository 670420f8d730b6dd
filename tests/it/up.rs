//! `worker up` for a newcomer: one command, no network, and printed commands that work when pasted.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use muster_testing::{Lines, ended, eventually_blocking};
use serde_json::Value;

use crate::support::worker::worker;

/// A running `worker up`, killed when its test ends.
pub struct Up {
    child: Child,
    pub url: String,
    pub key: String,
    pub models: Vec<String>,
    took: Duration,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Up {
    /// Ends it as Ctrl-C does, and waits for its exit code.
    fn interrupted(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args(["-INT", &pid]).status();
        assert!(kill.unwrap().success());
        ended(&mut self.child).code()
    }
}

fn start(folder: &Path, more: &[&str]) -> Child {
    start_with(folder, more, &[])
}

fn start_with(folder: &Path, more: &[&str], variables: &[(&str, &str)]) -> Child {
    let data = folder.join("data");
    let usual = [
        "up",
        "--offline",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let arguments: Vec<&str> = usual.into_iter().chain(more.iter().copied()).collect();
    let mut command = worker(&arguments).command();
    command.envs(variables.iter().copied());
    let streams = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    streams.spawn().unwrap()
}

/// Starts it as a script does.
pub fn up(folder: &Path) -> Up {
    up_with(folder, &[])
}

pub fn up_with(folder: &Path, variables: &[(&str, &str)]) -> Up {
    let began = Instant::now();
    let mut child = start_with(folder, &["--json"], variables);
    let line = Lines::of(child.stdout.take().unwrap()).next_line();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
        let said = Lines::of(child.stderr.take().unwrap()).rest();
        panic!("it was not ready: {line}\n{said}");
    });
    assert_eq!(ready["pid"], child.id());
    let text = |name: &str| ready[name].as_str().unwrap().to_owned();
    let models = ready["models"].as_array().unwrap();
    Up {
        url: text("url"),
        key: text("api_key"),
        models: models
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect(),
        child,
        took: began.elapsed(),
    }
}

/// Standard output of a command with this data folder.
pub fn beside(folder: &Path, arguments: &[&str]) -> String {
    let data = folder.join("data");
    let place = ["--offline", "--data-dir", data.to_str().unwrap()];
    let arguments: Vec<&str> = arguments.iter().copied().chain(place).collect();
    let out = worker(&arguments).command().output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{arguments:?}: {said}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn chat_talks_to_the_running_up_or_starts_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let question = ["run", "demo-text", "What is Muster?"];
    let alone = beside(folder.path(), &question);
    assert!(alone.contains("Muster"), "{alone}");
    let up = up(folder.path());
    let talked = beside(
        folder.path(),
        &["chat", "demo-text", "What", "is", "Muster?"],
    );
    assert_eq!(talked, alone);
    let status = beside(folder.path(), &["ps"]);
    assert!(
        status.contains(&up.url) && status.contains("demo-text"),
        "{status}"
    );
    let report: Value =
        serde_json::from_str(&beside(folder.path(), &["status", "--json"])).unwrap();
    // Seven models, and the form that one of them answers.
    assert_eq!(report["models"].as_array().unwrap().len(), 8, "{report}");
}

#[test]
fn chat_takes_a_folder_by_the_name_that_it_is_served_by() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own-model");
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo-text"),
        &own,
    );
    // Omitted settings are random, unless the model's files define them.
    let always_the_same = r#"{"temperature": 0.0, "eos_token_id": 2}"#;
    fs::write(own.join("generation_config.json"), always_the_same).unwrap();
    let question = ["run", own.to_str().unwrap(), "What is Muster?"];
    let alone = beside(folder.path(), &question);
    assert!(alone.contains("Muster"), "{alone}");
    // A running `worker up` loads it.
    let _up = up(folder.path());
    assert_eq!(beside(folder.path(), &question), alone);
    let status = beside(folder.path(), &["status"]);
    assert!(status.contains("own-model"), "{status}");
}

#[test]
fn a_model_that_is_not_on_disk_is_refused_with_the_command_that_downloads_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let place = ["--data-dir", data.to_str().unwrap()];
    let chat = [&["run", "qwen3-0.6b", "hi"], &place[..]].concat();
    let said = worker(&chat).run().fails(66, "not downloaded");
    assert!(said.contains("`worker models pull qwen3-0.6b`"), "{said}");
    let _up = up(folder.path());
    let said = worker(&chat).run().fails(66, "not downloaded");
    assert!(said.contains("`worker models pull qwen3-0.6b`"), "{said}");
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.unwrap().success());
}

#[test]
fn models_of_up_leave_memory_and_come_back_by_ollamas_words() {
    let folder = tempfile::tempdir().unwrap();
    let _up = up(folder.path());
    let said = beside(folder.path(), &["stop", "demo-text"]);
    assert!(said.starts_with("unloaded demo-text"), "{said}");
    let said = beside(folder.path(), &["models", "load", "demo-text"]);
    assert_eq!(said, "loaded demo-text\n");
    beside(folder.path(), &["models", "unload", "demo-text"]);
    let talked = beside(folder.path(), &["run", "demo-text", "What is Muster?"]);
    assert!(talked.contains("Muster"), "{talked}");
}

/// The reply to a request of a program on this machine, which needs no key.
fn ollama(up: &Up, method: &str, path: &str, body: &Value) -> Value {
    reply(up, "", method, path, body)
}

/// The same with the key.
pub fn reply_with_key(up: &Up, method: &str, path: &str, body: &Value) -> Value {
    let key = format!("authorization: Bearer {}\r\n", up.key);
    reply(up, &key, method, path, body)
}

/// The body of a reply that is no JSON.
pub fn text_with_key(up: &Up, method: &str, path: &str, body: &Value) -> String {
    let key = format!("authorization: Bearer {}\r\n", up.key);
    text(up, &key, method, path, body)
}

fn reply(up: &Up, headers: &str, method: &str, path: &str, body: &Value) -> Value {
    let text = text(up, headers, method, path, body);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

fn text(up: &Up, headers: &str, method: &str, path: &str, body: &Value) -> String {
    let address = up.url.trim_start_matches("http://").trim_end_matches('/');
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let length = body.len();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn ollamas_keep_alive_decides_how_long_a_model_stays_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    // The time at which the model leaves memory, as `/api/ps` shows it.
    let expiry = || {
        let running = ollama(&up, "GET", "/api/ps", &Value::Null);
        let models = running["models"].as_array().unwrap().iter();
        let mut of_it = models.filter(|model| model["name"] == "demo-text");
        of_it
            .next()
            .map(|model| model["expires_at"].as_str().unwrap().to_owned())
    };
    let until = |what: &str, is_it: &dyn Fn(Option<&str>) -> bool| {
        eventually_blocking(what, || match expiry() {
            expiry if is_it(expiry.as_deref()) => Ok(()),
            expiry => Err(expiry),
        });
    };
    let forever = |expiry: Option<&str>| expiry.is_some_and(|at| at.starts_with("2262-"));
    let soon = |expiry: Option<&str>| expiry.is_some_and(|at| !at.starts_with("2262-"));
    let is_gone = |expiry: Option<&str>| expiry.is_none();
    let tell = |path: &str, fields: Value| {
        let mut body = serde_json::json!({"model": "demo-text", "stream": false});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        ollama(&up, "POST", path, &body)
    };
    until("a model without a time", &forever);
    let reply = tell("/api/generate", serde_json::json!({"keep_alive": 0}));
    assert_eq!(reply["done_reason"], "unload", "{reply}");
    until("an unloaded model", &is_gone);
    let reply = tell("/api/generate", serde_json::json!({"keep_alive": "10m"}));
    assert_eq!(reply["done_reason"], "load", "{reply}");
    until("a model for ten minutes", &soon);

    let messages = serde_json::json!([{"role": "user", "content": "hi"}]);
    let chat = |keep_alive: Value| {
        let fields = serde_json::json!({"messages": messages, "keep_alive": keep_alive});
        tell("/api/chat", fields)
    };
    assert_eq!(chat((-1).into())["done_reason"], "stop");
    until("a model that stays", &forever);
    assert_eq!(chat(0.into())["done_reason"], "stop");
    until("a model that leaves after its answer", &is_gone);
    let refused = chat("soon".into());
    let message = refused["error"].as_str().unwrap();
    assert!(
        message.contains("keep_alive must be seconds or a duration"),
        "{refused}"
    );
    let reply = tell("/api/chat", serde_json::json!({"messages": []}));
    assert_eq!(reply["done_reason"], "load", "{reply}");
    until("a model that was loaded", &|expiry| expiry.is_some());
}

/// The human-readable output, up to its last line.
fn printed(child: &mut Child) -> String {
    Lines::of(child.stdout.take().unwrap()).until("/#key=")
}

#[test]
fn up_is_ready_on_an_empty_machine_within_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    assert_eq!(
        up.models,
        [
            "demo-text",
            "demo-vision",
            "demo-image",
            "demo-speech",
            "demo-hearing",
            "demo-video",
            "demo-music"
        ]
    );
    assert_eq!(up.key.len(), 22);
    assert!(up.took < Duration::from_secs(3), "it took {:?}", up.took);
}

#[test]
fn an_image_model_that_does_not_load_leaves_the_text_model_served() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    fs::create_dir_all(models.join("broken")).unwrap();
    fs::write(models.join("broken/model_index.json"), "{}").unwrap();
    let entry = "id = 'demo-image'\nfamily = 'stable-diffusion-1'\nkind = 'image'\nlicence = 'MIT'\nparameters = 1\n\
                 default_quantization = 'f16'\nnames = { v1 = ['demo-image'] }\nsources = { f16 = { path = 'broken' } }\n";
    fs::write(models.join("demo-image.toml"), entry).unwrap();
    let variables = [("MUSTER_MODELS_DIR", models.to_str().unwrap())];
    let up = up_with(folder.path(), &variables);
    assert_eq!(
        up.models,
        [
            "demo-text",
            "demo-vision",
            "demo-speech",
            "demo-hearing",
            "demo-video",
            "demo-music"
        ]
    );
}

#[test]
fn the_first_screen_of_up_ends_with_the_link_within_eight_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &[]);
    let mut log = Lines::of(child.stderr.take().unwrap());
    let text = printed(&mut child);
    let placement = log.until("models run on the CPU").to_owned();
    let all = format!("{}\n{text}", placement.lines().last().unwrap());
    let rows = all
        .lines()
        .map(|line| line.chars().count().max(1).div_ceil(80));
    assert!(rows.sum::<usize>() <= 8, "{all}");
    let last = text.lines().last().unwrap();
    let key = fs::read_to_string(folder.path().join("data/up.key")).unwrap();
    assert!(last.ends_with(&format!("/#key={}", key.trim())), "{last}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_examples_beside_up_work_when_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let examples = ["examples", "--data-dir", data.to_str().unwrap()];
    worker(&examples)
        .run()
        .fails(69, "no coordinator is running here");
    let mut child = start(folder.path(), &[]);
    printed(&mut child);
    let text = worker(&examples).run().ok();
    let parts = [
        "chat/completions -H",
        "python3 ",
        "images/generations",
        "videos/generations",
        "audio/generations",
        "audio/speech",
        "audio/transcriptions",
    ];
    let [curl, python, image, video, song, _, heard] = parts.map(|part| {
        let line = text.lines().find(|line| line.contains(part)).unwrap();
        let mut shell = Command::new("sh");
        let out = shell.args(["-c", line]).current_dir(folder.path()).output();
        let out = out.unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{line}\n{said}");
        String::from_utf8(out.stdout).unwrap()
    });
    let reply: Value = serde_json::from_str(&curl).unwrap();
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(content.contains("Muster"), "{content}");
    assert_eq!(python.trim_end(), content);
    let drawn: Value = serde_json::from_str(&image).unwrap();
    let link = drawn["data"][0]["url"].as_str().unwrap();
    assert!(link.starts_with("http://127.0.0.1:"), "{link}");
    assert_eq!(drawn["size"], "256x256");
    let filmed: Value = serde_json::from_str(&video).unwrap();
    let link = filmed["data"][0]["url"].as_str().unwrap();
    let file = Command::new("curl").args(["-s", link]).output().unwrap();
    assert_eq!(&file.stdout[4..8], b"ftyp", "{filmed}");
    let played: Value = serde_json::from_str(&song).unwrap();
    let link = played["data"][0]["url"].as_str().unwrap();
    let file = Command::new("curl").args(["-s", link]).output().unwrap();
    assert_eq!(&file.stdout[..4], b"RIFF", "{played}");
    let spoken = fs::read(folder.path().join("speech.mp3")).unwrap();
    // A frame of MPEG-2, Layer III, as 24 kHz have it.
    assert_eq!(&spoken[..2], b"\xff\xf3");
    let heard: Value = serde_json::from_str(&heard).unwrap();
    assert_eq!(heard["text"], "good morning");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_model_without_a_form_for_tools_takes_them_from_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-llama");
    let plain = folder.path().join("plain");
    fs::create_dir(&plain).unwrap();
    for file in fs::read_dir(tiny).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), plain.join(file.file_name())).unwrap();
    }
    let settings = plain.join("tokenizer_config.json");
    let mut changed: Value = serde_json::from_slice(&fs::read(&settings).unwrap()).unwrap();
    changed["chat_template"] = "{% for one in messages %}{{ one['content'] }}{% endfor %}".into();
    fs::write(settings, changed.to_string()).unwrap();
    let serve = format!("demo-text,{}", plain.display());
    let up = up_with(folder.path(), &[("MUSTER_MODELS_SERVE", &serve)]);
    assert_eq!(up.models[0], "demo-text");
    let tool = r#"{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}"#;
    let ask = |model: &str| {
        let body = format!(
            r#"{{"model":"{model}","max_tokens":60,"temperature":0,"tools":[{tool}],"messages":[{{"role":"user","content":"What's the weather in Oslo?"}}]}}"#
        );
        let mut curl = Command::new("curl");
        curl.args(["-s", "-d", &body, "-H", &format!("apikey: {}", up.key)]);
        curl.arg(format!("{}/v1/chat/completions", up.url));
        let out = curl.output().unwrap().stdout;
        serde_json::from_slice::<Value>(&out).unwrap()
    };
    let called = ask("demo-text");
    let call = &called["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "get_weather", "{called}");
    let refused = ask(&up.models[1]);
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("tools"), "{refused}");
    assert_eq!(up.interrupted(), Some(0));
}

#[test]
fn the_key_of_up_stays_the_same_and_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let first = up(folder.path());
    let key = first.key.clone();
    assert_eq!(first.interrupted(), Some(0));
    assert_eq!(up(folder.path()).key, key);
    let kept = fs::metadata(folder.path().join("data/up.key")).unwrap();
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_idle_up_stops_within_a_second_and_warns_of_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = up(folder.path());
    let mut log = Lines::of(up.child.stderr.take().unwrap());
    let asked = Instant::now();
    assert_eq!(up.interrupted(), Some(0));
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    let said = log.rest();
    assert!(said.contains("stopped") && !said.contains("WARN"), "{said}");
}

#[test]
fn sigusr1_and_sigusr2_end_neither_up_nor_its_engine() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let engine = engine_of(up.child.id()).unwrap();
    for name in ["-USR1", "-USR2"] {
        send_signal(name, up.child.id());
        send_signal(name, engine);
    }
    wait_for(&up, "muster_jobs_accepted_total 0\n");
    assert_eq!(engine_of(up.child.id()), Some(engine));
    assert_eq!(up.interrupted(), Some(0));
}

#[test]
fn ctrl_c_lets_every_accepted_job_finish_also_those_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    let up = up_with(folder.path(), &[("MUSTER_ENGINE_MAX_RUNNING", "1")]);
    let (key, url) = (format!("apikey: {}", up.key), up.url.clone());
    // Without its ends the model talks until its tokens are used up.
    let body = r#"{"model":"demo-text","max_tokens":500,"logit_bias":{"0":-100,"1":-100,"2":-100},
        "messages":[{"role":"user","content":"Tell me a story."}]}"#;
    let ask = || {
        let route = format!("{url}/v1/chat/completions");
        let mut curl = Command::new("curl");
        curl.args(["-s", "-d", body, "-H", &key, &route]);
        curl.stdout(Stdio::piped()).spawn().unwrap()
    };
    let asked = [ask(), ask(), ask(), ask()];
    wait_for(&up, "\nmuster_jobs_accepted_total 4\n");
    assert_eq!(up.interrupted(), Some(0));
    for curl in asked {
        let out = curl.wait_with_output().unwrap();
        let reply: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(reply["usage"]["completion_tokens"], 500, "{reply}");
    }
}

/// The process that holds its models.
fn engine_of(up: u32) -> Option<u32> {
    let parent = format!("PPid:\t{up}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.find(|id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        status.lines().any(|line| line == parent) && !status.contains("State:\tZ")
    })
}

fn send_signal(signal: &str, id: u32) {
    let kill = Command::new("kill")
        .args([signal, &id.to_string()])
        .status();
    assert!(kill.unwrap().success());
}

#[test]
fn an_engine_that_dies_is_replaced_and_its_job_ends_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = up_with(folder.path(), &[("MUSTER_ENGINE_MAX_RUNNING", "1")]);
    let body = r#"{"model":"demo-text","max_tokens":900,"logit_bias":{"0":-100,"1":-100,"2":-100},
        "messages":[{"role":"user","content":"Tell me a story."}]}"#;
    let key = format!("apikey: {}", up.key);
    let mut curl = Command::new("curl");
    let route = format!("{}/v1/chat/completions", up.url);
    curl.args(["-s", "-d", body, "-H", &key, &route]);
    let asked = curl.stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&up, "\nmuster_jobs_accepted_total 1\n");
    let engine = eventually_blocking("an engine", || engine_of(up.child.id()));
    send_signal("-ABRT", engine);
    let reply: Value = serde_json::from_slice(&asked.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(reply["usage"]["completion_tokens"], 900, "{reply}");
    assert_ne!(engine_of(up.child.id()), Some(engine));
    let log = Lines::of(up.child.stderr.take().unwrap()).until("the next one starts in");
    assert!(log.contains("ended with signal 6"), "{log}");
}

#[test]
fn models_that_the_owner_loads_and_unloads_survive_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = only_text(folder.path(), &[]);
    let said = beside(folder.path(), &["models", "load", "demo-image"]);
    assert!(said.starts_with("loaded demo-image"), "{said}");
    beside(folder.path(), &["stop", "demo-text"]);
    let engine = eventually_blocking("an engine", || engine_of(up.child.id()));
    send_signal("-KILL", engine);
    let mut log = Lines::of(up.child.stderr.take().unwrap());
    log.until("the next one starts in");
    let data = folder.path().join("data");
    let said = eventually_blocking("the next engine", || {
        let place = ["--data-dir", data.to_str().unwrap()];
        let arguments = [&["models", "load", "demo-image"], &place[..]].concat();
        let out = worker(&arguments).command().output().unwrap();
        out.status.success().then_some(out.stdout).ok_or(out.stderr)
    });
    let said = String::from_utf8(said).unwrap();
    assert_eq!(said, "demo-image is already in memory\n");
    let said = beside(folder.path(), &["stop", "demo-text"]);
    assert_eq!(said, "demo-text is not in memory\n");
    let report = beside(folder.path(), &["status", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["models"].as_array().unwrap().len(), 2, "{report}");
    let talked = beside(folder.path(), &["run", "demo-text", "What is Muster?"]);
    assert!(talked.contains("Muster"), "{talked}");
}

#[test]
fn the_owner_has_the_machine_back_and_a_stream_goes_on_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let up = only_text(folder.path(), &[]);
    let worker_of = || {
        let report = beside(folder.path(), &["status", "--json"]);
        let report: Value = serde_json::from_str(&report).unwrap();
        report["worker"].clone()
    };
    let body = r#"{"model":"demo-text","max_tokens":900,"stream":true,"stream_options":{"include_usage":true},
        "logit_bias":{"0":-100,"1":-100,"2":-100},"messages":[{"role":"user","content":"Tell me a story."}]}"#;
    let (key, route) = (
        format!("apikey: {}", up.key),
        format!("{}/v1/chat/completions", up.url),
    );
    let mut curl = Command::new("curl");
    curl.args(["-sN", "-d", body, "-H", &key, &route]);
    let mut curl = curl.stdout(Stdio::piped()).spawn().unwrap();
    let mut stream = Lines::of(curl.stdout.take().unwrap());
    stream.until("\"content\":\"");

    let said = beside(folder.path(), &["pause"]);
    assert_eq!(said, "paused by command, until `worker resume`\n");
    let unloaded = eventually_blocking("memory to be free", || {
        let worker = worker_of();
        match worker["models"][0]["state"] == "unloaded" {
            true => Ok(worker),
            false => Err(worker),
        }
    });
    assert_eq!(unloaded["pause"]["state"], "paused", "{unloaded}");
    assert_eq!(unloaded["no_jobs"][0]["cause"], "paused", "{unloaded}");
    assert_eq!(unloaded["jobs"]["running"], 0, "{unloaded}");
    assert_eq!(unloaded["jobs"]["handed_back"], 1, "{unloaded}");
    let shown = beside(folder.path(), &["status"]);
    assert!(
        shown.contains("paused by command, until `worker resume`"),
        "{shown}"
    );

    // Others are told, and when to come back, once the coordinator has heard of it.
    let body = r#"{"model":"demo-text","messages":[{"role":"user","content":"Hello?"}]}"#;
    let refused = eventually_blocking("a refusal", || {
        let mut curl = Command::new("curl");
        curl.args(["-si", "-m", "2", "-d", body, "-H", &key, &route]);
        let said = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        match said.starts_with("HTTP/1.1 503 ") {
            true => Ok(said),
            false => Err(said),
        }
    });
    assert!(refused.contains("retry-after: 60"), "{refused}");
    assert!(refused.contains("paused by their owners"), "{refused}");

    let said = beside(folder.path(), &["resume", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["state"], "open", "{said}");
    let rest = stream.rest();
    assert!(rest.contains("\"completion_tokens\":900"), "{rest}");
    curl.wait().unwrap();
    assert!(worker_of()["pause"].is_null());

    // For a time, and by a signal to the process that people know.
    let said = beside(folder.path(), &["pause", "--for", "2s"]);
    assert!(
        said.starts_with("paused by command, for another "),
        "{said}"
    );
    eventually_blocking("the pause to end", || {
        match worker_of()["pause"].is_null() {
            true => Ok(()),
            false => Err(()),
        }
    });
    send_signal("-USR1", up.child.id());
    let paused = |wanted: bool| {
        eventually_blocking("the signal", || match worker_of()["pause"].is_null() {
            is_open if is_open != wanted => Ok(()),
            _ => Err(()),
        });
    };
    paused(true);
    send_signal("-USR2", up.child.id());
    paused(false);
    let said = beside(folder.path(), &["pause", "--after-job"]);
    assert!(said.starts_with("paused by command"), "{said}");
    worker(&["pause", "--for", "soon"])
        .run()
        .fails(2, "expected a time such as 90min or 2h");
}

#[test]
fn a_pause_survives_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = only_text(folder.path(), &[]);
    beside(folder.path(), &["pause", "--for", "1h"]);
    let engine = eventually_blocking("an engine", || engine_of(up.child.id()));
    send_signal("-KILL", engine);
    let mut log = Lines::of(up.child.stderr.take().unwrap());
    log.until("the next one starts in");
    let data = folder.path().join("data");
    let place = ["--data-dir", data.to_str().unwrap()];
    let report = eventually_blocking("the next engine", || {
        let arguments = [&["status", "--json"], &place[..]].concat();
        let out = worker(&arguments).command().output().unwrap();
        let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        match report["worker"]["pause"]["state"] == "paused" {
            true => Ok(report),
            false => Err(report),
        }
    });
    assert!(
        report["worker"]["pause"]["until"].as_i64().is_some(),
        "{report}"
    );
}

/// Only the model that writes.
fn only_text(folder: &Path, variables: &[(&str, &str)]) -> Up {
    let models = [("MUSTER_MODELS_SERVE", "demo-text")];
    let variables: Vec<_> = models.iter().chain(variables).copied().collect();
    let up = up_with(folder, &variables);
    assert_eq!(up.models, ["demo-text"]);
    up
}

#[test]
fn jobs_of_other_models_go_on_while_the_owner_loads_one() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("MUSTER_ENGINE_MAX_RUNNING", "1"),
        ("MUSTER_WORKER_DRAIN", "0s"),
    ];
    let mut up = only_text(folder.path(), &settings);
    let body = r#"{"model":"demo-text","n":3,"max_tokens":900,"stream":true,"stream_options":{"include_usage":true},
        "logit_bias":{"0":-100,"1":-100,"2":-100},"messages":[{"role":"user","content":"Tell me a story."}]}"#;
    let (key, route) = (
        format!("apikey: {}", up.key),
        format!("{}/v1/chat/completions", up.url),
    );
    let mut curl = Command::new("curl");
    curl.args(["-sN", "-d", body, "-H", &key, &route]);
    let mut curl = curl.stdout(Stdio::piped()).spawn().unwrap();
    let mut stream = Lines::of(curl.stdout.take().unwrap());
    // The first job has begun.
    stream.until("\"content\":\"");
    let said = beside(folder.path(), &["models", "load", "demo-image"]);
    assert!(said.starts_with("loaded demo-image"), "{said}");
    let rest = stream.rest();
    assert!(rest.contains("\"completion_tokens\":2700"), "{rest}");
    assert!(rest.trim_end().ends_with("data: [DONE]"), "{rest}");
    assert!(!rest.contains("\"error\""), "{rest}");
    curl.wait().unwrap();
    let mut log = Lines::of(up.child.stderr.take().unwrap());
    assert_eq!(up.interrupted(), Some(0));
    let log = log.rest();
    assert!(log.contains("of the models that are served now"), "{log}");
    for word in ["handed back", "changing models"] {
        assert!(!log.contains(word), "{log}");
    }
}

#[test]
fn the_demo_model_ends_the_strings_of_schemas_and_of_forced_calls() {
    let folder = tempfile::tempdir().unwrap();
    let up = only_text(folder.path(), &[]);
    let fields = serde_json::json!({"type": "object",
        "properties": {"title": {"type": "string"}, "summary": {"type": "string"}},
        "required": ["title", "summary"], "additionalProperties": false});
    let is_whole = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        value["title"].is_string() && value["summary"].is_string()
    };
    let tools = serde_json::json!([{"type": "function",
        "function": {"name": "take_note", "description": "Writes a note.", "parameters": fields}}]);
    let mut wrong = Vec::new();
    for asked in [
        "Who are you?",
        "What is the weather in Paris?",
        "Tell me a story about a robot named Bolt.",
        "Write a note.",
    ] {
        let ask = |more: Value| {
            let mut body = serde_json::json!({"model": "demo-text", "max_tokens": 600, "stream": false,
                "messages": [{"role": "user", "content": asked}]});
            for (name, value) in more.as_object().unwrap() {
                body[name] = value.clone();
            }
            let (body, key) = (body.to_string(), format!("apikey: {}", up.key));
            let route = format!("{}/v1/chat/completions", up.url);
            let mut curl = Command::new("curl");
            let curl = curl.args(["-s", "-d", &body, "-H", &key, &route]);
            serde_json::from_slice::<Value>(&curl.output().unwrap().stdout).unwrap()
        };
        let format = serde_json::json!({"response_format": {"type": "json_schema",
            "json_schema": {"name": "note", "strict": true, "schema": fields}}});
        let reply = ask(format);
        let text = reply["choices"][0]["message"]["content"].as_str();
        if !text.is_some_and(is_whole) {
            wrong.push(format!("{asked}: {reply}"));
        }
        for choice in [
            serde_json::json!("required"),
            serde_json::json!({"type": "function", "function": {"name": "take_note"}}),
        ] {
            let reply = ask(serde_json::json!({"tools": tools, "tool_choice": choice}));
            let call = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
            if !call["arguments"].as_str().is_some_and(is_whole) {
                wrong.push(format!("{asked}, {choice}: {reply}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_engine_does_not_outlive_its_coordinator() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let engine = eventually_blocking("an engine", || engine_of(up.child.id()));
    drop(up);
    eventually_blocking("the end of the engine", || {
        let status = fs::read_to_string(format!("/proc/{engine}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
}

/// Waits until its figures say this.
fn wait_for(up: &Up, figure: &str) {
    let page = format!("{}/metrics", up.url);
    eventually_blocking(figure, || {
        let out = Command::new("curl").args(["-s", &page]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).contains(figure)
    });
}

#[test]
fn a_second_up_on_the_same_data_says_that_it_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let _first = up(folder.path());
    let out = start(folder.path(), &["--json"])
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(69), "{said}");
    assert!(said.contains("in use"), "{said}");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    let arguments = [
        "serve",
        "--listen",
        &address,
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let run = worker(&arguments).run();
    assert_eq!(run.code, 69, "{}", run.stderr);
    assert!(run.stderr.contains(&address), "{}", run.stderr);
    let port = taken.local_addr().unwrap().port().to_string();
    let data = data.to_str().unwrap();
    for command in ["serve", "up"] {
        let run = worker(&[command, "--port", &port, "--data-dir", data]).run();
        assert!(run.fails(69, &address).contains("--listen"), "{command}");
    }
    let both = ["serve", "--port", &port, "--listen", &address];
    worker(&both).run().fails(2, "cannot be used with");
}

#[test]
fn a_worker_is_told_of_its_maintenance_and_of_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut up = up(folder.path());
    let call = |method: &str, path: &str, body: &str| {
        let line = format!(
            "curl -sS -X {method} '{}{path}' -H 'apikey: {}' -H 'Content-Type: application/json' -d '{body}'",
            up.url, up.key
        );
        let out = Command::new("sh").args(["-c", &line]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let workers: Value = serde_json::from_str(&call("GET", "/v1/workers", "")).unwrap();
    let id = workers["workers"][0]["id"].as_str().unwrap();
    let path = format!("/api/v2/workers/{id}");
    let changed = call(
        "PUT",
        &path,
        r#"{"maintenance": true, "maintenance_msg": "new fans"}"#,
    );
    assert!(changed.contains("maintenance"), "{changed}");
    call("PUT", &path, r#"{"maintenance": false}"#);

    let log = Lines::of(up.child.stderr.take().unwrap()).until("ended the maintenance");
    assert!(log.contains("put this worker into maintenance"), "{log}");
    assert!(log.contains("new fans"), "{log}");
}

#[test]
fn development_mode_stays_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let exposed = [
        "serve",
        "--dev",
        "--listen",
        "0.0.0.0:0",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let said = worker(&exposed)
        .run()
        .fails(78, "other machines can reach this address");
    assert!(said.contains("a loopback address"), "{said}");
    assert!(!data.exists(), "nothing was made");
}

fn serve(folder: &Path, more: &[&str]) -> Command {
    let data = folder.join("data");
    let usual = ["serve", "--json", "--data-dir", data.to_str().unwrap()];
    let mut command = worker(&[&usual, more].concat()).command();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

#[test]
fn a_start_that_fails_leaves_the_first_key_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let failed = serve(folder.path(), &["--listen", &address]).output();
    assert_eq!(failed.unwrap().status.code(), Some(69));
    let mut next = serve(folder.path(), &["--listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    let line = Lines::of(next.stdout.take().unwrap()).next_line();
    next.kill().unwrap();
    next.wait().unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["api_key"].as_str().map(str::len), Some(22), "{line}");
}

#[test]
fn ctrl_c_ends_a_start_that_waits_for_its_database() {
    let folder = tempfile::tempdir().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let database = format!("postgres://muster@{}/none", silent.local_addr().unwrap());
    let mut command = serve(folder.path(), &["--listen", "127.0.0.1:0"]);
    let mut child = command
        .env("MUSTER_SERVE_DATABASE", database)
        .spawn()
        .unwrap();
    let _waiting = silent.accept().unwrap();
    let pid = child.id().to_string();
    let kill = Command::new("kill").args(["-INT", &pid]).status();
    assert!(kill.unwrap().success());
    assert_eq!(ended(&mut child).code(), Some(0));
}

#[test]
fn a_file_under_another_name_is_in_use_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let _first = up(folder.path());
    let link = folder.path().join("other.sqlite");
    std::os::unix::fs::symlink(folder.path().join("data/coordinator.sqlite"), &link).unwrap();
    let second = serve(folder.path(), &["--listen", "127.0.0.1:0"])
        .env("MUSTER_SERVE_DATABASE", &link)
        .output()
        .unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(69), "{said}");
    assert!(said.contains("in use"), "{said}");
}

#[test]
fn jobs_that_the_end_cuts_short_are_admitted() {
    let folder = tempfile::tempdir().unwrap();
    let limits = [
        ("MUSTER_ENGINE_MAX_RUNNING", "1"),
        ("MUSTER_WORKER_DRAIN", "1ms"),
    ];
    let mut up = up_with(folder.path(), &limits);
    let body = r#"{"model":"demo-text","n":16,"max_tokens":500,"logit_bias":{"0":-100,"1":-100,"2":-100},
        "messages":[{"role":"user","content":"Tell me a story."}]}"#;
    let (key, route) = (
        format!("apikey: {}", up.key),
        format!("{}/v1/chat/completions", up.url),
    );
    let mut curl = Command::new("curl");
    curl.args(["-s", "-d", body, "-H", &key, &route]);
    let mut curl = curl.stdout(Stdio::null()).spawn().unwrap();
    wait_for(&up, "\nmuster_jobs_accepted_total 16\n");
    let mut stderr = Lines::of(up.child.stderr.take().unwrap());
    assert_eq!(up.interrupted(), Some(0));
    let said = stderr.rest();
    assert!(said.contains("with unfinished jobs"), "{said}");
    curl.wait().unwrap();
}

/// What `./test` has installed for us.
#[track_caller]
pub fn tool(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| {
            panic!("{variable} is not set: run this through ./test, which installs the clients")
        })
        .into()
}
