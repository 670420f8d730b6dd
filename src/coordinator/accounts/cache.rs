//! The in-memory cache of callers. Repeated lookups need no query, wrong keys included; changes by other processes are
//! noticed by the revision of the keys.
//!
//! Two generations bound it: when the young one is full it becomes the old one, and entries still in use move back from
//! there. Wrong keys have a cache of their own, so a flood of them evicts no caller.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, warn};

use crate::storage::{KeyRow, StorageError};
use crate::values::key::Digest;
use crate::values::{Means, Roles};
use muster_protocol::job::AccountId;

use super::means::{KnownMeans, MeansOfAll};
use super::{Caller, Denied, Inner};

/// Limit of known keys in one generation.
const CALLERS: usize = 50_000;
/// Limit of wrong keys in one generation.
const STRANGERS: usize = 10_000;
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Maximum age of a cached balance.
const REFRESH: Duration = Duration::from_secs(5);

/// A caller, or `None` for a wrong key.
pub type Found = Option<Arc<Caller>>;

#[derive(Debug)]
pub struct Cache {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    callers: Generations<Arc<Caller>>,
    strangers: Generations<()>,
    means: MeansOfAll,
    /// The last applied revision.
    revision: i64,
}

#[derive(Debug)]
struct Generations<T> {
    young: HashMap<Digest, T>,
    old: HashMap<Digest, T>,
    most: usize,
}

impl Cache {
    pub fn new(revision: i64) -> Self {
        let state = State {
            callers: Generations::of(CALLERS),
            strangers: Generations::of(STRANGERS),
            means: MeansOfAll::with_room_for(2 * CALLERS),
            revision,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// `None` if the key is not cached.
    pub fn find(&self, digest: &Digest) -> Option<Found> {
        let mut state = self.lock();
        if let Some(caller) = state.callers.find(digest) {
            caller.note_coming();
            return Some(Some(caller));
        }
        state.strangers.find(digest).map(|()| None)
    }

    /// Callers active since the last call.
    fn lately(&self) -> Vec<Arc<Caller>> {
        let state = self.lock();
        let callers = state.callers.young.values();
        callers
            .filter(|caller| caller.came_lately())
            .cloned()
            .collect()
    }

    /// The shared balance of an account's callers, updated to `means`.
    pub fn means_of(&self, account: AccountId, means: Means) -> Arc<KnownMeans> {
        self.lock().means.of(account, means)
    }

    /// Updates the balances of these accounts' callers.
    pub fn note_means(&self, means: &HashMap<AccountId, Means>) {
        let state = self.lock();
        for (account, means) in means {
            state.means.note(*account, *means);
        }
    }

    pub fn revision(&self) -> i64 {
        self.lock().revision
    }

    /// Caches the store's answer, unless the revision has changed since the lookup began.
    pub fn keep(&self, digest: Digest, found: Found, asked_at: i64) {
        let mut state = self.lock();
        if state.revision != asked_at {
            return;
        }
        match found {
            Some(caller) => state.callers.keep(digest, caller),
            None => state.strangers.keep(digest, ()),
        }
    }

    pub fn forget(&self, digest: &Digest) {
        let mut state = self.lock();
        state.callers.forget(digest);
        state.strangers.forget(digest);
    }

    /// Evicts changed keys and all wrong ones, since a wrong key may have become valid.
    fn take_in(&self, changed: &[KeyRow], revision: i64) {
        let mut state = self.lock();
        for row in changed {
            if let Some(digest) = Digest::parse(&row.digest) {
                state.callers.forget(&digest);
            }
        }
        state.strangers = Generations::of(STRANGERS);
        state.revision = state.revision.max(revision);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl<T: Clone> Generations<T> {
    fn of(most: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            most,
        }
    }

    fn find(&mut self, digest: &Digest) -> Option<T> {
        if let Some(found) = self.young.get(digest) {
            return Some(found.clone());
        }
        let found = self.old.remove(digest)?;
        self.keep(*digest, found.clone());
        Some(found)
    }

    fn keep(&mut self, digest: Digest, value: T) {
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, value);
    }

    fn forget(&mut self, digest: &Digest) {
        self.young.remove(digest);
        self.old.remove(digest);
    }
}

impl Inner {
    /// Applies all changes since the last call.
    pub async fn catch_up(&self) -> Result<(), StorageError> {
        let _alone = self.taking_in.lock().await;
        loop {
            let (known, seen) = (self.cache.revision(), self.revision_of_store());
            let changed = self.store.keys_changed_after(known).await?;
            let Some(last) = changed.last() else {
                // A revision need not belong to a key: all changes up to the revision read before are applied.
                self.cache.take_in(&[], seen);
                return Ok(());
            };
            for key in &changed {
                self.note_roles(key.account, key.roles);
            }
            self.cache.take_in(&changed, last.revision);
        }
    }

    /// Updates the cached trust of an account.
    pub fn note_roles(&self, account: AccountId, roles: Roles) {
        let mut trusted = self.trusted.write();
        match roles.contains(Roles::TRUSTED) {
            true => trusted.insert(account),
            false => trusted.remove(&account),
        };
    }

    /// Applies all changes known so far. Concurrent calls share one query.
    pub async fn be_current(&self) -> Result<(), Denied> {
        if self.cache.revision() >= self.revision_of_store() {
            return Ok(());
        }
        let permit = self.asking.acquire().await;
        let _permit = permit.map_err(|_| Denied::Unavailable)?;
        if self.cache.revision() >= self.revision_of_store() {
            return Ok(());
        }
        self.catch_up().await.map_err(|_| Denied::Unavailable)
    }

    fn revision_of_store(&self) -> i64 {
        *self.store.keys_revision().borrow()
    }

    /// Refreshes the balances of recent callers.
    async fn refresh_standings(&self) -> Result<(), StorageError> {
        let callers = self.cache.lately();
        let accounts: BTreeSet<AccountId> = callers.iter().map(|caller| caller.account).collect();
        let accounts: Vec<AccountId> = accounts.into_iter().collect();
        self.cache.note_means(&self.store.means(&accounts).await?);
        Ok(())
    }
}

/// Follows the store's changes until all handles are dropped.
pub async fn follow(inner: Weak<Inner>, mut changes: watch::Receiver<i64>) {
    let mut refreshing = interval(REFRESH);
    refreshing.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let changed = tokio::select! {
            changed = changes.changed() => Some(changed),
            _ = refreshing.tick() => None,
        };
        let (Some(inner), None | Some(Ok(()))) = (inner.upgrade(), &changed) else {
            return;
        };
        match changed.is_some() {
            true => catch_up(&inner).await,
            false => match inner.refresh_standings().await {
                Ok(()) => {}
                Err(error) => debug!("refreshing account balances failed: {error}"),
            },
        }
    }
}

/// Retries until it succeeds, with one warning.
async fn catch_up(inner: &Inner) {
    let mut warned = false;
    while let Err(error) = inner.catch_up().await {
        if !warned {
            warn!("reading changed keys failed, retrying: {error}");
        }
        warned = true;
        sleep(TRY_AGAIN).await;
    }
}
