//! A response in memory: while it is written, and a while after.

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

/// Events of one response that are kept, in bytes.
const MOST_EVENTS: usize = 64 << 20;
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

    /// Events from this number on, and whether they are all there will be.
    pub fn events_from(&self, first: usize) -> Result<(Vec<Bytes>, bool), LostEvents> {
        let state = self.lock();
        if state.is_cut {
            return Err(LostEvents);
        }
        let events = state.events.get(first..).unwrap_or_default().to_vec();
        Ok((events, state.is_ended))
    }

    /// Events before this one are of a try that failed.
    pub(super) fn began(&self, response: Value) {
        let mut state = self.lock();
        state.response = Some(response);
        state.events.clear();
    }

    pub(super) fn add(&self, event: &[u8]) {
        {
            let mut state = self.lock();
            state.size += event.len();
            if state.size > MOST_EVENTS {
                state.is_cut = true;
                state.events = Vec::new();
            }
            if !state.is_cut {
                state.events.push(Bytes::copy_from_slice(event));
            }
            let is_running = state.events.len() > QUEUED_EVENTS && !state.is_ended;
            if let Some(response) = state.response.as_mut().filter(|_| is_running) {
                response["status"] = "in_progress".into();
            }
        }
        self.changed.send_replace(());
    }

    /// With its last event, if there is one to come. Whether it had not ended before.
    pub(super) fn end(&self, response: Value) -> bool {
        let mut state = self.lock();
        let ends = !std::mem::replace(&mut state.is_ended, true);
        if ends {
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
