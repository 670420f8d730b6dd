//! Whether streams keep flowing while others ask, measured through HTTP against `worker up` and a real network:
//! the time between two tokens, undisturbed and while a long prompt is read; how much later than alone the long
//! prompt is answered; and a mix of long and short requests that arrive at random.
//!
//! ```text
//! cargo bench --bench mixed                     random weights in the shape of llama-3.2-1b, Q4_K_M
//! cargo bench --bench mixed -- model.gguf       a model of yours
//! ```
//!
//! Run as a test, a tiny network is served and everything is done once and briefly.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on says so, and prints what it found"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[derive(Clone, Copy)]
struct Effort {
    shape: &'static str,
    /// Words of the long prompt, which are about as many tokens.
    long_prompt: usize,
    streams: &'static [usize],
    /// How long streams run before the long prompt comes.
    undisturbed: Duration,
    /// Requests of the mix.
    mixed: usize,
}

const WHOLE: Effort = Effort {
    shape: "llama-3.2-1b",
    long_prompt: 1300,
    streams: &[1, 4, 8],
    undisturbed: Duration::from_secs(4),
    mixed: 24,
};

const SMOKE: Effort = Effort {
    shape: "tiny",
    long_prompt: 200,
    streams: &[2],
    undisturbed: Duration::from_millis(50),
    mixed: 6,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let effort = match arguments.iter().any(|argument| argument == "--bench") {
        true => WHOLE,
        false => SMOKE,
    };
    let folder = tempfile::tempdir().unwrap();
    let named = arguments
        .iter()
        .find(|argument| argument.ends_with(".gguf"));
    let model = named.map_or_else(|| write_model(effort.shape, folder.path()), PathBuf::from);
    let service = Arc::new(Service::start(&model, folder.path()));
    // A warm-up, because the engine learns from its first steps.
    service.ask(&words(0, 100), 20).finish();
    let alone = alone(&service, effort);
    println!(
        "a prompt of {} words, alone: {:.2} s",
        effort.long_prompt,
        alone.as_secs_f64()
    );
    println!("streams  undisturbed      p99    ratio  longest  prompt later by");
    for &streams in effort.streams {
        disturb(&service, effort, streams, alone);
    }
    mix(&service, effort);
}

/// The median wait for the first token of a long prompt that nothing disturbs.
fn alone(service: &Arc<Service>, effort: Effort) -> Duration {
    let waits = (0..3).map(|round| {
        let reply = service.ask(&words(100 + round, effort.long_prompt), 1);
        reply.finish().first_token()
    });
    median(waits.collect())
}

fn disturb(service: &Arc<Service>, effort: Effort, streams: usize, alone: Duration) {
    let talks = (0..streams).map(|talk| service.ask(&words(1000 + talk, 30), 3500));
    let talks: Vec<Reply> = talks.collect();
    thread::sleep(effort.undisturbed);
    let seed = 2000 + streams;
    let reading = service.ask(&words(seed, effort.long_prompt), 1).finish();
    let (asked, answered) = (reading.asked, reading.tokens[0]);
    let talks = talks.into_iter().map(Reply::stop);
    let talks: Vec<Transcript> = talks.collect();
    let gaps = |from: Instant, to: Instant| -> Vec<Duration> {
        let gaps = talks.iter().flat_map(Transcript::gaps);
        let inside = gaps.filter(|(at, _)| (from..=to).contains(at));
        inside.map(|(_, gap)| gap).collect()
    };
    let undisturbed = median(gaps(asked - effort.undisturbed / 2, asked));
    let mut disturbed = gaps(asked, answered);
    disturbed.sort();
    let p99 = percentile(&disturbed, 99);
    println!(
        "{streams:>7}  {:>8.1} ms {:>5.1} ms {:>6.2} x {:>5.0} ms {:>14.2} x",
        milliseconds(undisturbed),
        milliseconds(p99),
        p99.as_secs_f64() / undisturbed.as_secs_f64(),
        milliseconds(percentile(&disturbed, 100)),
        reading.first_token().as_secs_f64() / alone.as_secs_f64(),
    );
}

/// One request in five is long; the next comes when a random while has passed, whether or not the last is answered.
fn mix(service: &Arc<Service>, effort: Effort) {
    let mut random = Random(7);
    let mut replies = Vec::new();
    for request in 0..effort.mixed {
        let is_long = request % 5 == 2;
        let prompt = match is_long {
            true => effort.long_prompt / 4 + random.below(effort.long_prompt / 2),
            false => 10 + random.below(90),
        };
        let wanted = 10 + random.below(80);
        replies.push((is_long, service.ask(&words(5000 + request, prompt), wanted)));
        let while_ms = random.below(effort.undisturbed.as_millis() as usize);
        thread::sleep(Duration::from_millis(while_ms as u64));
    }
    let replies = replies.into_iter();
    let replies: Vec<(bool, Transcript)> = replies
        .map(|(is_long, reply)| (is_long, reply.finish()))
        .collect();
    let all_gaps = replies.iter().flat_map(|(_, reply)| reply.gaps());
    let mut gaps: Vec<Duration> = all_gaps.map(|(_, gap)| gap).collect();
    gaps.sort();
    let waits = |long: bool| {
        let waits = replies.iter().filter(|(is_long, _)| *is_long == long);
        median(waits.map(|(_, reply)| reply.first_token()).collect())
    };
    let at = |percent| milliseconds(percentile(&gaps, percent));
    println!(
        "mix of {}: between tokens median {:.0} ms, p99 {:.0} ms, longest {:.0} ms; first token median {:.2} s after short prompts, {:.2} s after long ones",
        effort.mixed,
        at(50),
        at(99),
        at(100),
        waits(false).as_secs_f64(),
        waits(true).as_secs_f64(),
    );
}

/// `worker up` with one model, stopped when dropped.
struct Service {
    child: Child,
    address: String,
    key: String,
    model: String,
}

impl Service {
    fn start(model: &Path, folder: &Path) -> Self {
        let mut command = worker();
        command.args([
            "up",
            "--json",
            "--offline",
            "--quiet",
            "--listen",
            "127.0.0.1:0",
        ]);
        command.arg("--data-dir").arg(folder.join("data"));
        command.arg("--model").arg(model);
        command.env("MUSTER_SERVE_TEXTS_IN_FLIGHT", "0");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).expect("the worker says where it listens");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            child,
            address: text(&ready["url"]).replace("http://", ""),
            key: text(&ready["api_key"]),
            model: text(&ready["models"][0]),
        }
    }

    /// Asks for a stream of so many tokens.
    fn ask(&self, prompt: &str, tokens: usize) -> Reply {
        let body = json!({
            "model": self.model, "stream": true, "max_tokens": tokens, "ignore_eos": true,
            "messages": [{ "role": "user", "content": prompt }],
        })
        .to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        let asked = Instant::now();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let copy = stream.try_clone().unwrap();
        let reader = thread::spawn(move || read(copy, asked));
        Reply { stream, reader }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Reply {
    stream: TcpStream,
    reader: JoinHandle<Transcript>,
}

impl Reply {
    /// Waits for the end.
    fn finish(self) -> Transcript {
        self.reader.join().unwrap()
    }

    /// Hangs up.
    fn stop(self) -> Transcript {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.reader.join().unwrap()
    }
}

struct Transcript {
    asked: Instant,
    /// When each token came.
    tokens: Vec<Instant>,
}

impl Transcript {
    fn first_token(&self) -> Duration {
        self.tokens[0] - self.asked
    }

    /// When a token came and how long after the one before.
    fn gaps(&self) -> impl Iterator<Item = (Instant, Duration)> {
        let pairs = self.tokens.windows(2);
        pairs.map(|pair| (pair[1], pair[1] - pair[0]))
    }
}

/// An event with text is a token: the words of the synthetic vocabulary are whole. Special tokens have no text, so a
/// reply of nothing but them has its first token when it ends.
fn read(stream: TcpStream, asked: Instant) -> Transcript {
    let mut tokens = Vec::new();
    let mut status = String::new();
    let mut lines = BufReader::new(stream);
    lines.read_line(&mut status).unwrap();
    if !status.starts_with("HTTP/1.1 200") {
        let _ = lines.read_to_string(&mut status);
        panic!("{status}");
    }
    for line in lines.lines().map_while(Result::ok) {
        let has_text = line.contains("\"content\":\"") && !line.contains("\"content\":\"\"");
        let ends_without_text = tokens.is_empty() && line.contains("\"finish_reason\":\"");
        if has_text || ends_without_text {
            tokens.push(Instant::now());
        }
    }
    assert!(!tokens.is_empty(), "the reply has no end");
    Transcript { asked, tokens }
}

fn write_model(shape: &str, folder: &Path) -> PathBuf {
    let file = folder.join("model.gguf");
    let mut command = worker();
    command.args(["bench", "text", "--quiet", "--synthetic", shape, "--write"]);
    assert!(command.arg(&file).status().unwrap().success());
    file
}

fn worker() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A prompt that no other shares, so that nothing of it is cached.
fn words(seed: usize, count: usize) -> String {
    const WORDS: [&str; 8] = ["the", "a", "to", "of", "and", "in", "is", "on"];
    let mut random = Random(seed as u64 + 1);
    let words = (0..count).map(|_| WORDS[random.below(WORDS.len())]);
    words.collect::<Vec<_>>().join(" ")
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    percentile(&values, 50)
}

/// Of sorted values.
fn percentile(values: &[Duration], percent: usize) -> Duration {
    let last = values.len().saturating_sub(1);
    values
        .get(last * percent / 100)
        .copied()
        .unwrap_or_default()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
