//! A program with OpenAI's API and that of the web UI, which a test tells how to behave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use muster_testing::eventually_blocking;
use serde_json::{Value, json};

/// How the program answers a request for a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Good,
    /// Says that it has read and written billions.
    Lies,
    Html,
    /// Ends in the middle of its text.
    Half,
    Status(u16),
    /// Writes until the client leaves.
    Endless,
    Silent,
    Calls,
    /// Stands still in the middle of its text, until it is told another one.
    Held,
    /// Counts from `w1` to `w12`, or on from a last message of the assistant that the request has it continue.
    Counts,
    /// The same, and stands still after three words.
    CountsHeld,
}

/// A program with OpenAI's API and that of the web UI.
pub struct Program {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    mode: Mutex<Mode>,
    /// Bodies of requests for texts, vectors and images.
    bodies: Mutex<Vec<Value>>,
    /// Texts that were left.
    left: AtomicUsize,
    is_over: AtomicBool,
}

impl Program {
    pub fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap())
    }

    pub fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Good),
            bodies: Mutex::default(),
            left: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let state = shared.clone();
                thread::spawn(move || {
                    // A client that leaves is no fault of the test.
                    let _ = answer(stream, &state);
                });
            }
        });
        Self { address, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn is(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
    }

    pub fn last_body(&self) -> Value {
        self.state.bodies.lock().unwrap().last().cloned().unwrap()
    }

    /// Requests for texts, vectors and images so far.
    pub fn asked(&self) -> usize {
        self.state.bodies.lock().unwrap().len()
    }

    /// Texts that were left by their readers.
    pub fn left(&self) -> usize {
        self.state.left.load(Ordering::SeqCst)
    }

    pub fn stop(self) -> SocketAddr {
        self.state.is_over.store(true, Ordering::SeqCst);
        // The listener looks at the next connection.
        let _ = TcpStream::connect(self.address);
        let address = self.address;
        let gone = || match TcpStream::connect(address) {
            Err(_) => Ok(()),
            Ok(_) => Err(()),
        };
        eventually_blocking("the program to end", gone);
        address
    }
}

fn answer(stream: TcpStream, state: &State) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    if !body.is_null() {
        state.bodies.lock().unwrap().push(body.clone());
    }
    let mode = *state.mode.lock().unwrap();
    match path.as_str() {
        "/v1/models" => {
            let model = json!({"id": "theirs", "owned_by": "vllm", "max_model_len": 2048});
            reply(
                stream,
                200,
                "application/json",
                &json!({"data": [model]}).to_string(),
            )
        }
        "/sdapi/v1/sd-models" => {
            let models = json!([{"title": "paint.safetensors", "model_name": "paint"}]);
            reply(stream, 200, "application/json", &models.to_string())
        }
        "/sdapi/v1/txt2img" => {
            let images = json!({"images": [picture()]});
            reply(stream, 200, "application/json", &images.to_string())
        }
        "/v1/embeddings" => {
            let data = json!([{"index": 0, "embedding": [0.6, 0.8]}]);
            let vectors = json!({"data": data, "usage": {"prompt_tokens": 3}});
            reply(stream, 200, "application/json", &vectors.to_string())
        }
        "/v1/rerank" => {
            let results = json!([{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.25}]);
            reply(
                stream,
                200,
                "application/json",
                &json!({"results": results}).to_string(),
            )
        }
        "/v1/chat/completions" if matches!(mode, Mode::Counts | Mode::CountsHeld) => {
            count(stream, &body, state)
        }
        "/v1/chat/completions" => chat(stream, mode, state),
        _ => reply(stream, 404, "application/json", "{}"),
    }
}

fn reply(mut stream: TcpStream, status: u16, kind: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn chat(mut stream: TcpStream, mode: Mode, state: &State) -> std::io::Result<()> {
    match mode {
        Mode::Html => return reply(stream, 200, "text/html", "<html>sign in</html>"),
        Mode::Status(status) => {
            let body = json!({"error": {"message": "the temperature is odd"}});
            return reply(stream, status, "application/json", &body.to_string());
        }
        Mode::Silent => {
            thread::sleep(Duration::from_secs(30));
            return Ok(());
        }
        _ => {}
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )?;
    let mut say = |event: Value| write!(stream, "data: {event}\n\n").and_then(|()| stream.flush());
    let text = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    if mode == Mode::Endless {
        loop {
            if let Err(error) = say(text("word ")) {
                state.left.fetch_add(1, Ordering::SeqCst);
                return Err(error);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    if mode == Mode::Calls {
        for call in [
            json!({"index": 0, "id": "c1", "function": {"name": "look_up", "arguments": ""}}),
            json!({"index": 0, "function": {"arguments": "{\"city\":"}}),
            json!({"index": 0, "function": {"arguments": "\"Bern\"}"}}),
        ] {
            say(json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))?;
        }
        say(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}))?;
        return write!(stream, "data: [DONE]\n\n");
    }
    say(json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}))?;
    say(text("Hello"))?;
    if mode == Mode::Half {
        return Ok(());
    }
    while *state.mode.lock().unwrap() == Mode::Held {
        thread::sleep(Duration::from_millis(5));
    }
    say(text(" there"))?;
    say(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))?;
    let count = if mode == Mode::Lies { 2_000_000_000 } else { 5 };
    let usage = json!({"prompt_tokens": count, "completion_tokens": count});
    say(json!({"choices": [], "usage": usage}))?;
    write!(stream, "data: [DONE]\n\n")
}

/// Each word is a token, of the prompt, too.
fn count(mut stream: TcpStream, body: &Value, state: &State) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )?;
    fn say(stream: &mut TcpStream, event: &Value) -> std::io::Result<()> {
        write!(stream, "data: {event}\n\n")?;
        stream.flush()
    }
    let messages = body["messages"].as_array().unwrap();
    let words = |message: &Value| message["content"].as_str().unwrap().split(' ').count();
    let read: usize = messages.iter().map(words).sum();
    let last = messages.last().unwrap();
    let goes_on = body["continue_final_message"] == true && last["role"] == "assistant";
    let begun = if goes_on { words(last) } else { 0 };
    let most = body["max_tokens"].as_u64().unwrap_or(100) as usize;
    let mut written = 0;
    for word in begun..12.min(begun + most) {
        while word == 3 && *state.mode.lock().unwrap() == Mode::CountsHeld {
            // Notices a reader that leaves.
            write!(stream, ": held\n\n").and_then(|()| stream.flush())?;
            thread::sleep(Duration::from_millis(5));
        }
        let gap = if word == 0 { "" } else { " " };
        let text = format!("{gap}w{}", word + 1);
        let delta = json!({"content": text});
        say(
            &mut stream,
            &json!({"choices": [{"index": 0, "delta": delta}]}),
        )?;
        written += 1;
    }
    let reason = if begun + written == 12 {
        "stop"
    } else {
        "length"
    };
    let end = json!({"index": 0, "delta": {}, "finish_reason": reason});
    say(&mut stream, &json!({"choices": [end]}))?;
    let usage = json!({"prompt_tokens": read, "completion_tokens": written});
    say(&mut stream, &json!({"choices": [], "usage": usage}))?;
    write!(stream, "data: [DONE]\n\n")
}

/// A PNG of 256 by 256 in base64.
fn picture() -> String {
    use base64::Engine;
    let mut bytes = std::io::Cursor::new(Vec::new());
    let pixels = image::RgbImage::from_fn(256, 256, |x, y| image::Rgb([x as u8, y as u8, 90]));
    pixels
        .write_to(&mut bytes, image::ImageFormat::Png)
        .unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes.into_inner())
}
