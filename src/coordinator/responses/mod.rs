//! Responses of OpenAI's Responses API beyond one HTTP request: stored ones, which clients read again and go on from,
//! and background ones, which run without a client.
//!
//! | file | what it is |
//! | --- | --- |
//! | `live` | a response in memory: while it is written, and a while after |
//! | `recording` | what keeps it, as the dialect writes it |
//! | `sources` | stored responses that a request goes on from |

mod live;
mod recording;
mod sources;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::clock::wall_clock;
use crate::state::LiveSettings;
use crate::storage::{ResponseRow, StorageError, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::AccountId;
use muster_protocol::openai::responses::Intent;

pub use live::{LiveResponse, LostEvents};
pub use recording::Recording;
pub use sources::{EarlierResponses, LinkError};

/// How long the events of a background response can be streamed again after its end.
const EVENTS_KEPT: Duration = Duration::from_secs(600);
/// Between two tries to store a response.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two looks for those that have expired.
const EVERY: Duration = Duration::from_secs(600);

/// All of them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Responses {
    store: Store,
    settings: LiveSettings,
    live: Arc<Mutex<HashMap<String, Arc<LiveResponse>>>>,
    tasks: Tasks,
}

/// A response that was found.
#[derive(Debug, Clone)]
pub struct StoredResponse {
    pub response: Value,
    /// Items of its own input.
    pub input: Vec<Value>,
    pub previous: Option<String>,
}

impl Responses {
    pub fn start(store: Store, settings: LiveSettings, tasks: &Tasks) -> Self {
        let responses = Self {
            store,
            settings,
            live: Arc::default(),
            tasks: tasks.clone(),
        };
        let (store, stopping) = (responses.store.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(expire_on(store)).await });
        responses
    }

    /// A new one. `body` is stored while it runs in the background, so that it can be begun again.
    pub fn record(
        &self,
        account: AccountId,
        intent: &Intent,
        input: Vec<Value>,
        body: Option<Value>,
    ) -> Recording {
        let live = LiveResponse::new(account, intent, input, body);
        Recording::new(self.clone(), Arc::new(live))
    }

    /// None for one of another account, too.
    pub async fn find(
        &self,
        id: &str,
        account: AccountId,
    ) -> Result<Option<StoredResponse>, StorageError> {
        if let Some(live) = self.live(id, account) {
            return Ok(live.found());
        }
        let row = self.store.response(id, account).await?;
        Ok(row.map(|row| StoredResponse {
            response: serde_json::from_str(&row.response).unwrap_or_default(),
            input: serde_json::from_str(&row.input).unwrap_or_default(),
            previous: row.previous,
        }))
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

    /// Background responses that an earlier process has left.
    pub async fn unfinished(&self) -> Result<Vec<ResponseRow>, StorageError> {
        self.store.open_responses().await
    }

    /// Whether a response that an earlier process has left open still is.
    pub async fn is_open(&self, id: &str, account: AccountId) -> Result<bool, StorageError> {
        let row = self.store.response(id, account).await?;
        Ok(row.is_some_and(|row| row.body.is_some()))
    }

    /// On disk when this returns.
    pub async fn save(&self, live: &LiveResponse) -> Result<(), StorageError> {
        let _storing = live.storing.lock().await;
        let expires_at = wall_clock().after(self.settings.current().responses_kept);
        match live.row(expires_at) {
            Some(row) => self.store.save_response(row).await,
            None => Ok(()),
        }
    }

    fn keep(&self, live: &Arc<LiveResponse>) {
        if let Some(id) = live.id() {
            self.lock().insert(id, live.clone());
        }
    }

    /// Stores a response that has ended, and forgets it here when its events need no longer be known.
    fn store_ended(&self, live: Arc<LiveResponse>) {
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
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn expire_on(store: Store) {
    loop {
        if let Err(error) = store.expire_responses(wall_clock()).await {
            debug!("deleting expired responses failed, retrying later: {error}");
        }
        sleep(EVERY).await;
    }
}
