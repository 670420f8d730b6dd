//! The list of kinds, held by one more: a number in, a tone out. The feature `tone` adds it, and its lines stand in few
//! files that are not its own.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use muster_testing::{Lines, eventually_blocking};
use serde_json::{Value, json};

/// Files in which lines of the new kind may stand beside those of others.
const MOST_FILES: usize = 6;

/// A process that is killed with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Service {
    _process: Process,
    url: String,
    key: String,
}

fn worker(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent");
    command
}

fn serve(folder: &Path) -> Service {
    let data = folder.join("coordinator");
    let mut command = worker(&["serve", "--json", "--quiet", "--listen", "127.0.0.1:0"]);
    let command = command.arg("--data-dir").arg(data).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = Lines::of(child.stdout.take().unwrap());
    let ready: Value = serde_json::from_str(&stdout.next_line()).unwrap();
    let text = |name: &str| ready[name].as_str().unwrap().to_owned();
    Service {
        url: text("url"),
        key: text("api_key"),
        _process: Process(child),
    }
}

impl Service {
    /// A worker with a model for tones and one for texts.
    fn worker(&self, folder: &Path) -> Process {
        let model = folder.join("fork");
        std::fs::create_dir_all(&model).unwrap();
        std::fs::write(model.join("tone.json"), "{}").unwrap();
        let file = folder.join("worker.toml");
        let socket = self.url.replacen("http", "ws", 1);
        let (data, key) = (folder.join("worker"), &self.key);
        let text = format!(
            "[worker]\nname = \"plays\"\ndata_dir = {data:?}\n[models]\nserve = [{model:?}, \"demo-text\"]\n\
             [[coordinator]]\nurl = {socket:?}\nkey = {key:?}\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut command = worker(&["--quiet", "--config", file.to_str().unwrap()]);
        let process = Process(command.spawn().unwrap());
        eventually_blocking("the models to be listed", || {
            let models = self.get("/v1/models?type=all").to_string();
            models.contains("\"fork\"") && models.contains("\"demo-text\"")
        });
        process
    }

    fn get(&self, path: &str) -> Value {
        self.curl(&[path])
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.curl(&[path, "--json", &body.to_string()])
    }

    fn curl(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new("curl");
        let key = format!("Authorization: Bearer {}", self.key);
        command.args(["-s", "-H", &key]);
        let (path, rest) = arguments.split_first().unwrap();
        let output = command
            .arg(format!("{}{path}", self.url))
            .args(rest)
            .output();
        let output = output.unwrap().stdout;
        serde_json::from_slice(&output).unwrap_or_else(|_| String::from_utf8_lossy(&output).into())
    }
}

fn fetch(link: &str) -> Vec<u8> {
    let output = Command::new("curl").args(["-sf", link]).output();
    output.unwrap().stdout
}

/// The frequency of a WAV file of 16 bits and one channel, by its zeros.
fn pitch(wav: &[u8]) -> f64 {
    let rate = u32::from_le_bytes(wav[24..28].try_into().unwrap());
    let samples: Vec<i16> = wav[44..]
        .chunks_exact(2)
        .map(|two| i16::from_le_bytes(two.try_into().unwrap()))
        .collect();
    let rises = samples.windows(2).filter(|two| two[0] < 0 && two[1] >= 0);
    rises.count() as f64 * f64::from(rate) / samples.len() as f64
}

#[test]
fn one_more_kind_is_served_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let _worker = service.worker(folder.path());

    let reply = service.post("/v1/audio/tones", &json!({"hertz": 440}));
    let link = reply["data"][0]["url"].as_str();
    let heard = pitch(&fetch(link.unwrap_or_else(|| panic!("{reply}"))));
    assert!((heard - 440.0).abs() <= 1.0, "{heard} Hz");

    let entry = service.get("/v1/models/fork");
    assert_eq!(entry["output_modalities"], json!(["audio"]), "{entry}");
    let settings = service.get("/v1/models/fork/params");
    assert_eq!(settings["route"], "/v1/audio/tones", "{settings}");
    let document = service.get("/openapi.json");
    assert!(document["paths"]["/v1/audio/tones"]["post"]["requestBody"].is_object());

    let refused = |path: &str, body: Value, words: &str| {
        let message = service.post(path, &body)["error"]["message"].to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(
        "/v1/audio/tones",
        json!({"hertz": 1}),
        "hertz must be a number from 20 to 20000, found 1",
    );
    refused(
        "/v1/audio/tones",
        json!({"hertz": 440, "model": "demo-text"}),
        "demo-text is not a tone model; send text requests for it to POST /v1/chat/completions; audio models online: fork",
    );
    let chat = json!({"model": "fork", "messages": [{"role": "user", "content": "A"}]});
    refused(
        "/v1/chat/completions",
        chat,
        "send tone requests for it to POST /v1/audio/tones",
    );
}

#[test]
fn one_more_kind_changes_few_files() {
    let mut files = Vec::new();
    collect(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")),
        &mut files,
    );
    let changed: Vec<_> = files
        .iter()
        .filter(|path| {
            !path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("tone")
        })
        .filter(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            text.contains("feature = \"tone\"")
        })
        .collect();
    assert!((1..=MOST_FILES).contains(&changed.len()), "{changed:#?}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false if path.extension().is_some_and(|it| it == "rs") => files.push(path),
            false => {}
        }
    }
}
