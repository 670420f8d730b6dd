//! Workers that a test plays itself, frame by frame, against the real coordinator's side of the socket; the store and
//! the accounts are played too.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use muster::coordinator::dispatch::{
    Facts, Outcome, Priority, Refusal, Settings, Standing, Submission,
};
use muster::coordinator::metering::Counted;
use muster::coordinator::switchboard::{Books, Delivery, JobStream, Switchboard};
use muster::coordinator::workers::{
    Admitted, Applicant, Denial, Gate, Notices, Revoked, Workers, WorkersSettings, mark_large,
};
use muster::protocol::job::{
    AccountId, Body, Chat, Event, Formats, Job, JobId, Kind, Kudos, Limits, ModelChoice, Original,
    Privacy, RequestId, Sampling, StopRules, TextInput, TextRequest, UnixMillis, WorkerId,
};
use muster::tasks::Tasks;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use uuid::Uuid;

/// Long enough for any machine; nothing waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(20);
const KUDOS: Kudos = Kudos(1500);

/// A coordinator without doors.
pub struct Board {
    pub switchboard: Switchboard,
    pub workers: Workers,
    pub tasks: Tasks,
    /// Settled jobs, in order.
    pub settled: mpsc::Receiver<(Box<Facts>, Counted)>,
    /// A permit lets the store settle one job.
    pub store: Arc<Semaphore>,
}

pub struct Rig {
    pub socket: WebSocketStream<DuplexStream>,
}

/// How a socket was closed.
#[derive(Debug, PartialEq, Eq)]
pub enum Closed {
    Code(u16),
    /// Without a close frame: what peers call 1006.
    Abruptly,
}

impl Board {
    pub fn start() -> Self {
        Self::with(Settings::default(), WorkersSettings::default())
    }

    pub fn with(settings: Settings, workers: WorkersSettings) -> Self {
        let tasks = Tasks::default();
        let store = Arc::new(Semaphore::new(100_000));
        let (sender, settled) = mpsc::channel(10_000);
        let permits = store.clone();
        let books = Books::new(move |facts, counted| {
            let (permits, sender) = (permits.clone(), sender.clone());
            async move {
                permits.acquire().await.unwrap().forget();
                sender.send((facts, counted)).await.unwrap();
                Ok(KUDOS)
            }
        });
        let switchboard = Switchboard::start(settings, books, &tasks).marking(mark_large);
        let workers = Workers::behind(Gate::new(admit), switchboard.clone(), workers);
        Self {
            switchboard,
            workers,
            tasks,
            settled,
            store,
        }
    }

    /// The worker's end of a new socket.
    pub fn socket(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(1 << 16);
        let workers = self.workers.clone();
        self.tasks
            .start(async move { workers.serve(near, Vec::new()).await });
        far
    }

    pub async fn dial(&self) -> Rig {
        Rig {
            socket: WebSocketStream::from_raw_socket(self.socket(), Role::Client, None).await,
        }
    }

    /// A worker of the public network that serves `tiny`.
    pub async fn public_rig(&self, name: &str) -> Rig {
        let (rig, ready) = self.rig(public(name)).await;
        assert!(ready.get("ext").is_none(), "{ready}");
        rig
    }

    /// A worker that negotiates everything.
    pub async fn our_rig(&self, name: &str, slots: u32) -> Rig {
        self.rig(ours(name, slots)).await.0
    }

    pub async fn rig(&self, registration: Value) -> (Rig, Value) {
        let mut rig = self.dial().await;
        rig.send(registration).await;
        let ready = rig.next().await;
        assert_eq!(ready["type"], "ready", "{ready}");
        (rig, ready)
    }

    pub async fn try_submit(&self, job: Job) -> Result<JobStream, Refusal> {
        let standing = Standing {
            priority: Priority::Normal,
            ..Standing::default()
        };
        let jobs = vec![Arc::new(job)];
        let streams = self.switchboard.submit(Submission { jobs, standing });
        Ok(streams.await?.remove(0))
    }

    pub async fn submit(&self, words: &str) -> JobStream {
        self.try_submit(job(words)).await.unwrap()
    }
}

/// Keys are `key-` and an account; others are unknown. Names with a dot belong to the account before it.
async fn admit(applicant: Applicant) -> Result<Admitted, Denial> {
    let Applicant { key, name, .. } = applicant;
    let account = match key.0.as_str() {
        "key-none" => return Err(Denial::NoScope),
        "key-other" => return Err(Denial::OtherRig),
        "key-down" => return Err(Denial::Unavailable),
        key => key.strip_prefix("key-").and_then(|it| it.parse().ok()),
    };
    let account: i64 = account.ok_or(Denial::UnknownKey)?;
    if name
        .split_once('.')
        .is_some_and(|(owner, _)| owner != account.to_string())
    {
        return Err(Denial::NameTaken);
    }
    let number = name.bytes().fold(7_i64, |sum, byte| {
        sum.wrapping_mul(131).wrapping_add(i64::from(byte))
    });
    Ok(Admitted {
        worker: WorkerId(number),
        public_id: Uuid::from_u64_pair(1, number as u64),
        owner: AccountId(account),
        trusted: false,
        revoked: Revoked::never(),
        notices: Notices::default(),
    })
}

pub fn public(name: &str) -> Value {
    json!({
        "apikey": "key-1", "name": name, "models": ["tiny"],
        "api_formats": ["openai-chat", "openai-responses"], "modalities": ["text"],
        "max_length": 8192, "max_context_length": 32768, "bridge_agent": "public/1",
    })
}

pub fn ours(name: &str, slots: u32) -> Value {
    json!({
        "apikey": "key-1", "name": name, "models": ["tiny"], "max_context_length": 32768,
        "api_formats": ["neutral", "openai-chat"], "bridge_agent": "ours/1",
        "capacity": {"total": slots, "models": {"tiny": {"max": slots}}},
        "ext": {
            "v": 1, "max_frame": 33_554_432,
            "want": ["multi", "resume", "cancel2", "state", "drain", "coalesce", "lease"],
            "can": ["tools", "logprobs", "continue"],
        },
    })
}

/// A chat job for `tiny` as the OpenAI door makes it.
pub fn job(words: &str) -> Job {
    let messages = json!([{"role": "user", "content": words}]);
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 64, "stream": true});
    Job {
        id: JobId::random(),
        request: RequestId::random(),
        account: AccountId(1),
        shared_key: None,
        kind: Kind::Text,
        model: ModelChoice(vec!["tiny".into()]),
        body: Body::Text(Box::new(TextRequest {
            input: TextInput::Chat(Chat {
                messages: messages.as_array().unwrap().clone(),
                ..Chat::default()
            }),
            sampling: Sampling::default(),
            max_tokens: Some(64),
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
            formats: Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
            output_tokens: Some(64),
            ..Limits::default()
        },
        privacy: Privacy::Anyone,
        deadline: UnixMillis(i64::MAX),
        durable: false,
        prefixes: Vec::new(),
        original: Some(Original {
            format: Formats::OPENAI_CHAT,
            body: Arc::new(body),
            native: None,
        }),
        price: None,
    }
}

impl Rig {
    pub async fn send(&mut self, frame: Value) {
        self.send_text(frame.to_string()).await;
    }

    pub async fn send_text(&mut self, text: String) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// The next frame, which has to come.
    pub async fn next(&mut self) -> Value {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.unwrap();
            match message.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("a frame was wanted, found {other:?}"),
            }
        }
    }

    /// The next frame that is no ping.
    pub async fn frame(&mut self) -> Value {
        loop {
            let frame = self.next().await;
            if frame["type"] != "ping" {
                return frame;
            }
        }
    }

    pub async fn job(&mut self) -> Value {
        let frame = self.frame().await;
        assert_eq!(frame["type"], "job", "{frame}");
        frame
    }

    /// Whether nothing is said for a while.
    pub async fn hears_nothing(&mut self, time: Duration) -> bool {
        timeout(time, self.frame()).await.is_err()
    }

    pub async fn closed(&mut self) -> Closed {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.unwrap();
            match message {
                Some(Ok(Message::Close(Some(frame)))) => return Closed::Code(frame.code.into()),
                Some(Ok(Message::Close(None))) | Some(Err(_)) | None => return Closed::Abruptly,
                Some(Ok(_)) => {}
            }
        }
    }

    /// A token of a public worker.
    pub async fn token(&mut self, job: &Value, text: &str) {
        let delta = json!({"content": text});
        let frame =
            json!({"type": "token", "id": job["id"], "delta": delta, "finish_reason": null});
        self.send(frame).await;
    }

    pub async fn done(&mut self, job: &Value) {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11});
        self.send(
            json!({"type": "done", "id": job["id"], "finish_reason": "stop", "usage": usage}),
        )
        .await;
    }

    /// A token of one of ours, with its number and its model's id.
    pub async fn numbered(&mut self, job: &Value, seq: u64, text: &str) {
        self.send(json!({
            "type": "token", "id": job["id"], "att": job["att"], "seq": seq,
            "delta": {"content": text}, "ids": [100 + seq],
        }))
        .await;
    }

    pub async fn numbered_done(&mut self, job: &Value, seq: u64, tokens: u32) {
        self.send(json!({
            "type": "done", "id": job["id"], "att": job["att"], "seq": seq, "finish_reason": "stop",
            "usage": {"prompt_tokens": 9, "completion_tokens": tokens},
        }))
        .await;
    }
}

/// The words a client has heard, and how it ended.
pub async fn read_all(stream: &mut JobStream) -> (String, Outcome) {
    let mut text = String::new();
    loop {
        match timeout(PATIENCE, stream.next()).await.unwrap().unwrap() {
            Delivery::Event(Event::Token(token)) => text.push_str(&token.text),
            Delivery::Event(_) => {}
            Delivery::End { outcome, .. } => return (text, outcome),
        }
    }
}

/// Waits for this many more words.
pub async fn read_tokens(stream: &mut JobStream, count: usize) -> String {
    let mut text = String::new();
    let mut seen = 0;
    while seen < count {
        if let Delivery::Event(Event::Token(token)) =
            timeout(PATIENCE, stream.next()).await.unwrap().unwrap()
        {
            text.push_str(&token.text);
            seen += 1;
        }
    }
    text
}
