//! `worker chat` and `worker top` at a terminal, which `script` plays.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use muster_testing::{Lines, PATIENCE, ended, eventually_blocking};
use serde_json::Value;

use crate::support::worker::worker;

/// A command on a terminal; ended with its test.
struct Terminal {
    child: Child,
    screen: Lines,
    /// Bytes of the screen that a test has looked at.
    seen: usize,
}

/// Requests for answers as they come, and the connections whose client has left.
struct Observed {
    bodies: mpsc::Receiver<Value>,
    closed: mpsc::Receiver<()>,
}

impl Terminal {
    fn start(arguments: &str, data: &str) -> Self {
        let binary = env!("CARGO_BIN_EXE_worker");
        let line = format!("stty cols 120 rows 40; exec {binary} {arguments} --data-dir {data}");
        let mut command = Command::new("script");
        command.args(["-qfec", &line, "/dev/null"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", data);
        command.env("TERM", "xterm");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let screen = Lines::of(child.stdout.take().unwrap());
        Self {
            child,
            screen,
            seen: 0,
        }
    }

    /// Waits until the screen shows this after everything that was waited for before.
    #[track_caller]
    fn until(&mut self, words: &str) {
        loop {
            let text = self.screen.text();
            if let Some(at) = text[self.seen..].find(words) {
                self.seen += at + words.len();
                return;
            }
            assert!(self.screen.read_some(), "ended without {words:?}:\n{text}");
        }
    }

    fn types(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The head and the body of a request.
fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).unwrap_or_default()))
}

fn event(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

/// A coordinator whose first answer never ends. Later answers end at once.
fn coordinator() -> (String, Observed) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (heard, bodies) = mpsc::sync_channel(8);
    let (left, closed) = mpsc::sync_channel(8);
    thread::spawn(move || {
        let mut answers = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some((head, body)) = request(&mut stream) else {
                continue;
            };
            let close = "connection: close";
            if head.starts_with("get ") {
                let model = "{\"id\":\"tiny\"}";
                let length = model.len();
                let reply = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{close}\r\n\r\n{model}"
                );
                stream.write_all(reply.as_bytes()).unwrap();
                continue;
            }
            heard.send(body).unwrap();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{close}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            answers += 1;
            if answers > 1 {
                let rest = format!("{}data: [DONE]\n\n", event("The end."));
                stream.write_all(rest.as_bytes()).unwrap();
                continue;
            }
            stream.write_all(event("Once upon").as_bytes()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            if matches!(stream.read(&mut [0]), Ok(0) | Err(_)) {
                left.send(()).unwrap();
            }
        }
    });
    (url, Observed { bodies, closed })
}

#[test]
fn ctrl_c_stops_an_answer_and_the_chat_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (url, observed) = coordinator();
    let arguments = format!("chat --url {url} tiny");
    let mut chat = Terminal::start(&arguments, folder.path().to_str().unwrap());
    chat.until("> ");
    chat.types("Tell me a story\r");
    chat.until("Once upon");
    chat.types("\x03");
    observed.closed.recv_timeout(PATIENCE).unwrap();
    chat.until("> ");
    chat.types("Go on\r");
    chat.until("The end.");
    let first = observed.bodies.recv_timeout(PATIENCE).unwrap();
    assert_eq!(first["messages"].as_array().unwrap().len(), 1, "{first}");
    // The part that was on the screen belongs to the conversation.
    let second = observed.bodies.recv_timeout(PATIENCE).unwrap();
    let roles_and_texts: Vec<_> = second["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (message["role"].as_str(), message["content"].as_str()))
        .collect();
    let expected = [
        (Some("user"), Some("Tell me a story")),
        (Some("assistant"), Some("Once upon")),
        (Some("user"), Some("Go on")),
    ];
    assert_eq!(roles_and_texts, expected);
    // At the prompt Ctrl-C takes a line back and says how to leave.
    chat.until("> ");
    chat.types("half a line\x03");
    chat.until("ends the chat");
    chat.until("> ");
    chat.types("/bye\r");
    assert_eq!(ended(&mut chat.child).code(), Some(0));
}

#[test]
fn top_shows_the_running_worker_and_its_keys_pause_and_resume() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let file = folder.path().join("worker.toml");
    std::fs::write(&file, "[models]\nserve = [\"demo-text\"]\n").unwrap();
    let arguments = [
        "--offline",
        "--config",
        file.to_str().unwrap(),
        "--data-dir",
        data,
    ];
    let mut command = worker(&arguments).command();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
    Lines::of(running.stderr.take().unwrap()).until("ready; SIGTERM");
    let is_paused = || {
        let status = worker(&["status", "--json", "--data-dir", data]).run().ok();
        let report: Value = serde_json::from_str(&status).unwrap();
        !report["worker"]["pause"].is_null()
    };

    let mut top = Terminal::start("top", data);
    top.until("Models");
    top.until("demo-text");
    top.until("configured");
    top.types("p");
    top.until("until `worker resume`");
    assert!(is_paused());
    top.types("r");
    eventually_blocking("the end of the pause", || match is_paused() {
        true => Err(()),
        false => Ok(()),
    });
    top.types("q");
    assert_eq!(ended(&mut top.child).code(), Some(0));
    // The screen is as it was before.
    top.until("\x1b[?1049l");
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn top_without_a_terminal_names_the_command_for_programs() {
    let said = worker(&["top"]).run().fails(2, "needs a terminal");
    assert!(said.contains("`worker status --json`"), "{said}");
}
