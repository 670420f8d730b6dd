//! A response in memory: while it is written, and a while after.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::StoredResponse;
use crate::storage::ResponseRow;
use muster_protocol::job::{AccountId, UnixMillis};
use muster_protocol::openai::responses::Intent;

#[derive(Debug)]
pub struct LiveResponse {
    pub account: AccountId,
    pub is_background: bool,
    previous: Option<String>,
    input: Vec<Value>,
    body: Option<Value>,
    state: Mutex<LiveState>,
    changed: watch::Sender<()>,
    /// Ends what writes it.
    cancel: CancellationToken,
    /// Held while it is stored or deleted, so that neither overtakes the other.
    pub(super) storing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct LiveState {
    /// None until workers are asked for it.
    response: Option<Value>,
    events: Vec<Bytes>,
    /// Of all events, in bytes.
    size: usize,
    is_ended: bool,
    is_deleted: bool,
    /// There were more events than are kept.
    is_cut: bool,
}

/// Events of a response are no longer known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEvents;

/// Events that are kept, in bytes: of one response, and of all of them.
const MOST_EVENTS: usize = 16 << 20;
const MOST_ALL_EVENTS: usize = 256 << 20;
/// Events are read so many bytes at a time.
const MOST_READ: usize = 256 << 10;

static ALL_EVENTS: AtomicUsize = AtomicUsize::new(0);
/// Events of a response that waits for a worker.
const QUEUED_EVENTS: usize = 2;

impl LiveResponse {
    pub fn new(
        account: AccountId,
        intent: &Intent,
        input: Vec<Value>,
        body: Option<Value>,
    ) -> Self {
        Self {
            account,
            is_background: intent.background,
            previous: intent.previous.clone(),
            input,
            body,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            cancel: CancellationToken::new(),
            storing: tokio::sync::Mutex::default(),
        }
    }

    pub fn id(&self) -> Option<String> {
        let state = self.lock();
        let response = state.response.as_ref()?;
        response["id"].as_str().map(str::to_owned)
    }

    pub fn response(&self) -> Option<Value> {
        self.lock().response.clone()
    }

    pub fn found(&self) -> Option<StoredResponse> {
        Some(StoredResponse {
            response: self.response()?,
            input: self.input.clone(),
            previous: self.previous.clone(),
        })
    }

    pub fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    pub fn is_deleted(&self) -> bool {
        self.lock().is_deleted
    }

    /// Cancelled when it is to be written no more.
    pub fn cancelled(&self) -> CancellationToken {
        self.cancel.clone()
    }

    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    pub fn delete(&self) {
        self.lock().is_deleted = true;
        self.cancel();
    }

    /// The next change after this call is seen.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Some events from this number on, and whether they are all there will be.
    pub fn events_from(&self, first: usize) -> Result<(Vec<Bytes>, bool), LostEvents> {
        let state = self.lock();
        if state.is_cut {
            return Err(LostEvents);
        }
        let mut size = 0;
        let left = state.events.get(first..).unwrap_or_default();
        let events: Vec<Bytes> = left
            .iter()
            .take_while(|event| {
                let is_first = size == 0;
                size += event.len();
                is_first || size <= MOST_READ
            })
            .cloned()
            .collect();
        let is_all = events.len() == left.len();
        Ok((events, state.is_ended && is_all))
    }

    /// Events before this one are of a try that failed.
    pub(super) fn began(&self, response: Value) {
        let mut state = self.lock();
        state.response = Some(response);
        state.forget_events();
        state.is_cut = false;
    }

    pub(super) fn add(&self, event: &[u8]) {
        {
            let mut state = self.lock();
            state.push(event);
            let is_running = state.events.len() > QUEUED_EVENTS && !state.is_ended;
            if let Some(response) = state.response.as_mut().filter(|_| is_running) {
                response["status"] = "in_progress".into();
            }
        }
        self.changed.send_replace(());
    }

    /// Whether it had not ended before. A response whose writer said nothing of its end gets its last event here.
    pub(super) fn end(&self, response: Value, is_written: bool) -> bool {
        let mut state = self.lock();
        let ends = !std::mem::replace(&mut state.is_ended, true);
        if ends {
            if self.is_background && !is_written && response["status"] == "failed" {
                const NAME: &str = "response.failed";
                let number = state.events.len();
                let event = json!({"type": NAME, "sequence_number": number, "response": response});
                state.push(format!("event: {NAME}\ndata: {event}\n\n").as_bytes());
            }
            state.response = Some(response);
        }
        drop(state);
        self.changed.send_replace(());
        ends
    }

    /// As it is when it ends without a word of its writer.
    pub(super) fn response_ending(
        &self,
        status: &str,
        error: Option<(&str, &str)>,
    ) -> Option<Value> {
        let mut response = self.response()?;
        response["status"] = status.into();
        if let Some((code, message)) = error {
            response["error"] = json!({"code": code, "message": message});
        }
        Some(response)
    }

    /// None for one that is not to be stored.
    pub(super) fn row(&self, expires_at: UnixMillis) -> Option<ResponseRow> {
        let state = self.lock();
        let response = state.response.as_ref().filter(|_| !state.is_deleted)?;
        let body = self.body.as_ref().filter(|_| !state.is_ended);
        Some(ResponseRow {
            id: response["id"].as_str()?.to_owned(),
            account: self.account,
            previous: self.previous.clone(),
            response: response.to_string(),
            input: Value::Array(self.input.clone()).to_string(),
            body: body.map(Value::to_string),
            expires_at,
        })
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveState {
    /// Events that would take too much memory are lost, all of them.
    fn push(&mut self, event: &[u8]) {
        if self.is_cut {
            return;
        }
        let all = ALL_EVENTS.fetch_add(event.len(), Ordering::Relaxed) + event.len();
        self.size += event.len();
        if self.size > MOST_EVENTS || all > MOST_ALL_EVENTS {
            self.is_cut = true;
            self.forget_events();
        } else {
            self.events.push(Bytes::copy_from_slice(event));
        }
    }

    fn forget_events(&mut self) {
        self.events = Vec::new();
        ALL_EVENTS.fetch_sub(self.size, Ordering::Relaxed);
        self.size = 0;
    }
}

impl Drop for LiveState {
    fn drop(&mut self) {
        self.forget_events();
    }
}
