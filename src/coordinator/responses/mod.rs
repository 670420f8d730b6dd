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

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::clock::wall_clock;
use crate::state::LiveSettings;
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

/// How long the events of a background response can be streamed again after its end.
const EVENTS_KEPT: Duration = Duration::from_secs(600);
/// Between two tries to store a response.
const AGAIN: Duration = Duration::from_secs(5);
/// Interval of expiry checks.
const EVERY: Duration = Duration::from_secs(600);
/// A job counts as accepted a little before its response was made.
const ACCEPTED_BEFORE: Duration = Duration::from_secs(60);

/// All of them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Responses {
    store: Store,
    settings: LiveSettings,
    live: Arc<Mutex<HashMap<String, Arc<LiveResponse>>>>,
    memory: ResponseMemory,
    /// Changes when one has ended.
    ended: Arc<watch::Sender<()>>,
    tasks: Tasks,
}

/// Which responses are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreResponses {
    /// As in OpenAI's API: all, unless the request sets `store: false`.
    #[default]
    UnlessRefused,
    /// Responses whose request says `store: true`.
    OnRequest,
    Never,
}

/// A response that was found.
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

/// Why a request cannot be recorded.
#[derive(Debug)]
pub enum NotRecorded {
    OverQuota(OverQuota),
    NoMemory(MemoryFull),
    Storage(StorageError),
}

/// At the usage of an account that changes meanwhile.
const MOST_LOOKS: usize = 3;

impl Responses {
    pub fn start(store: Store, settings: LiveSettings, tasks: &Tasks) -> Self {
        let responses = Self::with(store, settings, MemoryLimits::default(), tasks);
        let (store, stopping) = (responses.store.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(expire_on(store)).await });
        responses
    }

    fn with(store: Store, settings: LiveSettings, limits: MemoryLimits, tasks: &Tasks) -> Self {
        Self {
            store,
            settings,
            live: Arc::default(),
            memory: ResponseMemory::new(limits),
            ended: Arc::new(watch::Sender::new(())),
            tasks: tasks.clone(),
        }
    }

    /// A new one. The body of a background response is stored while it runs, so that it can be begun again.
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
            // The memory of its request bounds it.
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
        let settings = self.settings.current();
        let (most, most_bytes) = (settings.stored_responses, settings.stored_response_bytes);
        if stored.responses + share.unsaved >= most {
            return Err(NotRecorded::OverQuota(OverQuota::Responses(most)));
        }
        let all = stored.bytes.saturating_add(share.unsaved_bytes);
        match all.saturating_add(bytes) > most_bytes {
            true => Err(NotRecorded::OverQuota(OverQuota::Bytes(most_bytes))),
            false => Ok(()),
        }
    }

    /// How much memory they may take.
    pub fn memory_limits(&self) -> MemoryLimits {
        self.memory.limits()
    }

    /// None for one of another account, too.
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

    /// The same without its input, as JSON.
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

    /// A response that runs, or whose events are still known.
    pub fn live(&self, id: &str, account: AccountId) -> Option<Arc<LiveResponse>> {
        let live = self.lock().get(id).cloned()?;
        (live.account == account && !live.is_deleted()).then_some(live)
    }

    /// Ends it if it runs. Whether it was there.
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

    /// Background responses that an earlier process has left.
    pub async fn unfinished(&self) -> Result<Vec<OpenResponse>, StorageError> {
        self.store.open_responses().await
    }

    /// Takes over a response that is begun again later.
    pub fn resume(&self, open: &OpenResponse) -> Recording {
        let held = self.memory.hold(open.account);
        let live = LiveResponse::waiting(open.account, open.id.clone(), held);
        let live = Arc::new(live);
        self.keep(&live);
        Recording::new(self.clone(), live)
    }

    /// Drops a response that is not there any more, or has ended elsewhere.
    pub fn forget(&self, live: &LiveResponse) {
        live.delete();
        if let Some(id) = live.id() {
            self.lock().remove(&id);
        }
    }

    /// How often an open response has begun; none if it has ended or is not there.
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

    /// The next end after this call is seen.
    pub fn ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// On disk when this returns.
    pub async fn save(&self, live: &LiveResponse) -> Result<(), StorageError> {
        let _storing = live.storing.lock().await;
        let expires_at = wall_clock().after(self.settings.current().responses_kept);
        let Some(saving) = live.saving(expires_at) else {
            return Ok(());
        };
        match &saving {
            ResponseSaving::Whole(row) => self.store.save_response(ResponseRow::clone(row)).await?,
            ResponseSaving::End { id, response } => {
                let (id, response) = (id.clone(), response.clone());
                let ended = self.store.end_response(id, live.account, response);
                // Another coordinator may have deleted it.
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

    /// Stores a response that has ended, and forgets it here when its events need no longer be known.
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
