//! `worker up` on a machine that could hold a better model than it has, at a terminal and without one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use muster_testing::{Lines, ended};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::hub::FakeHub;
use crate::support::worker::{Worker, worker};
use crate::up::tool;

/// A user whose catalog has one model that fits, on a local hub.
struct Newcomer {
    home: TempDir,
    hub: FakeHub,
}

const BETTER: &str = r#"
id = "better"
description = "A model of this test."
family = "llama"
kind = "text"
licence = "MIT"
context = 1024
default_quantization = "q8_0"
[names]
v1 = ["better"]
legacy = []
[shape]
parameters = 50_000_000
layers = 2
kv_heads = 2
head_dim = 16
[sources.q8_0]
repository = "org/model"
files = [{ path = "better.gguf" }]
"#;

/// A line of an entry without the size of its file, which is then counted from the parameters.
fn without_size(line: &str) -> String {
    let Some((before, after)) = line.split_once(", size = ") else {
        return line.to_owned();
    };
    let end = after.find([',', ' ']).unwrap();
    format!("{before}{}", &after[end..])
}

impl Newcomer {
    fn new() -> Self {
        let hub = FakeHub::start();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let model = fs::read(root.join("tests/fixtures/tiny-llama.gguf")).unwrap();
        hub.large_file("better.gguf", model);
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("catalog")).unwrap();
        fs::write(home.path().join("catalog/better.toml"), BETTER).unwrap();
        let newcomer = Self { home, hub };
        newcomer.outgrow(&root.join("models"));
        newcomer
    }

    /// Of the models that the program knows, none but its own fits.
    fn outgrow(&self, models: &Path) {
        for item in fs::read_dir(models).unwrap() {
            let path = item.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if !name.ends_with(".toml") || name == "demo-text.toml" {
                continue;
            }
            let large = |line: &str| match line.starts_with("parameters") {
                true => "parameters = 9_000_000_000_000\n".to_owned(),
                false => format!("{}\n", without_size(line)),
            };
            let text: String = fs::read_to_string(&path)
                .unwrap()
                .lines()
                .map(large)
                .collect();
            fs::write(self.home.path().join("catalog").join(name), text).unwrap();
        }
    }

    fn types(&self, more: &[&str]) -> Worker {
        let up = ["up", "--listen", "127.0.0.1:0"];
        let home = self.home.path();
        let at = |name: &str| home.join(name).to_str().unwrap().to_owned();
        worker(&[&up, more].concat())
            .env("HOME", home.to_str().unwrap())
            .env("HF_ENDPOINT", &self.hub.endpoint)
            .env("MUSTER_MODELS_DIR", &at("catalog"))
            .env("MUSTER_WORKER_DATA_DIR", &at("data"))
            .env("MUSTER_WORKER_LOG_LEVEL", "warn")
    }

    /// The same on a terminal, which `script` plays.
    fn at_terminal(&self, more: &[&str]) -> Running {
        let plain = self.types(more).command();
        let words = std::iter::once(plain.get_program()).chain(plain.get_args());
        let line: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
        let mut command = Command::new("script");
        command
            .args(["-qfec", &format!("exec {}", line.join(" ")), "/dev/null"])
            .env_clear();
        let variables = plain.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        Running::start(command.stdin(Stdio::piped()))
    }
}

struct Running {
    child: Child,
    stdout: Lines,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        Self {
            stdout: Lines::of(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Everything up to these words.
    #[track_caller]
    fn until(&mut self, words: &str) -> String {
        self.stdout.until_asked(words)
    }

    fn answer(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
    }
}

impl Drop for Running {
    /// On a terminal the program is a child of `script`, and killing that leaves it behind where hanging up is ignored:
    /// it is asked first.
    fn drop(&mut self) {
        if let Some(stdin) = &mut self.child.stdin {
            let _ = stdin.write_all(b"\x03");
            ended(&mut self.child);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn at_a_terminal_a_yes_brings_the_better_model_and_serves_it() {
    let newcomer = Newcomer::new();
    let mut up = newcomer.at_terminal(&[]);
    let question = up.until("[y/N] ");
    assert!(question.contains("better:q8_0"), "{question}");
    assert!(question.contains("50.7 MiB"), "its size: {question}");
    assert!(question.contains(".cache/huggingface/hub"), "{question}");
    assert!(newcomer.hub.seen().is_empty(), "nobody has agreed yet");
    up.answer("y\n");
    let said = up.until("/#key=");
    assert!(said.contains("models better"), "{said}");
}

#[test]
fn at_a_terminal_the_log_begins_after_the_ready_block_unless_asked() {
    let newcomer = Newcomer::new();
    // As a newcomer has it: nothing is set.
    let start = |more: &str, set: &str| {
        let home = newcomer.home.path().to_str().unwrap();
        let binary = env!("CARGO_BIN_EXE_worker");
        let line = format!("exec {binary} up --offline --listen 127.0.0.1:0 {more}");
        let mut command = Command::new("script");
        command.args(["-qfec", &line, "/dev/null"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", home);
        if let Some((name, value)) = set.split_once('=') {
            command.env(name, value);
        }
        Running::start(command.stdin(Stdio::piped()))
    };
    let until_ready = |more: &str, set: &str| {
        let mut up = start(more, set);
        up.until("/#key=").to_owned()
    };
    let quiet = until_ready("", "");
    assert!(!quiet.contains("INFO"), "{quiet}");
    let begin = "models run on the CPU: this build has no CUDA\r\nready at";
    assert!(quiet.trim_start().starts_with(begin), "{quiet}");
    assert!(until_ready("-v", "").contains("DEBUG"));
    assert!(until_ready("", "RUST_LOG=info").contains("INFO"));
    assert!(until_ready("", "MUSTER_WORKER_LOG_LEVEL=info").contains("INFO"));
    let mut colours = start("-v", "");
    assert!(colours.until("/#key=").contains('\x1b'));
    drop(colours);
    let mut plain = start("-v", "NO_COLOR=1");
    let said = plain.until("/#key=");
    assert!(!said.contains('\x1b'), "{said}");
    drop(plain);
    // The log goes on after it.
    let mut up = start("", "");
    up.until("/#key=");
    up.answer("\x03");
    up.until("stopping");
}

#[test]
fn anything_else_starts_with_what_is_here() {
    let newcomer = Newcomer::new();
    let mut up = newcomer.at_terminal(&[]);
    up.until("[y/N] ");
    up.answer("\n");
    let said = up.until("/#key=");
    assert!(said.contains("models demo-text"), "{said}");
    assert!(newcomer.hub.seen().is_empty());
    drop(up);
    // The answer is remembered.
    let said = newcomer.at_terminal(&[]).until("/#key=").to_owned();
    assert!(!said.contains("[y/N]"), "{said}");
}

/// Pulls like Ollama's client, from this machine and without a key, and checks the pulled model.
const PULL: &str = r#"
import sys, ollama
client = ollama.Client(host=sys.argv[1])
lines = list(client.pull("better:latest", stream=True))
assert lines[0].status == "pulling manifest", lines
assert lines[-1].status == "success", lines
for line in lines:
    assert line.total is None or line.completed <= line.total, lines
assert "better" in [model.model for model in client.list().models]
assert client.generate("better", "a", options={"num_predict": 2}).eval_count == 2
assert client.pull("better", stream=False).status == "success"
try:
    client.pull("bettr", stream=False)
except ollama.ResponseError as error:
    assert error.status_code == 404 and "better" in str(error), error
else:
    raise AssertionError("bettr was pulled")
listed = {model.model: model for model in client.list().models}
assert listed["better"].size > 0 and len(listed["better"].digest) == 64, listed["better"]
assert listed["better"].details.format in ("gguf", "safetensors"), listed["better"]
assert client.copy("better:latest", "mine").status == "success"
assert client.generate("mine", "a", options={"num_predict": 2}).eval_count == 2
assert {"better", "mine"} <= {model.model for model in client.list().models}
try:
    client.delete("better")
    raise AssertionError("better was deleted before its copy")
except ollama.ResponseError as error:
    assert error.status_code == 400 and "mine" in str(error), error
assert client.delete("mine:latest").status == "success"
assert client.delete("better").status == "success"
assert "better" not in {model.model for model in client.list().models}
for name, code in (("better", 404), ("demo-text", 400)):
    try:
        client.delete(name)
        raise AssertionError(f"{name} was deleted")
    except ollama.ResponseError as error:
        assert error.status_code == code, error
"#;

#[test]
fn ollamas_client_pulls_a_model_that_is_served_then() {
    let newcomer = Newcomer::new();
    let mut up = Running::start(
        newcomer
            .types(&["--json", "--model", "demo-text"])
            .command()
            .stdin(Stdio::null()),
    );
    let ready: Value = serde_json::from_str(&up.stdout.next_line()).unwrap();
    let mut python = Command::new(tool("MUSTER_TEST_PYTHON"));
    let pulled = python
        .args(["-c", PULL, ready["url"].as_str().unwrap()])
        .output();
    let pulled = pulled.unwrap();
    let said = String::from_utf8_lossy(&pulled.stderr);
    assert!(pulled.status.success(), "{said}");
}

#[test]
fn ctrl_c_is_an_answer() {
    let newcomer = Newcomer::new();
    let mut up = newcomer.at_terminal(&[]);
    up.until("[y/N] ");
    up.answer("\u{3}");
    assert_eq!(ended(&mut up.child).code(), Some(0));
}

#[test]
fn a_pull_that_fails_is_no_reason_not_to_start() {
    let newcomer = Newcomer::new();
    newcomer.hub.wants_token("nobody has it");
    let mut up = newcomer.at_terminal(&[]);
    up.until("[y/N] ");
    up.answer("yes\n");
    let said = up.until("/#key=");
    assert!(
        said.contains("continuing with the models on disk"),
        "{said}"
    );
    assert!(said.contains("models demo-text"), "{said}");
}

#[test]
fn a_script_is_never_asked() {
    let newcomer = Newcomer::new();
    let mut up = newcomer.at_terminal(&["--json"]);
    let said = up.until("}\r\n");
    let line = said.lines().find(|line| line.starts_with('{')).unwrap();
    let ready: Value = serde_json::from_str(line).unwrap();
    assert!(!said.contains("[y/N]"), "{said}");
    assert_eq!(
        ready["models"],
        serde_json::json!([
            "demo-text",
            "demo-vision",
            "demo-image",
            "demo-speech",
            "demo-hearing",
            "demo-video",
            "demo-music"
        ])
    );
}

#[test]
fn without_a_terminal_the_command_is_printed() {
    let newcomer = Newcomer::new();
    let mut command = newcomer.types(&[]).command();
    // Both on one pipe, in their order.
    command.args(["--data-dir", newcomer.home.path().to_str().unwrap()]);
    let mut up = Command::new("sh");
    up.args(["-c", "exec \"$0\" \"$@\" 2>&1"])
        .arg(command.get_program());
    up.args(command.get_args()).env_clear();
    let variables = command.get_envs();
    up.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    let mut up = Running::start(up.stdin(Stdio::null()));
    let said = up.until("/#key=");
    assert!(said.contains("worker models pull better:q8_0"), "{said}");
    let advice = said.find("then start again");
    assert!(advice < said.find("ready at"), "the link is last: {said}");
    assert!(!said.contains("[y/N]"), "{said}");
}
