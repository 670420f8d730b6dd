//! What this machine could do if a coordinator cost nothing: an echo, and a relay that only passes frames on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use futures_util::{SinkExt, StreamExt, stream};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

const REPLY: &str = r#"{"id":"chatcmpl-0","object":"chat.completion","created":0,"model":"load-model","choices":[{"index":0,"message":{"role":"assistant","content":" word"},"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9}}"#;

/// Answers every request with the same bytes.
pub fn echo() {
    let router = Router::new().route(
        "/v1/chat/completions",
        post(|_: Bytes| async { ([(CONTENT_TYPE, "application/json")], REPLY) }),
    );
    run(router);
}

/// Jobs to the only worker, frames back to their clients.
#[derive(Clone)]
struct Relay {
    jobs: mpsc::Sender<String>,
    waiting: Arc<Mutex<HashMap<String, mpsc::Sender<String>>>>,
    queue: Arc<tokio::sync::Mutex<mpsc::Receiver<String>>>,
}

/// Passes jobs to a worker socket and its frames to the clients: no keys, no queue, no store, no counting.
pub fn relay() {
    let (jobs, queue) = mpsc::channel(1024);
    let relay = Relay {
        jobs,
        waiting: Arc::default(),
        queue: Arc::new(tokio::sync::Mutex::new(queue)),
    };
    let router = Router::new()
        .route("/v1/chat/completions", post(ask))
        .route("/v1/workers/ws", get(worker))
        .with_state(relay);
    run(router);
}

async fn ask(State(relay): State<Relay>, body: Bytes) -> Response {
    let id = uuid::Uuid::new_v4().to_string();
    let (sender, receiver) = mpsc::channel(256);
    relay.waiting.lock().unwrap().insert(id.clone(), sender);
    let request = std::str::from_utf8(&body).unwrap();
    let is_stream = request.contains("\"stream\":true");
    let job = format!("{{\"type\":\"job\",\"id\":\"{id}\",\"att\":1,\"payload\":{request}}}");
    relay.jobs.send(job).await.unwrap();
    match is_stream {
        true => streamed(receiver),
        false => whole(receiver).await,
    }
}

fn streamed(receiver: mpsc::Receiver<String>) -> Response {
    let events = stream::unfold(receiver, |mut receiver| async {
        let frame = receiver.recv().await?;
        let event = match frame.contains("\"type\":\"done\"") {
            true => "data: [DONE]\n\n".to_owned(),
            false => format!("data: {frame}\n\n"),
        };
        Some((Ok::<_, std::convert::Infallible>(event), receiver))
    });
    (
        [(CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(events),
    )
        .into_response()
}

async fn whole(mut receiver: mpsc::Receiver<String>) -> Response {
    while let Some(frame) = receiver.recv().await {
        if frame.contains("\"type\":\"done\"") {
            break;
        }
    }
    ([(CONTENT_TYPE, "application/json")], REPLY).into_response()
}

async fn worker(State(relay): State<Relay>, mut request: axum::extract::Request) -> Response {
    let key = request.headers()["sec-websocket-key"].as_bytes();
    let accept = derive_accept_key(key);
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let stream = TokioIo::new(upgrade.await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        socket.next().await.unwrap().unwrap();
        socket
            .send(Message::text("{\"type\":\"ready\",\"worker_id\":\"0\"}"))
            .await
            .unwrap();
        let mut queue = relay.queue.lock().await;
        loop {
            tokio::select! {
                job = queue.recv() => socket.send(Message::text(job.unwrap())).await.unwrap(),
                frame = socket.next() => match frame {
                    Some(Ok(Message::Text(frame))) => pass_on(&relay, frame.as_str()).await,
                    _ => return,
                },
            }
        }
    });
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", accept)
        .body(Body::empty())
        .unwrap()
}

async fn pass_on(relay: &Relay, frame: &str) {
    let id = &frame[frame.find("\"id\":\"").unwrap() + 6..][..36];
    let is_last = frame.contains("\"type\":\"done\"");
    let client = {
        let mut waiting = relay.waiting.lock().unwrap();
        match is_last {
            true => waiting.remove(id),
            false => waiting.get(id).cloned(),
        }
    };
    if let Some(client) = client {
        let _ = client.send(frame.to_owned()).await;
    }
}

fn run(router: Router) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!(
            "{{\"url\":\"http://{}\",\"api_key\":null}}",
            listener.local_addr().unwrap()
        );
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        axum::serve(listener, router).await.unwrap();
    });
}
