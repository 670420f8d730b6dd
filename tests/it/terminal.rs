//! `worker chat` at a terminal, which `script` plays, against a coordinator of the test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use muster_testing::{Lines, PATIENCE, ended};
use serde_json::Value;

/// A chat on a terminal; ended with its test.
struct Chat {
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

impl Chat {
    fn start(url: &str, data: &str) -> Self {
        let binary = env!("CARGO_BIN_EXE_worker");
        let line = format!("exec {binary} chat --url {url} --data-dir {data} tiny");
        let mut command = Command::new("script");
        command.args(["-qfec", &line, "/dev/null"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", data);
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

impl Drop for Chat {
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
    let mut chat = Chat::start(&url, folder.path().to_str().unwrap());
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
