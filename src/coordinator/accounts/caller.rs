//! Authenticated callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::dispatch::{Priority, Standing};
use crate::storage::{AccountRow, KeyRow, StorageError, Store};
use crate::values::key::Digest;
use crate::values::{KeyId, Rank, Roles, Scopes, SharedKey};
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

use super::means::KnownMeans;

/// The public anonymous key and its account.
pub const ANONYMOUS_KEY: &str = "0000000000";
pub const ANONYMOUS: AccountId = AccountId::ANONYMOUS;

/// Limit of waiting jobs of all callers without an own key together.
const ALL_ANONYMOUS: usize = 500;

/// Why an account cannot have workers, with any key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoOwner {
    Deleted,
    Suspended,
    Flagged,
}

/// A caller with a valid key.
#[derive(Debug)]
pub struct Caller {
    pub account: AccountId,
    pub name: Arc<str>,
    /// Operators' name of the account.
    pub login: Option<Arc<str>>,
    pub key: KeyId,
    pub scopes: Scopes,
    pub roles: Roles,
    /// The only worker name that may use the key.
    pub worker_name: Option<Arc<str>>,
    /// Will be bound to the first worker that connects with it.
    pub joins: bool,
    pub expires_at: Option<UnixMillis>,
    /// Overrides the configured limit of waiting jobs of polled requests.
    pub concurrency: Option<usize>,
    /// The shared key, if the request came with one.
    pub shared: Option<Arc<SharedKey>>,
    /// The account's balance, shared with its other callers.
    means: Arc<KnownMeans>,
    /// Active since the last check.
    came: AtomicBool,
    pub(super) digest: Digest,
}

impl Caller {
    pub(super) fn of(row: KeyRow, digest: Digest, means: Arc<KnownMeans>) -> Self {
        Self {
            account: row.account,
            name: row.account_name.into(),
            login: row.account_login.map(Into::into),
            key: row.id,
            scopes: row.scopes,
            roles: row.roles,
            worker_name: row.worker_name.map(Into::into),
            joins: row.joins,
            expires_at: row.expires_at,
            concurrency: row.concurrency.map(jobs),
            shared: None,
            means,
            came: AtomicBool::new(false),
            digest,
        }
    }

    /// A caller with the anonymous key. The anonymous account earns nothing and has the lowest priority.
    pub fn anonymous() -> Self {
        Self {
            account: ANONYMOUS,
            name: Arc::from("anonymous"),
            login: None,
            key: KeyId(0),
            scopes: Scopes::INFERENCE_SUBMIT.with(Scopes::WORKER_CONNECT),
            roles: Roles::default(),
            worker_name: None,
            joins: false,
            expires_at: None,
            concurrency: Some(ALL_ANONYMOUS),
            shared: None,
            means: Arc::default(),
            came: AtomicBool::new(false),
            digest: Digest::NONE,
        }
    }

    /// A caller with a shared key: acts as the key's owner, with permission to submit requests only.
    pub fn with_shared(key: SharedKey, owner: AccountRow) -> Self {
        Self {
            account: owner.id,
            name: owner.name.into(),
            login: owner.login.map(Into::into),
            // The same id for all shared keys of an owner, and different from every key's.
            key: KeyId(owner.id.0.saturating_neg()),
            roles: owner.roles,
            concurrency: owner.concurrency.map(jobs),
            means: Arc::new(KnownMeans::at(owner.means)),
            shared: Some(Arc::new(key)),
            ..Self::anonymous()
        }
    }

    /// The owner of a request accepted by an earlier process, whose key is unknown now.
    pub fn returning(owner: AccountRow) -> Self {
        Self {
            account: owner.id,
            login: owner.login.map(Into::into),
            name: owner.name.into(),
            scopes: Scopes::INFERENCE_SUBMIT,
            roles: owner.roles,
            concurrency: owner.concurrency.map(jobs),
            means: Arc::new(KnownMeans::at(owner.means)),
            ..Self::anonymous()
        }
    }

    /// The account's standing in the queue.
    pub fn standing(&self) -> Standing {
        let kudos = self.means.look().kudos;
        match self.roles.contains(Roles::FLAGGED) {
            // Flagged accounts get low priority, whatever their kudos.
            true => Standing {
                kudos: Kudos(kudos.0 / 1000),
                priority: Priority::Low,
                ..Standing::default()
            },
            false => Standing {
                kudos,
                ..Standing::default()
            },
        }
    }

    pub(super) fn note_coming(&self) {
        self.came.store(true, Ordering::Relaxed);
    }

    pub(super) fn came_lately(&self) -> bool {
        self.came.swap(false, Ordering::Relaxed)
    }

    /// Balance above the floor, less holds.
    pub fn spare(&self) -> Kudos {
        self.means.look().spare
    }

    /// Whether the key has all these scopes.
    pub fn may(&self, scopes: Scopes) -> bool {
        self.scopes.contains(scopes)
    }

    /// Whether the account has all of these roles. Administrators may do everything that moderators may.
    pub fn has(&self, roles: Roles) -> bool {
        self.roles.contains(roles) || roles == Roles::MODERATOR && self.roles.contains(Roles::ADMIN)
    }

    /// Whether the account may manage an account of these roles. Administrators may manage each other.
    pub fn outranks(&self, others: Roles) -> bool {
        let rank = self.roles.rank();
        rank == Rank::Admin || rank > others.rank()
    }

    /// Whether the account may manage the owner's data: it is its own, or of an account of lower rank.
    pub async fn may_manage(&self, owner: AccountId, store: &Store) -> Result<bool, StorageError> {
        if self.account == ANONYMOUS {
            return Ok(false);
        }
        if self.account == owner {
            return Ok(true);
        }
        if !self.roles.moderates() {
            return Ok(false);
        }
        let owner = store.account(owner).await?;
        Ok(self.outranks(owner.map_or(Roles::NONE, |owner| owner.roles)))
    }

    /// Whether the account may have workers, on sockets or polling.
    pub fn may_own(&self) -> Result<(), NoOwner> {
        match self.roles {
            roles if roles.contains(Roles::DELETED) => Err(NoOwner::Deleted),
            roles if roles.contains(Roles::SUSPENDED) => Err(NoOwner::Suspended),
            roles if roles.contains(Roles::FLAGGED) => Err(NoOwner::Flagged),
            _ => Ok(()),
        }
    }

    /// Whether the caller may read the account's private data. A worker's key may not, nor one that only submits
    /// requests.
    pub fn sees_own(&self) -> bool {
        self.may(Scopes::ACCOUNT_READ) && self.worker_name.is_none()
    }

    /// Whether the caller may read moderators' data.
    pub fn sees_all(&self) -> bool {
        self.sees_own() && self.roles.moderates()
    }

    /// Whether a worker of this name may use the key.
    pub fn is_for_worker(&self, name: &str) -> bool {
        let bound = self.worker_name.as_deref();
        bound.is_none_or(|bound| bound == name)
    }

    pub(super) fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

fn jobs(stored: i64) -> usize {
    usize::try_from(stored).unwrap_or(0)
}
