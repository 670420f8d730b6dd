//! Requests and tokens through the switchboard and a real worker socket, without HTTP: clients submit, a worker that
//! replies at once is at the other end of a loopback connection, and every job is settled, in memory or in SQLite.
//! Everything runs in this process, so the figures include the cost of the worker.
//!
//! `cargo bench --bench switchboard [requests|tokens|sockets]`

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on should stop")]
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use muster_coordinator::accounts::{Accounts, SecretSource};
use muster_coordinator::dispatch::{Outcome, Settings, Standing, Submission};
use muster_coordinator::settlements::books;
use muster_coordinator::storage::{Location, Store};
use muster_coordinator::switchboard::{Books, Delivery, Switchboard};
use muster_coordinator::workers::{Admitted, Gate, Notices, Revoked, Workers, WorkersSettings};
use muster_process::tasks::Tasks;
use muster_protocol::job::{
    AccountId, Body, Chat, Formats, Job, JobId, Kind, Kudos, Limits, ModelChoice, Privacy,
    RequestId, Sampling, StopRules, TextInput, TextRequest, UnixMillis, WorkerId,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use uuid::Uuid;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: muster_process::memory::Allocator = muster_process::memory::ALLOCATOR;

const STREAMS: usize = 128;

/// How much each part does.
#[derive(Clone, Copy)]
struct Effort {
    requests: usize,
    tokens: usize,
    sockets: usize,
}

const WHOLE: Effort = Effort {
    requests: 60_000,
    tokens: 20_000,
    sockets: 5_000,
};

/// Shows that every part runs, and measures nothing.
const SMOKE: Effort = Effort {
    requests: 2_560,
    tokens: 160,
    sockets: 100,
};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wants = |name: &str| {
        let named: Vec<_> = wanted.iter().filter(|it| !it.starts_with('-')).collect();
        named.is_empty() || named.iter().any(|it| *it == name)
    };
    let effort = match wanted.iter().any(|argument| argument == "--bench") {
        true => WHOLE,
        false => SMOKE,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if wants("requests") {
        for (open, stored) in [(1, false), (128, false), (1, true), (16, true), (128, true)] {
            runtime.block_on(requests(open, stored, effort.requests));
        }
    }
    if wants("tokens") {
        for together in [1, 16] {
            runtime.block_on(tokens(together, effort.tokens));
        }
    }
    if wants("sockets") {
        runtime.block_on(sockets(effort.sockets));
    }
}

struct Network {
    switchboard: Switchboard,
    workers: Workers,
    tasks: Tasks,
    listener: TcpListener,
    _folder: Option<tempfile::TempDir>,
}

impl Network {
    async fn start(stored: bool) -> Self {
        let tasks = Tasks::default();
        let folder = stored.then(|| tempfile::tempdir().unwrap());
        let books = match &folder {
            Some(folder) => {
                let location = Location::Sqlite(folder.path().join("muster.db"));
                let store = Store::open(&location, &tasks).await.unwrap();
                let secret = SecretSource::Given("a secret of 32 characters and more".to_owned());
                let accounts = Accounts::open(store.clone(), &secret, &tasks)
                    .await
                    .unwrap();
                accounts.first_start().await.unwrap();
                books(store, Arc::default(), |_| true, |_, _| Box::new(|| ()))
            }
            None => Books::new(|_, _| async { Ok(Kudos(1)) }),
        };
        let switchboard = Switchboard::start(Settings::default(), books, &tasks);
        let gate = Gate::new(|applicant| async move {
            Ok(Admitted {
                worker: WorkerId(applicant.name.parse().unwrap()),
                public_id: Uuid::new_v4(),
                owner: AccountId(1),
                trusted: false,
                revoked: Revoked::never(),
                notices: Notices::default(),
            })
        });
        let settings = WorkersSettings::default();
        Self {
            workers: Workers::behind(gate, switchboard.clone(), settings),
            switchboard,
            tasks,
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            _folder: folder,
        }
    }

    async fn dial(&self) -> TcpStream {
        let address = self.listener.local_addr().unwrap();
        let (near, far) = tokio::join!(self.listener.accept(), TcpStream::connect(address));
        let (near, far) = (near.unwrap().0, far.unwrap());
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let workers = self.workers.clone();
        self.tasks
            .start(async move { workers.serve(near, Vec::new()).await });
        far
    }

    /// A worker that answers each job with so many tokens, so many a frame.
    async fn worker(&self, tokens: usize, together: usize) {
        let config = WebSocketConfig::default()
            .read_buffer_size(4096)
            .write_buffer_size(1 << 16);
        let stream = self.dial().await;
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await;
        let registration = registration("1").to_string();
        socket.send(Message::text(registration)).await.unwrap();
        socket.next().await.unwrap().unwrap();
        self.tasks.start(answer(socket, tokens, together));
    }

    /// Asks once and reads to the end, which is a delivery.
    async fn job(&self) {
        let submission = Submission {
            jobs: vec![Arc::new(job())],
            standing: Standing::default(),
        };
        let mut streams = self.switchboard.submit(submission).await.unwrap();
        loop {
            if let Delivery::End { outcome, .. } = streams[0].next().await.unwrap() {
                let is_delivered = matches!(outcome, Outcome::Delivered { .. });
                assert!(is_delivered, "{outcome:?}");
                return;
            }
        }
    }
}

async fn answer(mut socket: WebSocketStream<TcpStream>, tokens: usize, together: usize) {
    let mut open: VecDeque<(String, usize)> = VecDeque::new();
    loop {
        let next = match open.is_empty() {
            true => socket.next().await,
            false => tokio::select! {
                biased;
                next = socket.next() => next,
                () = std::future::ready(()) => Some(Ok(Message::Pong(Vec::new().into()))),
            },
        };
        match next {
            Some(Ok(Message::Text(text))) => {
                if text.starts_with(r#"{"type":"job""#) {
                    let id = text.split('"').nth(7).unwrap().to_owned();
                    open.push_back((id, 0));
                }
                // Read what else is there before writing.
                continue;
            }
            Some(Ok(Message::Pong(_))) => {}
            Some(Ok(_)) => continue,
            _ => return,
        }
        let Some((id, mut seq)) = open.pop_front() else {
            continue;
        };
        let frame = match seq < tokens {
            true => token_frame(&id, &mut seq, together),
            false => done_frame(&id, tokens),
        };
        let ended = frame.starts_with(r#"{"type":"done""#);
        if socket.feed(Message::text(frame)).await.is_err() {
            return;
        }
        match ended {
            true if open.is_empty() && socket.flush().await.is_err() => return,
            true => {}
            false => open.push_back((id, seq)),
        }
    }
}

fn token_frame(id: &str, seq: &mut usize, together: usize) -> String {
    let first = *seq + 1;
    *seq += together;
    if together == 1 {
        return format!(
            r#"{{"type":"token","id":"{id}","att":1,"seq":{first},"delta":{{"content":" word"}},"ids":[{first}]}}"#
        );
    }
    let mut deltas = String::new();
    for number in first..first + together {
        write!(deltas, r#"{{"content":" word","ids":[{number}]}},"#).unwrap();
    }
    deltas.pop();
    format!(r#"{{"type":"tokens","id":"{id}","att":1,"seq":{first},"d":[{deltas}]}}"#)
}

fn done_frame(id: &str, tokens: usize) -> String {
    format!(
        r#"{{"type":"done","id":"{id}","att":1,"seq":{},"finish_reason":"stop","usage":{{"prompt_tokens":9,"completion_tokens":{tokens}}}}}"#,
        tokens + 1
    )
}

fn registration(name: &str) -> Value {
    json!({
        "apikey": "key", "name": name, "models": ["tiny"], "max_context_length": 32768,
        "api_formats": ["neutral"], "capacity": {"total": 512, "models": {"tiny": {"max": 512}}},
        "ext": {"v": 1, "max_frame": 33_554_432, "want": ["multi", "resume", "cancel2", "coalesce", "lease"]},
    })
}

fn job() -> Job {
    let messages = vec![json!({"role": "user", "content": "Say something short, please."})];
    Job {
        id: JobId::random(),
        request: RequestId::random(),
        account: AccountId(1),
        shared_key: None,
        kind: Kind::Text,
        model: ModelChoice(vec!["tiny".into()]),
        body: Body::Text(Box::new(TextRequest {
            input: TextInput::Chat(Chat {
                messages,
                ..Chat::default()
            }),
            sampling: Sampling::default(),
            max_tokens: None,
            stop: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            tool_choice: None,
            stop_rules: StopRules::default(),
            parallel_tool_calls: None,
            format: None,
            choice: 0,
        })),
        limits: Limits {
            formats: Formats::NEUTRAL,
            ..Limits::default()
        },
        privacy: Privacy::Anyone,
        deadline: UnixMillis(i64::MAX),
        durable: false,
        prefixes: Vec::new(),
        original: None,
        price: None,
    }
}

async fn requests(open: usize, stored: bool, requests: usize) {
    let network = Arc::new(Network::start(stored).await);
    network.worker(1, 1).await;
    for _ in 0..100 {
        network.job().await;
    }
    let each = (requests / if open == 1 { 10 } else { 1 }) / open;
    let resident = resident_bytes();
    let (started, spent) = (Instant::now(), processor_time());
    let clients: Vec<_> = (0..open)
        .map(|_| {
            let network = network.clone();
            network.tasks.clone().start(async move {
                let mut waits = Vec::with_capacity(each);
                for _ in 0..each {
                    let asked = Instant::now();
                    network.job().await;
                    waits.push(asked.elapsed());
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for client in clients {
        waits.extend(client.await.unwrap());
    }
    let (took, spent) = (started.elapsed(), processor_time() - spent);
    waits.sort_unstable();
    let count = waits.len();
    println!(
        "requests, {open:3} open, {:9}: {:7.0}/s, p50 {:6.2} ms, p99 {:6.2} ms, {:5.1} µs of processor each, {:+5.1} MB",
        if stored { "in SQLite" } else { "in memory" },
        count as f64 / took.as_secs_f64(),
        waits[count / 2].as_secs_f64() * 1e3,
        waits[count * 99 / 100].as_secs_f64() * 1e3,
        spent.as_secs_f64() * 1e6 / count as f64,
        (resident_bytes() as f64 - resident as f64) / 1e6,
    );
    network.tasks.stop(Duration::from_secs(10)).await;
}

async fn tokens(together: usize, tokens: usize) {
    let network = Arc::new(Network::start(false).await);
    let tokens = tokens / together * together;
    network.worker(tokens, together).await;
    let (started, spent) = (Instant::now(), processor_time());
    let clients: Vec<_> = (0..STREAMS)
        .map(|_| {
            let network = network.clone();
            network
                .tasks
                .clone()
                .start(async move { network.job().await })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let (took, spent) = (started.elapsed(), processor_time() - spent);
    let count = (STREAMS * tokens) as f64;
    println!(
        "tokens, {STREAMS} streams, {together:2} a frame: {:9.0}/s, {:5.2} µs of processor each",
        count / took.as_secs_f64(),
        spent.as_secs_f64() * 1e6 / count,
    );
    network.tasks.stop(Duration::from_secs(10)).await;
}

/// Idle workers, each a socket that said who it is and nothing more.
async fn sockets(sockets: usize) {
    let network = Network::start(false).await;
    let mut open = Vec::with_capacity(sockets);
    let (before, started) = (resident_bytes(), Instant::now());
    for number in 0..sockets {
        let mut stream = network.dial().await;
        let mut registration = registration(&number.to_string());
        registration["ext"] = Value::Null;
        stream
            .write_all(&masked(&registration.to_string()))
            .await
            .unwrap();
        let mut ready = [0; 256];
        assert!(stream.read(&mut ready).await.unwrap() > 0);
        open.push(stream);
    }
    let (took, after) = (started.elapsed(), resident_bytes());
    println!(
        "sockets: {sockets} idle workers at {:4.1} KB each, registered at {:5.0}/s",
        (after as f64 - before as f64) / sockets as f64 / 1e3,
        sockets as f64 / took.as_secs_f64(),
    );
    let looked = Instant::now();
    for _ in 0..100_000 {
        std::hint::black_box(network.switchboard.overview());
    }
    let look = looked.elapsed() / 100_000;
    println!(
        "overview of {sockets} workers: {} ns a look",
        look.as_nanos()
    );
}

/// A client's text frame with an all-zero mask.
fn masked(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend(length.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
