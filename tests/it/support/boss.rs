//! Coordinators that a test plays itself, frame by frame, against a real worker; and cables that can be cut.

#![cfg(feature = "coordinator")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use muster::daemon::{Engines, MediaModel, OfferTerms, Post, Served, Way, Worker};
use muster::link::Dial;
use muster::protocol::job::{Body, Job, Kind, Sampling, StopRules, TextInput, TextRequest};
use muster::runtime::maker::{Maker, MakerLimits, SamplePipeline};
use muster::runtime::safety::SafetyChecker;
use muster::runtime::{DeviceChoice, EngineLimits, ModelInfo, ModelSource, Runtime};
use muster::tasks::Tasks;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, copy_bidirectional, duplex};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::rig::{PATIENCE, job};

pub const MODEL: &str = "tiny";
/// The tokens with which the tiny model would end.
pub const ENDS: [(u32, f32); 2] = [(507, -1000.0), (510, -1000.0)];

/// An engine with the smallest model.
pub async fn engine() -> (Runtime, Arc<ModelInfo>) {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-llama");
    engine_with(ModelSource::new(fixture), EngineLimits::default()).await
}

pub async fn engine_with(source: ModelSource, limits: EngineLimits) -> (Runtime, Arc<ModelInfo>) {
    let runtime = Runtime::start(DeviceChoice::Cpu, limits).unwrap();
    let info = runtime.load(MODEL, source, |_, _| ()).await.unwrap();
    (runtime, info)
}

/// A real worker at one post.
pub async fn worker(name: &str, dial: Dial, tasks: &Tasks) -> Worker {
    let (runtime, info) = engine().await;
    worker_on(runtime, info, post(name, dial), tasks)
}

pub fn worker_on(runtime: Runtime, info: Arc<ModelInfo>, post: Post, tasks: &Tasks) -> Worker {
    let served = Served {
        models: vec![info],
        slots: 8,
        ..Served::default()
    };
    Worker::start(runtime, served, vec![post], tasks)
}

/// A worker that writes with [`MODEL`] and draws gradients with `draws`.
pub async fn writing_and_drawing(post: Post, tasks: &Tasks) -> Worker {
    writing_and_drawing_judged(vec![post], Some(safety_checker()), tasks).await
}

pub async fn writing_and_drawing_judged(
    posts: Vec<Post>,
    safety: Option<SafetyChecker>,
    tasks: &Tasks,
) -> Worker {
    let (runtime, info) = engine().await;
    let maker = Maker::start(MakerLimits::default()).unwrap();
    let loader = Box::new(|| Ok(Box::new(SamplePipeline::default()) as Box<_>));
    maker.load("draws", loader).await.unwrap();
    let engines = Engines {
        maker: Some(maker),
        safety,
        ..runtime.into()
    };
    let served = Served {
        models: vec![info],
        media: vec![MediaModel::new("draws", Kind::Image)],
        slots: 8,
        ..Served::default()
    };
    Worker::start(engines, served, posts, tasks)
}

/// Flags images that show something purple.
pub fn safety_checker() -> SafetyChecker {
    SafetyChecker::open(Path::new("models/demo-safety")).unwrap()
}

pub fn post(name: &str, dial: Dial) -> Post {
    post_by(name, Way::Socket { dial, sockets: 1 })
}

pub fn post_by(name: &str, way: Way) -> Post {
    Post {
        media_hosts: Vec::new(),
        terms: OfferTerms::default(),
        label: "test".to_owned(),
        way,
        key: "key-1".to_owned(),
        name: name.to_owned(),
    }
}

/// A connection that can be cut; later connections work again.
#[derive(Clone, Default)]
pub struct Cable(Arc<Notify>);

impl Cable {
    /// `far` opens the other end.
    pub fn dial(
        &self,
        far: impl Fn() -> DuplexStream + Send + Sync + 'static,
        tasks: &Tasks,
    ) -> Dial {
        let (cut, tasks) = (self.0.clone(), tasks.clone());
        Dial::Pipe(Arc::new(move || {
            let (near, mut middle) = duplex(1 << 12);
            let (mut far, cut) = (far(), cut.clone());
            tasks.start(async move {
                tokio::select! {
                    _ = copy_bidirectional(&mut middle, &mut far) => {}
                    () = cut.notified() => {}
                }
            });
            near
        }))
    }

    pub fn cut(&self) {
        self.0.notify_waiters();
    }
}

/// Where workers knock.
pub struct Office {
    knocks: mpsc::Receiver<DuplexStream>,
}

/// A played coordinator's end of one socket.
pub struct Boss<S = DuplexStream> {
    pub socket: WebSocketStream<S>,
}

impl Office {
    pub fn open() -> (Self, Dial) {
        let (sender, knocks) = mpsc::channel(64);
        let dial = Dial::Pipe(Arc::new(move || {
            let (near, far) = duplex(1 << 16);
            // An office that has closed drops who knocks.
            let _ = sender.try_send(far);
            near
        }));
        (Self { knocks }, dial)
    }

    /// The next connection, if any arrives.
    pub async fn knock(&mut self, within: Duration) -> Option<DuplexStream> {
        timeout(within, self.knocks.recv()).await.ok().flatten()
    }

    pub async fn next(&mut self) -> Boss {
        let stream = self.knock(PATIENCE).await.unwrap();
        Boss {
            socket: WebSocketStream::from_raw_socket(stream, Role::Server, None).await,
        }
    }

    /// Takes the next worker in as a public coordinator does.
    pub async fn hire(&mut self) -> (Boss, Value) {
        let mut boss = self.next().await;
        let registration = boss.next().await;
        boss.send(json!({"type": "ready", "worker_id": "2d0f4a52-6b0d-4c55-9c7e-0f5a4a3b9d10"}))
            .await;
        (boss, registration)
    }

    pub async fn nobody_comes(&mut self, time: Duration) -> bool {
        self.knock(time).await.is_none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Boss<S> {
    pub async fn send(&mut self, frame: Value) {
        let text = Message::text(frame.to_string());
        self.socket.send(text).await.unwrap();
    }

    pub async fn next(&mut self) -> Value {
        self.next_if_any()
            .await
            .expect("a frame was wanted, and the worker has left")
    }

    /// None when the worker has closed.
    pub async fn next_if_any(&mut self) -> Option<Value> {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.unwrap();
            match message {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(_) | Err(_)) | None => return None,
            }
        }
    }

    pub async fn close(&mut self, code: u16) {
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: "".into(),
        };
        let _ = self.socket.close(Some(frame)).await;
    }

    /// Text and last frame of one job.
    pub async fn read_job(&mut self) -> (String, Value) {
        let mut text = String::new();
        loop {
            let frame = self.next().await;
            match frame["type"].as_str() {
                Some("token") => text += frame["delta"]["content"].as_str().unwrap_or_default(),
                Some("done" | "error") => return (text, frame),
                _ => {}
            }
        }
    }
}

/// A chat job as a public coordinator gives it out.
pub fn public_job(id: &str, request: Value) -> Value {
    let mut full = json!({
        "model": MODEL, "messages": [{"role": "user", "content": "hello"}], "temperature": 0.7,
        "top_p": 0.9, "n": 1, "stream": true, "seed": 41, "max_tokens": 40,
        "logit_bias": {"507": -100, "510": -100},
    });
    let fields = full.as_object_mut().unwrap();
    fields.extend(request.as_object().unwrap().clone());
    json!({
        "type": "job", "id": id, "model": MODEL,
        "payload": {
            "request": full, "api_format": "openai-chat", "prompt": "User: hello\nAssistant:",
            "max_length": 40, "temperature": 0.7, "top_p": 0.9,
        },
    })
}

/// A job that draws by its seed and does not end by itself.
pub fn story(prompt: &str, tokens: u32) -> Job {
    let mut job = job("");
    job.original = None;
    job.limits.output_tokens = Some(tokens);
    job.body = Body::Text(Box::new(TextRequest {
        input: TextInput::Prompt(prompt.to_owned()),
        sampling: Sampling {
            temperature: Some(1.0),
            seed: Some(7),
            repetition_penalty: Some(1.1),
            logit_bias: ENDS.to_vec(),
            ..Sampling::default()
        },
        max_tokens: Some(tokens),
        stop: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        tool_choice: None,
        stop_rules: StopRules::default(),
        parallel_tool_calls: None,
        format: None,
        choice: 3,
    }));
    job
}
