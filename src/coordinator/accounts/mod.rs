//! Accounts and keys: authentication and permissions.
//!
//! | file | contents |
//! | --- | --- |
//! | `lookup` | accounts by their operators' names |
//! | `server_secret` | the secret of this server |
//! | `thoughts` | thoughts of models that clients keep, signed or sealed |
//! | `caller` | authenticated callers |
//! | `means` | balances of cached callers |
//! | `payer` | the account that pays for a request |
//! | `cache` | cached callers, so that no request needs a query |
//!
//! A key is 22 random characters, shown once. Only its HMAC-SHA-256 is stored. The secret of that HMAC lives outside
//! the store, and every process that shares the store has to have the same one. Shared keys and passkeys, which their
//! owners can read again, are encrypted under a key derived from it: a stolen database contains no usable key.

mod cache;
mod caller;
mod lookup;
mod means;
mod payer;
mod server_secret;
mod thoughts;

#[cfg(test)]
mod tests;

pub use caller::{ANONYMOUS, ANONYMOUS_KEY, Caller, NoOwner};
pub use lookup::{Lookup, NoAdministrator, listed};
pub use payer::Payer;
pub use server_secret::{OpenError, SecretError, SecretSource, cluster_secret};
pub use thoughts::Thoughts;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use tracing::debug;

use muster_process::tasks::Tasks;
use muster_protocol::job::AccountId;

use super::clock::wall_clock;
use super::storage::{AccountRow, KeyLimit, KeyRow, NewKeyRow, RoleChange, StorageError, Store};
use super::values::key::{self, Digest, Hasher};
use super::values::{KeyId, KeyText, Roles, Scopes, Seal};

use cache::{Cache, Found};

/// Authentication. Clones share the cache.
#[derive(Debug, Clone)]
pub struct Accounts {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    hasher: Hasher,
    seal: Seal,
    cache: Cache,
    /// Accounts whose rewards are paid in full; read for every ended job.
    trusted: RwLock<HashSet<AccountId>>,
    /// Limits concurrent lookups in the store, which wrong keys cause, too.
    asking: tokio::sync::Semaphore,
    /// Held while changes are read and applied, so that an older reading never overwrites a newer one.
    taking_in: tokio::sync::Mutex<()>,
    /// The key of local programs, where the coordinator serves its own user.
    own_key: OnceLock<KeyText>,
}

/// A new key, with its text, which is not stored.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub id: KeyId,
    pub public_id: String,
    pub account: AccountId,
    pub text: KeyText,
}

/// Properties of a new key.
#[derive(Debug, Clone, Default)]
pub struct KeyOrder {
    pub label: String,
    pub scopes: Scopes,
    /// The only worker name that may use the key.
    pub worker_name: Option<String>,
    pub lifetime: Option<Duration>,
    /// A join token: bound to the first worker that connects with it, and without expiry from then on.
    pub joins: bool,
}

/// The reason of a failed authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("the key is unknown, revoked or expired")]
    UnknownKey,
    #[error("checking the key failed: the database is unavailable")]
    Unavailable,
}

const ASKING: usize = 4;

impl Accounts {
    pub async fn open(
        store: Store,
        secret: &SecretSource,
        tasks: &Tasks,
    ) -> Result<Self, OpenError> {
        let hasher = server_secret::open(secret, &store).await?;
        let revision = *store.keys_revision().borrow();
        let inner = Arc::new(Inner {
            seal: Seal::new(&hasher),
            hasher,
            cache: Cache::new(revision),
            trusted: RwLock::new(store.accounts_with(Roles::TRUSTED).await?),
            asking: tokio::sync::Semaphore::new(ASKING),
            taking_in: tokio::sync::Mutex::default(),
            own_key: OnceLock::new(),
            store,
        });
        let watching = Arc::downgrade(&inner);
        let changes = inner.store.keys_revision();
        let stopping = tasks.stopping();
        tasks.start(async move {
            stopping
                .run_until_cancelled(cache::follow(watching, changes))
                .await
        });
        Ok(Self { inner })
    }

    /// A key with every scope for the administrator, for example after losing the others.
    pub async fn admin_key(&self, label: &str) -> Result<NewKey, NoAdministrator> {
        let account = self.administrator_or_new().await?;
        let order = KeyOrder {
            label: label.to_owned(),
            scopes: Scopes::ALL,
            ..KeyOrder::default()
        };
        Ok(self.create_key(account, order).await?)
    }

    /// The caller with this key. Cached, except at first and after a change.
    pub async fn authenticate(&self, key: &str) -> Result<Arc<Caller>, Denied> {
        if !KeyText::is_well_formed(key) {
            return Err(Denied::UnknownKey);
        }
        self.caller(self.inner.hasher.digest(key)).await
    }

    /// Uses this key for local programs that send none. The first call decides.
    pub fn serve_own_user(&self, key: &str) {
        if let Some(key) = KeyText::of(key) {
            let _ = self.inner.own_key.set(key);
        }
    }

    pub fn own_key(&self) -> Option<&str> {
        self.inner.own_key.get().map(KeyText::expose)
    }

    /// Encrypts secrets that their owners can read again.
    pub fn seal(&self) -> &Seal {
        &self.inner.seal
    }

    /// A secret for another purpose than keys, the same in every process that shares the store.
    pub fn derived_secret(&self, purpose: &str) -> [u8; 32] {
        // A purpose has spaces, so it is never a key.
        self.inner.hasher.digest(purpose).bytes()
    }

    /// Authenticates a caller again, for long connections. A call after a change notification sees that change.
    pub async fn recheck(&self, caller: &Caller) -> Result<Arc<Caller>, Denied> {
        self.inner.be_current().await?;
        self.caller(caller.digest).await
    }

    async fn caller(&self, digest: Digest) -> Result<Arc<Caller>, Denied> {
        let found = match self.inner.cache.find(&digest) {
            Some(found) => found,
            None => self.ask(digest).await?,
        };
        let caller = found.ok_or(Denied::UnknownKey)?;
        match caller.is_expired(wall_clock()) {
            true => Err(Denied::UnknownKey),
            false => Ok(caller),
        }
    }

    async fn ask(&self, digest: Digest) -> Result<Found, Denied> {
        let inner = &*self.inner;
        if !inner.store.is_reachable() {
            return Err(Denied::Unavailable);
        }
        let _permit = inner
            .asking
            .acquire()
            .await
            .map_err(|_| Denied::Unavailable)?;
        // Another task may have looked it up while this one waited.
        if let Some(found) = inner.cache.find(&digest) {
            return Ok(found);
        }
        let asked_at = inner.cache.revision();
        let row = inner.store.key_with_digest(&digest.to_string()).await;
        let row = row.map_err(|error| {
            debug!("looking up a key failed: {error}");
            Denied::Unavailable
        })?;
        let found = row.filter(|row| row.revoked_at.is_none());
        let found = found.map(|row| {
            let means = inner.cache.means_of(row.account, row.means);
            Arc::new(Caller::of(row, digest, means))
        });
        inner.cache.keep(digest, found.clone(), asked_at);
        Ok(found)
    }

    /// A new account with this display name and a default login.
    pub async fn create_account(
        &self,
        name: &str,
        roles: Roles,
    ) -> Result<AccountId, StorageError> {
        let made = self.inner.store.create_account(name, roles, wall_clock());
        let account = made.await?;
        self.inner.note_roles(account, roles);
        Ok(account)
    }

    /// Every user account, the oldest first.
    pub async fn list(&self) -> Result<Vec<AccountRow>, StorageError> {
        self.inner.store.accounts().await
    }

    /// From the cache.
    pub fn is_trusted(&self, account: AccountId) -> bool {
        self.inner.trusted.read().contains(&account)
    }

    /// Refreshes cached callers after a change in the store.
    pub async fn catch_up(&self) -> Result<(), StorageError> {
        self.inner.catch_up().await
    }

    /// Refreshes the balances of these accounts after a change here. If that fails, the next refresh updates them.
    pub async fn refresh(&self, accounts: &[AccountId]) {
        match self.inner.store.means(accounts).await {
            Ok(means) => self.inner.cache.note_means(&means),
            Err(error) => debug!("refreshing account balances failed: {error}"),
        }
    }

    /// Replaces an account's roles.
    pub async fn set_roles(
        &self,
        account: AccountId,
        roles: Roles,
    ) -> Result<RoleChange, StorageError> {
        let change = self.inner.store.set_roles(account, roles).await?;
        if change == RoleChange::Done {
            // An account without keys is not found by the changed keys.
            self.inner.note_roles(account, roles);
        }
        self.inner.catch_up().await?;
        Ok(change)
    }

    /// Creates a key and caches its caller at once.
    pub async fn create_key(
        &self,
        account: AccountId,
        order: KeyOrder,
    ) -> Result<NewKey, StorageError> {
        let made = self.create_key_within(account, order, None).await?;
        made.ok_or_else(|| StorageError::Broken("a key without a limit was refused".to_owned()))
    }

    /// `None` at the limit of keys.
    pub async fn create_key_within(
        &self,
        account: AccountId,
        order: KeyOrder,
        limit: Option<KeyLimit>,
    ) -> Result<Option<NewKey>, StorageError> {
        let (text, now) = (KeyText::random(), wall_clock());
        let digest = self.inner.hasher.digest(text.expose());
        let row = NewKeyRow {
            account,
            public_id: key::random_public_id(),
            digest: digest.to_string(),
            label: order.label,
            scopes: order.scopes,
            worker_name: order.worker_name,
            joins: order.joins,
            created_at: now,
            expires_at: order.lifetime.map(|lifetime| now.after(lifetime)),
            limit,
        };
        let public_id = row.public_id.clone();
        let Some(id) = self.inner.store.create_key(row).await? else {
            return Ok(None);
        };
        // The key may be cached as wrong.
        self.inner.cache.forget(&digest);
        // The key exists even if this fails; the task that follows changes retries.
        if let Err(error) = self.inner.catch_up().await {
            debug!("loading a new key failed, retrying later: {error}");
        }
        Ok(Some(NewKey {
            id,
            public_id,
            account,
            text,
        }))
    }

    /// Binds the key of a join token to a worker. False if it is bound already.
    pub async fn bind_key(&self, key: KeyId, worker_name: &str) -> Result<bool, StorageError> {
        let is_bound = self.inner.store.bind_key(key, worker_name).await?;
        self.inner.catch_up().await?;
        Ok(is_bound)
    }

    pub async fn list_keys(&self) -> Result<Vec<KeyRow>, StorageError> {
        self.inner.store.keys().await
    }

    /// The keys of an account, the oldest first.
    pub async fn keys_of(&self, account: AccountId) -> Result<Vec<KeyRow>, StorageError> {
        self.inner.store.keys_of(account).await
    }

    /// Whether any unexpired, unrevoked key exists.
    pub async fn has_good_key(&self) -> Result<bool, StorageError> {
        let now = wall_clock();
        let is_good = |key: &KeyRow| {
            key.revoked_at.is_none() && key.expires_at.is_none_or(|expiry| expiry > now)
        };
        Ok(self.list_keys().await?.iter().any(is_good))
    }

    /// Revokes a key. False if it does not exist.
    pub async fn revoke_key(&self, public_id: &str) -> Result<bool, StorageError> {
        let revoked = self.inner.store.revoke_key(public_id, wall_clock()).await?;
        self.inner.catch_up().await?;
        Ok(revoked)
    }
}
