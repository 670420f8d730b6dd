//! Records a response while the dialect writes it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use super::Responses;
use super::live::{LiveResponse, ending};
use crate::error::ApiError;
use muster_protocol::job::{Failure, FailureKind};
use muster_protocol::openai::responses::Recorder;

#[derive(Clone)]
pub struct Recording {
    responses: Responses,
    live: Arc<LiveResponse>,
    begun: Arc<Mutex<Option<oneshot::Sender<Value>>>>,
    has_begun: Arc<AtomicBool>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Recording")
    }
}

impl Recording {
    pub(super) fn new(responses: Responses, live: Arc<LiveResponse>) -> Self {
        Self {
            responses,
            live,
            begun: Arc::default(),
            has_begun: Arc::default(),
        }
    }

    pub fn live(&self) -> &Arc<LiveResponse> {
        &self.live
    }

    /// Receives the response once its jobs are queued; closed if they never are.
    pub fn beginning(&self) -> oneshot::Receiver<Value> {
        let (begun, beginning) = oneshot::channel();
        *self.begun.lock() = Some(begun);
        beginning
    }

    /// Drops the client that waits for the first event.
    pub fn refuse(&self) {
        self.begun.lock().take();
    }

    /// Whether the jobs were queued.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Whether its texts are stored and no jobs were queued here.
    pub fn is_on_disk(&self) -> bool {
        self.live.response().is_none() && !self.live.is_ended()
    }

    /// Ends a response on disk. `stored` is its last stored text.
    pub fn end_stored(&self, stored: Value, status: &str, error: Option<&ApiError>) {
        let error = error.map(|error| (error.failure.code(), &*error.failure.message));
        self.end(&ending(stored, status, error), false);
    }

    /// The client cancelled the response.
    pub fn cancelled(&self) {
        self.end_as("cancelled", None);
    }

    /// The response failed before its writer reported it.
    pub fn failed(&self, error: &ApiError) {
        if error.failure.kind != FailureKind::ShuttingDown {
            let failure = &error.failure;
            self.end_as("failed", Some(failure));
        }
    }

    fn end_as(&self, status: &str, failure: Option<&Failure>) {
        let error = failure.map(|failure| (failure.code(), &*failure.message));
        if let Some(response) = self.live.response_ending(status, error) {
            self.end(&response, false);
        }
    }

    /// `is_written`: the last event was recorded.
    fn end(&self, response: &Value, is_written: bool) {
        // A background response cut off by shutdown starts again after it.
        let cut_off = Failure::new(FailureKind::ShuttingDown, "");
        let is_cut_off = response["error"]["code"] == cut_off.code();
        if self.live.is_background && is_cut_off {
            return;
        }
        if self.live.end(response, is_written) {
            self.responses.store_ended(self.live.clone());
        }
    }
}

impl Recorder for Recording {
    fn began(&self, response: &Value) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.live.began(response);
        if self.live.is_background {
            self.responses.keep(&self.live);
        }
        let begun = self.begun.lock().take();
        if let Some(begun) = begun {
            // The client may be gone.
            let _ = begun.send(response.clone());
        }
    }

    fn event(&self, event: &[u8]) {
        self.live.add(event);
    }

    fn ended(&self, response: &Value) {
        self.end(response, true);
    }
}
