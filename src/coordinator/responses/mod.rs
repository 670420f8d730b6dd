//! Responses of OpenAI's Responses API beyond one HTTP request: stored ones, which clients read again and go on from,
//! and background ones, which run without a client.
//!
//! | file | contents |
//! | --- | --- |
//! | `live` | a response in memory: while it is written, and its events for a while after |
//! | `memory` | the bytes that responses take in memory |
//! | `recording` | records a response while the dialect writes it |
//! | `sources` | stored responses that a request goes on from |

mod live;
mod memory;
mod recording;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::clock::wall_clock;
use crate::storage::{OpenResponse, ResponseRow, StorageError, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, RequestId, UnixMillis};
use muster_protocol::openai::responses::Intent;

use live::{ResponseSaving, ending};
use memory::ResponseMemory;

pub use live::{LiveResponse, LostEvents, RequestTexts};
pub use memory::{MemoryFull, MemoryLimits};
pub use recording::Recording;
pub use sources::{EarlierResponses, LinkError, ResponseChain};

/// How long the events of an ended background response are kept for streams.
const EVENTS_KEPT: Duration = Duration::from_secs(600);
/// Pause before another try to store a response.
const AGAIN: Duration = Duration::from_secs(5);
/// Interval of expiry checks.
const EVERY: Duration = Duration::from_secs(600);
/// Tolerance, since a job is accepted slightly before its response is created.
const ACCEPTED_BEFORE: Duration = Duration::from_secs(60);

/// All responses. Clones share them.
#[derive(Debug, Clone)]
pub struct Responses {
    store: Store,
    settings: Arc<RwLock<ResponseSettings>>,
    live: Arc<Mutex<HashMap<String, Arc<LiveResponse>>>>,
    memory: ResponseMemory,
    /// Notifies of ended responses.
    ended: Arc<watch::Sender<()>>,
    tasks: Tasks,
}

/// Settings that the operator may change at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseSettings {
    /// Selects the responses to store.
    pub store: StoreResponses,
    /// Lifetime of stored responses.
    pub kept: Duration,
    /// Limits of an account's stored responses and their bytes.
    pub most: usize,
    pub most_bytes: usize,
}

/// Selects the responses to store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreResponses {
    /// As in OpenAI's API: all, unless the request sets `store: false`.
    #[default]
    UnlessRefused,
    /// Responses with `store: true` in the request.
    OnRequest,
    Never,
}

/// A stored or running response.
#[derive(Debug, Clone)]
pub struct StoredResponse {
    pub response: Value,
    /// Items of its own input.
    pub input: Vec<Value>,
    pub previous: Option<String>,
}

/// The account's storage quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverQuota {
    Responses(usize),
    Bytes(usize),
}

/// Why a response cannot be recorded.
#[derive(Debug)]
pub enum NotRecorded {
    OverQuota(OverQuota),
    NoMemory(MemoryFull),
    Storage(StorageError),
}

/// Limit of reads while an account's usage changes.
const MOST_LOOKS: usize = 3;

impl Default for ResponseSettings {
    fn default() -> Self {
        Self {
            store: StoreResponses::default(),
            kept: Duration::from_secs(30 * 24 * 3600),
            most: 50_000,
            most_bytes: 1 << 30,
        }
    }
}

impl Responses {
    pub fn start(store: Store, settings: ResponseSettings, tasks: &Tasks) -> Self {
        let responses = Self::with(store, settings, MemoryLimits::default(), tasks);
        let (store, stopping) = (responses.store.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(expire_on(store)).await });
        responses
    }

    fn with(store: Store, settings: ResponseSettings, limits: MemoryLimits, tasks: &Tasks) -> Self {
        Self {
            store,
            settings: Arc::new(RwLock::new(settings)),
            live: Arc::default(),
            memory: ResponseMemory::new(limits),
            ended: Arc::new(watch::Sender::new(())),
            tasks: tasks.clone(),
        }
    }

    /// Responses that are stored already keep their expiry.
    pub fn change(&self, settings: ResponseSettings) {
        *self.settings.write() = settings;
    }

    /// Starts a response. The request of a background response is stored until it ends, so that it can be restarted.
    pub async fn record(
        &self,
        account: AccountId,
        intent: &Intent,
        model: Option<String>,
        request: RequestTexts,
    ) -> Result<Recording, NotRecorded> {
        let bytes = request.bytes();
        self.check_quota(account, bytes).await?;
        let mut held = self.memory.hold(account);
        match intent.background {
            true => held.try_grow(bytes).map_err(NotRecorded::NoMemory)?,
            // Limited by the memory of its request.
            false => held.grow(bytes),
        }
        held.note_unsaved(bytes);
        let live = LiveResponse::new(account, intent, model, request, (held, wall_clock()));
        Ok(Recording::new(self.clone(), Arc::new(live)))
    }

    /// Responses that are still to be stored count too. A response that is stored while the rows are read would be in neither
    /// count, so both are read again; in the end such a response counts twice rather than never.
    async fn check_quota(&self, account: AccountId, bytes: usize) -> Result<(), NotRecorded> {
        let mut share = self.memory.share(account);
        let mut looks = 1;
        let stored = loop {
            let stored = self.store.response_usage(account).await;
            let stored = stored.map_err(NotRecorded::Storage)?;
            let now = self.memory.share(account);
            if now.unsaved >= share.unsaved || looks == MOST_LOOKS {
                break stored;
            }
            (share, looks) = (now, looks + 1);
        };
        let ResponseSettings {
            most, most_bytes, ..
        } = *self.settings.read();
        if stored.responses + share.unsaved >= most {
            return Err(NotRecorded::OverQuota(OverQuota::Responses(most)));
        }
        let all = stored.bytes.saturating_add(share.unsaved_bytes);
        match all.saturating_add(bytes) > most_bytes {
            true => Err(NotRecorded::OverQuota(OverQuota::Bytes(most_bytes))),
            false => Ok(()),
        }
    }

    /// The memory limits.
    pub fn memory_limits(&self) -> MemoryLimits {
        self.memory.limits()
    }

    /// `None` for responses of other accounts, too.
    pub async fn find(
        &self,
        id: &str,
        account: AccountId,
    ) -> Result<Option<StoredResponse>, StorageError> {
        let live = self.live(id, account);
        if let Some(found) = live.as_ref().and_then(|live| live.found()) {
            return Ok(Some(found));
        }
        // A response that leaves memory after this is in the row by then.
        let newer = live.and_then(|live| live.response());
        let row = self.store.response(id, account).await?;
        Ok(row.map(|row| StoredResponse {
            response: newer.unwrap_or_else(|| read(&row.response)),
            input: serde_json::from_str(&row.input).unwrap_or_default(),
            previous: row.previous,
        }))
    }

    /// The same as JSON, without its input.
    pub async fn find_text(
        &self,
        id: &str,
        account: AccountId,
    ) -> Result<Option<String>, StorageError> {
        let live = self.live(id, account);
        if let Some(response) = live.and_then(|live| live.response()) {
            return Ok(Some(response.to_string()));
        }
        let row = self.store.response(id, account).await?;
        Ok(row.map(|row| row.response))
    }

    /// A response that is running, or whose events are kept.
    pub fn live(&self, id: &str, account: AccountId) -> Option<Arc<LiveResponse>> {
        let live = self.lock().get(id).cloned()?;
        (live.account == account && !live.is_deleted()).then_some(live)
    }

    /// Ends it if it is running. False if it does not exist.
    pub async fn delete(&self, id: &str, account: AccountId) -> Result<bool, StorageError> {
        let live = self.live(id, account);
        let mut _storing = None;
        if let Some(live) = &live {
            _storing = Some(live.storing.lock().await);
            live.delete();
            self.lock().remove(id);
        }
        let stored = self.store.delete_response(id.to_owned(), account).await?;
        Ok(stored || live.is_some())
    }

    /// Cancels an account's background responses, and removes all of its responses from memory. A response with a
    /// waiting client is not stored at its end, since the database knows that its account was deleted.
    pub fn forget_all_of(&self, account: AccountId) {
        self.lock().retain(|_, live| {
            let stays = live.account != account;
            if !stays {
                live.delete();
            }
            stays
        });
    }

    /// The cancelled response; `None` if it had ended.
    pub async fn cancel_stored(
        &self,
        id: &str,
        account: AccountId,
        response: &Value,
    ) -> Result<Option<Value>, StorageError> {
        let cancelled = ending(response.clone(), "cancelled", None);
        let (id, text) = (id.to_owned(), cancelled.to_string());
        let was_open = self.store.end_response(id, account, text).await?;
        Ok(was_open.then_some(cancelled))
    }

    /// Background responses left by an earlier process.
    pub async fn unfinished(&self) -> Result<Vec<OpenResponse>, StorageError> {
        self.store.open_responses().await
    }

    /// Registers a response that will be restarted later.
    pub fn resume(&self, open: &OpenResponse) -> Recording {
        let held = self.memory.hold(open.account);
        let live = LiveResponse::waiting(open.account, open.id.clone(), held);
        let live = Arc::new(live);
        self.keep(&live);
        Recording::new(self.clone(), live)
    }

    /// Drops a response that was deleted, or ended by another coordinator.
    pub fn forget(&self, live: &LiveResponse) {
        live.delete();
        if let Some(id) = live.id() {
            self.lock().remove(&id);
        }
    }

    /// Number of starts of an open response; `None` if it has ended or does not exist.
    pub async fn beginnings(&self, open: &OpenResponse) -> Result<Option<i64>, StorageError> {
        self.store.beginnings(&open.id, open.account).await
    }

    pub async fn stored(&self, open: &OpenResponse) -> Result<Option<ResponseRow>, StorageError> {
        self.store.response(&open.id, open.account).await
    }

    /// Counts a start, stored before the jobs are queued: a crash counts, too.
    pub async fn note_beginning(&self, id: &str) -> Result<(), StorageError> {
        self.store.begin_response(id.to_owned()).await
    }

    /// Undoes [`Self::note_beginning`] if the jobs were not queued.
    pub async fn take_back_beginning(&self, id: &str) -> Result<(), StorageError> {
        self.store.take_back_beginning(id.to_owned()).await
    }

    /// Whether its job was delivered and charged, though its end was not stored.
    pub async fn is_delivered(
        &self,
        request: RequestId,
        row: &ResponseRow,
    ) -> Result<bool, StorageError> {
        let before = i64::try_from(ACCEPTED_BEFORE.as_millis()).unwrap_or(0);
        let since = UnixMillis(row.created_at.0.saturating_sub(before));
        self.store.is_delivered(request, row.account, since).await
    }

    /// Notifies of ends after this call.
    pub fn ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// On disk when this returns.
    pub async fn save(&self, live: &LiveResponse) -> Result<(), StorageError> {
        let _storing = live.storing.lock().await;
        let expires_at = wall_clock().after(self.settings.read().kept);
        let Some(saving) = live.saving(expires_at) else {
            return Ok(());
        };
        match &saving {
            ResponseSaving::Whole(row) => self.store.save_response(ResponseRow::clone(row)).await?,
            ResponseSaving::End { id, response } => {
                let (id, response) = (id.clone(), response.clone());
                let ended = self.store.end_response(id, live.account, response);
                // No effect if another coordinator has deleted it.
                ended.await?;
            }
        }
        live.saved(&saving);
        Ok(())
    }

    fn keep(&self, live: &Arc<LiveResponse>) {
        if let Some(id) = live.id() {
            self.lock().insert(id, live.clone());
        }
    }

    /// Stores an ended response, and drops it from memory when its events are not kept any longer.
    fn store_ended(&self, live: Arc<LiveResponse>) {
        self.ended.send_replace(());
        if live.is_deleted() {
            return;
        }
        self.keep(&live);
        let responses = self.clone();
        let stopping = self.tasks.stopping();
        self.tasks.start(async move {
            while let Err(error) = responses.save(&live).await {
                warn!(
                    "storing a response failed, retrying in {} s: {error}",
                    AGAIN.as_secs()
                );
                if stopping.run_until_cancelled(sleep(AGAIN)).await.is_none() {
                    return;
                }
            }
            if live.is_background {
                stopping.run_until_cancelled(sleep(EVENTS_KEPT)).await;
            }
            if let Some(id) = live.id() {
                responses.lock().remove(&id);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveResponse>>> {
        self.live.lock()
    }
}

/// Null if it cannot be parsed.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

async fn expire_on(store: Store) {
    loop {
        if let Err(error) = store.expire_responses(wall_clock()).await {
            debug!("deleting expired responses failed, retrying later: {error}");
        }
        sleep(EVERY).await;
    }
}
