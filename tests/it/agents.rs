//! Coding agents, unmodified, on a worker whose answers are scripted: their requests are large, and no small model answers
//! them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster::coordinator::state::DoorSettings;
use muster::protocol::job::{
    Body, Capabilities, Chat, Event, FinishReason, TextInput, ToolCallEvent,
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::support::app::App;
use crate::support::puppet::{Puppet, done, started, text};
use crate::up::tool;

/// Time limit of an agent on a busy machine: some take ten seconds to start.
const LONGEST: Duration = Duration::from_secs(240);

/// A coordinator, and the requests that its scripted worker got.
struct Scripted {
    app: App,
    url: String,
    seen: Arc<Mutex<Vec<Chat>>>,
}

enum Turn {
    Say(String),
    Call(&'static str, Value),
}

fn say(text: &str) -> Turn {
    Turn::Say(text.to_owned())
}

impl Scripted {
    async fn start() -> Self {
        let app = App::listening(DoorSettings::default()).await;
        let url = app.base.clone();
        Self {
            app,
            url,
            seen: Arc::default(),
        }
    }

    /// Runs a client whose requests get these answers.
    async fn run(&self, mut command: Command, answer: impl Fn(&Chat) -> Turn) -> String {
        let capabilities = Capabilities::TOOLS.with(Capabilities::GRAMMAR);
        let rig = Puppet::with_context(&self.app.board, "tiny", capabilities, 1_000_000).await;
        let streams = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = streams.spawn().unwrap();
        let pid = child.id();
        let client = spawn_blocking(move || child.wait_with_output().unwrap());
        let serve = async {
            let mut calls = 0;
            loop {
                let offer = rig.offer_within(2 * LONGEST).await;
                let Body::Text(request) = &offer.job.body else {
                    panic!("a text job was wanted");
                };
                let TextInput::Chat(chat) = &request.input else {
                    panic!("a chat was wanted");
                };
                self.seen.lock().unwrap().push(chat.clone());
                let (event, finish) = match answer(chat) {
                    Turn::Say(words) => (text(&words), FinishReason::Stop),
                    Turn::Call(name, arguments) => {
                        calls += 1;
                        (call(calls, name, &arguments), FinishReason::ToolCalls)
                    }
                };
                rig.say(&offer, [started(), event, done(finish)]).await;
            }
        };
        let out = tokio::select! {
            out = timeout(LONGEST, client) => out,
            () = serve => unreachable!("the script has no end"),
        };
        let Ok(out) = out else {
            let _ = Command::new("kill").arg(pid.to_string()).status();
            panic!("the client did not end");
        };
        succeeded(&out.unwrap())
    }

    fn seen(&self) -> Vec<Chat> {
        self.seen.lock().unwrap().clone()
    }
}

#[track_caller]
fn succeeded(out: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{said}");
    said
}

fn call(number: u32, name: &str, arguments: &Value) -> Event {
    Event::ToolCall(ToolCallEvent {
        index: 0,
        id: Some(format!("call_{number}")),
        name: Some(name.to_owned()),
        arguments: arguments.to_string(),
        ids: Vec::new(),
    })
}

/// Answers of tools since the last message of the user.
fn results(chat: &Chat) -> Vec<String> {
    let messages = chat.messages.iter().rev();
    let mut results: Vec<String> = messages
        .take_while(|message| message["role"] != "user")
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].to_string())
        .collect();
    results.reverse();
    results
}

fn tools(chat: &Chat) -> Vec<&str> {
    let tools = chat.tools.iter();
    tools
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect()
}

/// A program that keeps nothing outside of the folder, and works in `work` below it.
fn program(path: impl AsRef<Path>, folder: &Path) -> Command {
    let work = folder.join("work");
    fs::create_dir_all(&work).unwrap();
    let mut command = Command::new(path.as_ref());
    // Some take their folder from the environment.
    command
        .env("PWD", &work)
        .current_dir(work)
        .env("HOME", folder);
    for name in ["CONFIG", "DATA", "STATE", "CACHE"] {
        command.env(format!("XDG_{name}_HOME"), folder.join(name));
    }
    command
}

/// A program of one of npm's packages.
fn agent(path: &str, folder: &Path) -> Command {
    program(tool("MUSTER_TEST_AGENTS").join(path), folder)
}

const WRITE: &str = "printf muster > proof.txt && echo it is written";

fn assert_proof(folder: &Path) {
    let proof = fs::read_to_string(folder.join("work/proof.txt"));
    assert_eq!(proof.unwrap().trim_end(), "muster");
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_runs_commands_and_the_tools_of_a_namespace() {
    let (scripted, folder) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let mut command = agent(".bin/codex", folder.path());
    let provider = "model_providers.muster";
    let options = [
        "model_provider=muster".to_owned(),
        format!("{provider}.name=muster"),
        format!("{provider}.base_url=\"{}/v1\"", scripted.url),
        format!("{provider}.env_key=MUSTER_KEY"),
        format!("{provider}.wire_api=responses"),
    ];
    command.env("MUSTER_KEY", &scripted.app.key).args([
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "-m",
        "tiny",
    ]);
    command.args(options.iter().flat_map(|option| ["-c", option]));
    command.arg("Write the proof.");
    let said = scripted
        .run(command, |chat| match results(chat).len() {
            0 => Turn::Call("exec_command", json!({"cmd": WRITE})),
            1 => Turn::Call("multi_agent_v1__close_agent", json!({"target": "stranger"})),
            _ => say("The proof is there."),
        })
        .await;
    assert!(said.contains("The proof is there."), "{said}");
    assert_proof(folder.path());
    let last = scripted.seen().pop().unwrap();
    assert!(tools(&last).contains(&"multi_agent_v1__spawn_agent"));
    let results = results(&last);
    assert!(results[0].contains("it is written"), "{results:?}");
    // The agent knew its tool again: this is its own complaint about the argument.
    assert!(results[1].contains("invalid agent id"), "{results:?}");
}

/// Checks the result of the tool that lists models.
fn assert_listed(scripted: &Scripted) {
    let seen = scripted.seen();
    let last = seen.iter().rfind(|chat| !results(chat).is_empty()).unwrap();
    let results = results(last);
    assert!(results[0].contains("output_modalities"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_calls_tools_of_worker_mcp() {
    let (scripted, folder) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let mut command = agent(".bin/codex", folder.path());
    let provider = "model_providers.muster";
    let arguments = json!(["mcp", "--url", scripted.url, "--key", scripted.app.key]);
    let options = [
        "model_provider=muster".to_owned(),
        format!("{provider}.name=muster"),
        format!("{provider}.base_url=\"{}/v1\"", scripted.url),
        format!("{provider}.env_key=MUSTER_KEY"),
        format!("{provider}.wire_api=responses"),
        format!(
            "mcp_servers.muster.command=\"{}\"",
            env!("CARGO_BIN_EXE_worker")
        ),
        format!("mcp_servers.muster.args={arguments}"),
    ];
    command.env("MUSTER_KEY", &scripted.app.key).args([
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "-m",
        "tiny",
    ]);
    command.args(options.iter().flat_map(|option| ["-c", option]));
    command.arg("List the models.");
    let said = scripted
        .run(command, |chat| match results(chat).len() {
            0 => Turn::Call("mcp__muster__list_models", json!({})),
            _ => say("There is one."),
        })
        .await;
    assert!(said.contains("There is one."), "{said}");
    assert_listed(&scripted);
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_calls_tools_over_http() {
    let (scripted, folder) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let mut command = agent(".bin/claude", folder.path());
    let server = json!({
        "type": "http",
        "url": format!("{}/mcp", scripted.url),
        "headers": {"Authorization": format!("Bearer {}", scripted.app.key)},
    });
    command
        .env("ANTHROPIC_BASE_URL", &scripted.url)
        .env("ANTHROPIC_API_KEY", &scripted.app.key)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .args(["-p", "List the models.", "--model", "tiny"])
        .arg("--mcp-config")
        .arg(json!({"mcpServers": {"muster": server}}).to_string())
        .args([
            "--strict-mcp-config",
            "--allowedTools",
            "mcp__muster__list_models",
        ]);
    let said = scripted
        .run(command, |chat| match results(chat).len() {
            _ if chat.tools.is_empty() => say("Models"),
            0 => Turn::Call("mcp__muster__list_models", json!({})),
            _ => say("There is one."),
        })
        .await;
    assert!(said.contains("There is one."), "{said}");
    assert_listed(&scripted);
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_runs_commands() {
    let (scripted, folder) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let mut command = agent(".bin/claude", folder.path());
    command
        .env("ANTHROPIC_BASE_URL", &scripted.url)
        .env("ANTHROPIC_API_KEY", &scripted.app.key)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .args(["-p", "Write the proof.", "--model", "tiny"])
        .args(["--allowedTools", "Bash", "Read"]);
    let proof = folder.path().join("work/proof.txt");
    let said = scripted
        .run(command, |chat| match results(chat).len() {
            _ if chat.tools.is_empty() => say("A proof"),
            0 => Turn::Call(
                "Bash",
                json!({"command": WRITE, "description": "Writes the proof"}),
            ),
            1 => Turn::Call("Read", json!({"file_path": proof})),
            _ => say("The proof is there."),
        })
        .await;
    assert!(said.contains("The proof is there."), "{said}");
    assert_proof(folder.path());
    let last = scripted.seen().pop().unwrap();
    let results = results(&last);
    assert!(results[0].contains("it is written"), "{results:?}");
    assert!(results[1].contains("muster"), "{results:?}");
    assert!(tools(&last).len() > 10, "{:?}", tools(&last));
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_runs_commands() {
    let (scripted, folder) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let package = match cfg!(target_arch = "aarch64") {
        true => "opencode-linux-arm64",
        false => "opencode-linux-x64",
    };
    let mut command = agent(&format!("{package}/bin/opencode"), folder.path());
    let options = json!({"baseURL": format!("{}/v1", scripted.url), "apiKey": scripted.app.key});
    let limits = json!({"context": 100_000, "output": 1000});
    let provider = json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"tiny": {"limit": limits}}});
    let config = json!({
        "autoupdate": false, "share": "disabled", "model": "muster/tiny", "small_model": "muster/tiny",
        "permission": "allow", "provider": {"muster": provider},
    });
    let file = folder.path().join("opencode.json");
    fs::write(&file, config.to_string()).unwrap();
    command
        .env("OPENCODE_CONFIG", &file)
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
        .args(["run", "Write the proof."]);
    let proof = folder.path().join("work/proof.txt");
    let said = scripted
        .run(command, |chat| match results(chat).len() {
            _ if chat.tools.is_empty() => say("A proof"),
            0 => Turn::Call(
                "bash",
                json!({"command": WRITE, "description": "Writes the proof"}),
            ),
            1 => Turn::Call("read", json!({"filePath": proof})),
            _ => say("The proof is there."),
        })
        .await;
    assert!(said.contains("The proof is there."), "{said}");
    assert_proof(folder.path());
    let seen = scripted.seen();
    let last = seen.iter().rfind(|chat| !chat.tools.is_empty()).unwrap();
    let results = results(last);
    assert!(results[0].contains("it is written"), "{results:?}");
    assert!(results[1].contains("muster"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn aider_writes_a_file() {
    let (scripted, folder) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let mut command = program(tool("MUSTER_TEST_AIDER"), folder.path());
    command
        .env("OPENAI_API_BASE", format!("{}/v1", scripted.url))
        .env("OPENAI_API_KEY", &scripted.app.key)
        .args([
            "--model",
            "openai/tiny",
            "--no-show-model-warnings",
            "--no-check-update",
        ])
        .args([
            "--analytics-disable",
            "--yes-always",
            "--no-git",
            "--no-pretty",
        ])
        .args(["--message", "Write the proof."]);
    let said = scripted
        .run(command, |_| {
            say("Here it is.\n\nproof.txt\n```\nmuster\n```\n")
        })
        .await;
    assert!(said.contains("Applied edit to proof.txt"), "{said}");
    assert_proof(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn llm_runs_functions() {
    let (scripted, folder) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let python = tool("MUSTER_TEST_LIBRARIES");
    let mut command = program(python.with_file_name("llm"), folder.path());
    let model = json!([{
        "model_id": "ours", "model_name": "tiny", "api_base": format!("{}/v1", scripted.url),
        "api_key_name": "ours", "supports_tools": true,
    }]);
    let write = |name: &str, value: Value| fs::write(folder.path().join(name), value.to_string());
    write("extra-openai-models.yaml", model).unwrap();
    write("keys.json", json!({"ours": scripted.app.key})).unwrap();
    let function = "def proof(word: str) -> str:\n    open('proof.txt', 'w').write(word)\n    return 'it is written'";
    command.env("LLM_USER_PATH", folder.path()).args([
        "-m",
        "ours",
        "--functions",
        function,
        "Write the proof.",
    ]);
    let said = scripted
        .run(command, |chat| match results(chat).len() {
            0 => Turn::Call("proof", json!({"word": "muster"})),
            _ => say("The proof is there."),
        })
        .await;
    assert!(said.contains("The proof is there."), "{said}");
    assert_proof(folder.path());
    let last = scripted.seen().pop().unwrap();
    assert!(results(&last)[0].contains("it is written"));
}
