//! A proxy of a coordinator's socket: records the frames between a real worker and a real coordinator.

use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use muster::link::Dial;
use serde_json::Value;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::rig::{Board, PATIENCE};

#[derive(Clone, Default)]
pub struct Tap(Arc<Heard>);

#[derive(Default)]
struct Heard {
    frames: Mutex<Vec<(Speaker, Value)>>,
    more: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    Worker,
    Coordinator,
}

impl Tap {
    /// The way to the coordinator.
    pub fn on(board: &Board) -> (Self, Dial) {
        let tap = Self::default();
        let (heard, workers, tasks) = (tap.clone(), board.workers.clone(), board.tasks.clone());
        let dial = Dial::Pipe(Arc::new(move || {
            let (near, middle) = duplex(1 << 16);
            let (far, end) = duplex(1 << 16);
            let (heard, workers) = (heard.clone(), workers.clone());
            tasks.start(heard.pass_on(middle, far));
            tasks.start(async move { workers.serve(end, Vec::new()).await });
            near
        }));
        (tap, dial)
    }

    async fn pass_on(self, worker: DuplexStream, coordinator: DuplexStream) {
        let mut worker = WebSocketStream::from_raw_socket(worker, Role::Server, None).await;
        let mut coordinator =
            WebSocketStream::from_raw_socket(coordinator, Role::Client, None).await;
        loop {
            let (speaker, message) = tokio::select! {
                message = worker.next() => (Speaker::Worker, message),
                message = coordinator.next() => (Speaker::Coordinator, message),
            };
            let Some(Ok(message)) = message else { return };
            self.note(speaker, &message);
            let passed = match speaker {
                Speaker::Worker => coordinator.send(message).await,
                Speaker::Coordinator => worker.send(message).await,
            };
            if passed.is_err() {
                return;
            }
        }
    }

    fn note(&self, speaker: Speaker, message: &Message) {
        // Some are nested too deeply to be read.
        if let Message::Text(text) = message
            && let Ok(frame) = serde_json::from_str(text)
        {
            self.0.frames.lock().unwrap().push((speaker, frame));
            self.0.more.notify_waiters();
        }
    }

    /// All frames of this type so far. A registration has none: "".
    pub fn heard(&self, speaker: Speaker, kind: &str) -> Vec<Value> {
        let frames = self.0.frames.lock().unwrap();
        let wanted = frames.iter().filter(|(who, frame)| {
            *who == speaker && frame["type"].as_str().unwrap_or_default() == kind
        });
        wanted.map(|(_, frame)| frame.clone()).collect()
    }

    /// Waits for a frame of this type that is so.
    pub async fn until(&self, speaker: Speaker, kind: &str, is: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                let more = self.0.more.notified();
                if let Some(frame) = self.heard(speaker, kind).into_iter().find(&is) {
                    return frame;
                }
                more.await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap()
    }
}
