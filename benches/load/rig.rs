//! Workers that answer at once: sockets that send so many tokens for every job, as fast as they are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::service::Service;

pub const MODEL: &str = "load-model";

/// How a worker answers: for all of them at once.
#[derive(Default)]
pub struct Answer {
    pub tokens: AtomicUsize,
    /// Tokens in one frame; 1 sends each alone.
    pub coalesced: AtomicUsize,
}

impl Answer {
    pub fn of(tokens: usize, coalesced: usize) -> Arc<Self> {
        Arc::new(Self {
            tokens: tokens.into(),
            coalesced: coalesced.into(),
        })
    }
}

/// A socket that has registered and been welcomed.
pub type Socket = WebSocketStream<TcpStream>;

pub async fn register(service: &Service, name: &str, model: &str) -> Socket {
    let stream = TcpStream::connect(service.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut small = WebSocketConfig::default();
    small.read_buffer_size = 4096;
    small.write_buffer_size = 0;
    let url = format!("ws://{}/v1/workers/ws", service.address);
    let (mut socket, _) = client_async_with_config(url, stream, Some(small))
        .await
        .unwrap();
    let registration = json!({
        "apikey": service.key, "name": name, "models": [model], "max_context_length": 32768,
        "ext": { "v": 1, "want": ["multi", "cancel2", "coalesce"], "max_frame": 1 << 24 },
        "capacity": { "total": 512, "models": { model: { "max": 512 } } },
    });
    socket
        .send(Message::text(registration.to_string()))
        .await
        .unwrap();
    let ready = socket.next().await.unwrap().unwrap();
    assert!(ready.to_text().unwrap().contains("\"ready\""), "{ready}");
    socket
}

/// Serves jobs until the socket is closed.
pub async fn serve(mut socket: Socket, answer: Arc<Answer>) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        if text.contains("\"type\":\"ping\"") {
            let _ = socket.send(Message::text("{\"type\":\"pong\"}")).await;
        }
        if !text.contains("\"type\":\"job\"") {
            continue;
        }
        for frame in frames(&text, &answer) {
            if socket.feed(Message::text(frame)).await.is_err() {
                return;
            }
        }
        if socket.flush().await.is_err() {
            return;
        }
    }
}

fn frames(job: &str, answer: &Answer) -> Vec<String> {
    let tokens = answer.tokens.load(Ordering::Relaxed);
    let coalesced = answer.coalesced.load(Ordering::Relaxed).max(1);
    let (id, attempt) = (after(job, "\"id\":\""), after(job, "\"att\":"));
    let head = format!("\"id\":\"{id}\",\"att\":{attempt}");
    let mut frames = Vec::with_capacity(tokens / coalesced + 1);
    let mut left = tokens;
    while left > 0 {
        let now = left.min(coalesced);
        frames.push(match coalesced {
            1 => format!("{{\"type\":\"token\",{head},\"delta\":{{\"content\":\" word\"}},\"finish_reason\":null}}"),
            _ => {
                let deltas = vec!["{\"content\":\" word\"}"; now].join(",");
                format!("{{\"type\":\"tokens\",{head},\"d\":[{deltas}]}}")
            }
        });
        left -= now;
    }
    frames.push(format!(
        "{{\"type\":\"done\",{head},\"finish_reason\":\"stop\",\"usage\":{{\"prompt_tokens\":8,\"completion_tokens\":{tokens},\"total_tokens\":{}}}}}",
        tokens + 8
    ));
    frames
}

/// The value after this key, up to its end.
fn after<'a>(text: &'a str, key: &str) -> &'a str {
    let rest = &text[text.find(key).unwrap() + key.len()..];
    &rest[..rest.find(['"', ',', '}']).unwrap()]
}
