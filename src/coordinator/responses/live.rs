//! A response in memory: until it is stored, and for a while after for the events of a background response. Texts are
//! JSON, and are dropped once stored.

use parking_lot::{Mutex, MutexGuard};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::StoredResponse;
use super::memory::MemoryLease;
use crate::storage::ResponseRow;
use muster_protocol::job::{AccountId, UnixMillis};
use muster_protocol::openai::responses::Intent;

#[derive(Debug)]
pub struct LiveResponse {
    pub account: AccountId,
    pub is_background: bool,
    previous: Option<String>,
    model: Option<String>,
    created_at: UnixMillis,
    state: Mutex<LiveState>,
    changed: watch::Sender<()>,
    /// Cancels the writer.
    cancel: CancellationToken,
    /// Locked during a write or deletion, so that neither overtakes the other.
    pub(super) storing: tokio::sync::Mutex<()>,
}

/// The stored texts of a request.
#[derive(Debug)]
pub struct RequestTexts {
    /// Items of its own input.
    pub input: String,
    /// The request of a background response.
    pub body: Option<String>,
}

#[derive(Debug)]
struct LiveState {
    /// `None` until its jobs are queued.
    id: Option<String>,
    /// `None` until it exists, and once it is on disk.
    response: Option<String>,
    /// `None` once it is on disk.
    request: Option<RequestTexts>,
    events: Vec<Bytes>,
    /// Bytes of all events.
    size: usize,
    is_running: bool,
    is_ended: bool,
    is_deleted: bool,
    /// More events than the limit.
    is_cut: bool,
    /// Memory of the response.
    held: MemoryLease,
}

/// A write of a response to the store.
#[derive(Debug)]
pub enum ResponseSaving {
    /// The whole response.
    Whole(Box<ResponseRow>),
    /// The final response; its request is on disk.
    End { id: String, response: String },
}

/// The events of a response were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEvents;

/// Limit of kept events per response, in bytes.
const MOST_EVENTS: usize = 16 << 20;
/// Most bytes of events per read.
const MOST_READ: usize = 256 << 10;
/// Events of a queued response.
const QUEUED_EVENTS: usize = 2;

impl LiveResponse {
    /// A new response, whose request is counted in `held` already.
    pub fn new(
        account: AccountId,
        intent: &Intent,
        model: Option<String>,
        request: RequestTexts,
        (held, now): (MemoryLease, UnixMillis),
    ) -> Self {
        let state = LiveState {
            request: Some(request),
            ..LiveState::new(held)
        };
        Self {
            is_background: intent.background,
            previous: intent.previous.clone(),
            model,
            ..Self::of(account, state, now)
        }
    }

    /// A background response of an earlier process, stored on disk.
    pub fn waiting(account: AccountId, id: String, held: MemoryLease) -> Self {
        let state = LiveState {
            id: Some(id),
            ..LiveState::new(held)
        };
        Self::of(account, state, UnixMillis(0))
    }

    fn of(account: AccountId, state: LiveState, created_at: UnixMillis) -> Self {
        Self {
            account,
            is_background: true,
            previous: None,
            model: None,
            created_at,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            cancel: CancellationToken::new(),
            storing: tokio::sync::Mutex::default(),
        }
    }

    pub fn id(&self) -> Option<String> {
        self.lock().id.clone()
    }

    /// `None` until it exists, and once it is on disk.
    pub fn response(&self) -> Option<Value> {
        let state = self.lock();
        let mut response: Value = serde_json::from_str(state.response.as_deref()?).ok()?;
        if state.is_running && !state.is_ended {
            response["status"] = "in_progress".into();
        }
        Some(response)
    }

    /// `None` if any part is on disk only.
    pub fn found(&self) -> Option<StoredResponse> {
        let response = self.response()?;
        let state = self.lock();
        let request = state.request.as_ref()?;
        Some(StoredResponse {
            response,
            input: serde_json::from_str(&request.input).unwrap_or_default(),
            previous: self.previous.clone(),
        })
    }

    /// Bytes of its texts in memory.
    pub fn bytes(&self) -> usize {
        let state = self.lock();
        let request = state.request.as_ref().map_or(0, RequestTexts::bytes);
        state.response.as_ref().map_or(0, String::len) + request
    }

    pub fn previous(&self) -> Option<String> {
        self.previous.clone()
    }

    pub fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    pub fn is_deleted(&self) -> bool {
        self.lock().is_deleted
    }

    /// Cancelled to stop the writer.
    pub fn cancelled(&self) -> CancellationToken {
        self.cancel.clone()
    }

    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    pub fn delete(&self) {
        let mut state = self.lock();
        state.is_deleted = true;
        state.is_cut = true;
        state.forget_events();
        drop(state);
        self.cancel();
    }

    /// Notifies of changes after this call.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Events from this number on, and whether they are the last.
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

    /// Drops the events of earlier, failed attempts.
    pub(super) fn began(&self, response: &Value) {
        let mut state = self.lock();
        state.id = response["id"].as_str().map(str::to_owned);
        state.set_response(Some(response.to_string()));
        state.forget_events();
        state.is_cut = false;
        state.is_running = false;
    }

    /// Records an event of a background response; others cannot be read again.
    pub(super) fn add(&self, event: &[u8]) {
        if !self.is_background {
            return;
        }
        {
            let mut state = self.lock();
            state.push(event);
            state.is_running |= state.events.len() > QUEUED_EVENTS || state.is_cut;
        }
        self.changed.send_replace(());
    }

    /// False if it had ended. Adds the last event if the writer did not.
    pub(super) fn end(&self, response: &Value, is_written: bool) -> bool {
        let mut state = self.lock();
        let ends = !std::mem::replace(&mut state.is_ended, true);
        if ends {
            if self.is_background && !is_written && response["status"] == "failed" {
                const NAME: &str = "response.failed";
                let number = state.events.len();
                let event = json!({"type": NAME, "sequence_number": number, "response": response});
                state.push(format!("event: {NAME}\ndata: {event}\n\n").as_bytes());
            }
            state.set_response(Some(response.to_string()));
        }
        drop(state);
        self.changed.send_replace(());
        ends
    }

    /// The response at an end without its writer.
    pub(super) fn response_ending(
        &self,
        status: &str,
        error: Option<(&str, &str)>,
    ) -> Option<Value> {
        self.response()
            .map(|response| ending(response, status, error))
    }

    /// `None` if there is nothing to store.
    pub(super) fn saving(&self, expires_at: UnixMillis) -> Option<ResponseSaving> {
        let state = self.lock();
        let response = state.response.as_deref().filter(|_| !state.is_deleted)?;
        let id = state.id.clone()?;
        let Some(request) = &state.request else {
            return state.is_ended.then(|| ResponseSaving::End {
                id,
                response: response.to_owned(),
            });
        };
        let body = request.body.as_ref().filter(|_| !state.is_ended);
        Some(ResponseSaving::Whole(Box::new(ResponseRow {
            id,
            account: self.account,
            previous: self.previous.clone(),
            response: response.to_owned(),
            input: request.input.clone(),
            body: body.cloned(),
            model: self.model.clone(),
            created_at: self.created_at,
            expires_at,
        })))
    }

    /// Marks a write as done. An unfinished response is written again at its end.
    pub(super) fn saved(&self, saving: &ResponseSaving) {
        let has_end = match saving {
            ResponseSaving::Whole(row) => row.body.is_none(),
            ResponseSaving::End { .. } => true,
        };
        let mut state = self.lock();
        let request = state.request.take();
        state
            .held
            .shrink(request.map_or(0, |request| request.bytes()));
        state.held.note_saved();
        if has_end && state.is_ended {
            state.set_response(None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}

/// A response that was ended by another part than its writer.
pub(super) fn ending(mut response: Value, status: &str, error: Option<(&str, &str)>) -> Value {
    response["status"] = status.into();
    if let Some((code, message)) = error {
        response["error"] = json!({"code": code, "message": message});
    }
    response
}

impl RequestTexts {
    pub fn bytes(&self) -> usize {
        self.input.len() + self.body.as_ref().map_or(0, String::len)
    }
}

impl LiveState {
    fn new(held: MemoryLease) -> Self {
        Self {
            id: None,
            response: None,
            request: None,
            events: Vec::new(),
            size: 0,
            is_running: false,
            is_ended: false,
            is_deleted: false,
            is_cut: false,
            held,
        }
    }

    fn set_response(&mut self, response: Option<String>) {
        let before = self.response.take().map_or(0, |text| text.len());
        self.held.shrink(before);
        self.held.grow(response.as_ref().map_or(0, String::len));
        self.response = response;
    }

    /// Beyond the limits, all events are dropped.
    fn push(&mut self, event: &[u8]) {
        if self.is_cut {
            return;
        }
        let is_too_long = self.size + event.len() > MOST_EVENTS;
        if is_too_long || self.held.try_grow(event.len()).is_err() {
            self.is_cut = true;
            self.forget_events();
        } else {
            self.size += event.len();
            self.events.push(Bytes::copy_from_slice(event));
        }
    }

    fn forget_events(&mut self) {
        self.events = Vec::new();
        self.held.shrink(self.size);
        self.size = 0;
    }
}
