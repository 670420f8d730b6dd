//! API keys; only their digests are stored.
//!
//! Every change of a key raises the counter `keys`, in the same transaction, which notifies other processes.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::values::{KeyId, Means, Roles, Scopes};
use muster_protocol::job::{AccountId, UnixMillis};

use super::revisions::{self, Topic};
use super::rows::{Stored, all, first};
use super::values::storable;
use super::write::Change;
use super::{StorageError, Store};

/// A key with its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub id: KeyId,
    /// Public name of the key; not a secret.
    pub public_id: String,
    pub digest: String,
    pub label: String,
    pub scopes: Scopes,
    pub worker_name: Option<String>,
    /// Will be bound to the first worker that connects with it.
    pub joins: bool,
    pub created_at: UnixMillis,
    pub expires_at: Option<UnixMillis>,
    pub revoked_at: Option<UnixMillis>,
    pub revision: i64,
    pub account: AccountId,
    pub account_login: Option<String>,
    pub account_name: String,
    pub roles: Roles,
    pub means: Means,
    /// Overrides the configured limit of waiting jobs.
    pub concurrency: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct NewKeyRow {
    pub account: AccountId,
    pub public_id: String,
    pub digest: String,
    pub label: String,
    pub scopes: Scopes,
    pub worker_name: Option<String>,
    pub joins: bool,
    pub created_at: UnixMillis,
    pub expires_at: Option<UnixMillis>,
    /// `None` is unlimited.
    pub limit: Option<KeyLimit>,
}

/// Limits on an account's keys, the new one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimit {
    /// Keys that are neither revoked nor expired.
    pub valid: i64,
    pub rows: i64,
}

/// Binds the key of a join token to a worker, without expiry.
#[derive(Debug)]
struct KeyBinding {
    key: KeyId,
    worker_name: String,
}

#[derive(Debug)]
struct Revocation {
    public_id: String,
    now: UnixMillis,
}

/// Selects the columns of a [`KeyRow`], followed by `$rest`.
macro_rules! select_keys {
    ($rest:literal) => {
        concat!(
            "SELECT keys.id, public_id, digest, label, scopes, worker_name, joins, keys.created_at, \
             expires_at, revoked_at, revision, keys.account, accounts.login AS account_login, accounts.name, accounts.roles, \
             COALESCE(kudos, 0) AS kudos, \
             COALESCE(kudos - held - COALESCE(floor, 0), 0) AS spare, concurrency \
             FROM keys JOIN accounts ON accounts.id = keys.account \
             LEFT JOIN people ON people.account = keys.account \
             LEFT JOIN balances ON balances.account = keys.account ",
            $rest
        )
    };
}

/// Rows per query.
const PAGE: i64 = 500;

impl Store {
    /// `None` at the limit of keys.
    pub async fn create_key(&self, key: NewKeyRow) -> Result<Option<KeyId>, StorageError> {
        self.change(key).await
    }

    /// Binds the key of a join token to a worker. False if the key is bound already, or revoked.
    pub async fn bind_key(&self, key: KeyId, worker_name: &str) -> Result<bool, StorageError> {
        let worker_name = storable(worker_name);
        self.change(KeyBinding { key, worker_name }).await
    }

    /// True if the key existed and was not revoked.
    pub async fn revoke_key(&self, public_id: &str, now: UnixMillis) -> Result<bool, StorageError> {
        let public_id = storable(public_id);
        self.change(Revocation { public_id, now }).await
    }

    pub async fn key_with_digest(&self, digest: &str) -> Result<Option<KeyRow>, StorageError> {
        let row = sqlx::query(select_keys!("WHERE digest = $1"));
        first(row.bind(digest), &self.readers).await
    }

    /// All keys, the oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRow>, StorageError> {
        all(sqlx::query(select_keys!("ORDER BY keys.id")), &self.readers).await
    }

    /// All keys of an account, the oldest first.
    pub async fn keys_of(&self, account: AccountId) -> Result<Vec<KeyRow>, StorageError> {
        let rows = sqlx::query(select_keys!("WHERE keys.account = $1 ORDER BY keys.id"));
        all(rows.bind(account.0), &self.readers).await
    }

    /// The next page of keys changed after this revision, in the order of the changes.
    pub async fn keys_changed_after(&self, revision: i64) -> Result<Vec<KeyRow>, StorageError> {
        let rows = sqlx::query(select_keys!(
            "WHERE revision > $1 ORDER BY revision LIMIT $2"
        ));
        all(rows.bind(revision).bind(PAGE), &self.readers).await
    }
}

impl Change for NewKeyRow {
    type Answer = Option<KeyId>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Option<KeyId>, StorageError>> {
        Box::pin(async move {
            // Locks the counter, so keys are created one after the other.
            let revision = revisions::next(Topic::Keys, connection).await?;
            if self.is_beyond_limit(connection).await? {
                return Ok(None);
            }
            let row = sqlx::query(
                "INSERT INTO keys (public_id, account, digest, label, scopes, worker_name, \
                 created_at, expires_at, revision, joins) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                 RETURNING id",
            );
            let row = row
                .bind(&*self.public_id)
                .bind(self.account.0)
                .bind(&*self.digest)
                .bind(storable(&self.label))
                .bind(self.scopes.to_string())
                .bind(self.worker_name.as_deref().map(storable))
                .bind(self.created_at.0)
                .bind(self.expires_at.map(|at| at.0))
                .bind(revision)
                .bind(i64::from(self.joins));
            Ok(Some(KeyId(row.fetch_one(connection).await?.try_get(0)?)))
        })
    }
}

impl NewKeyRow {
    async fn is_beyond_limit(&self, connection: &mut AnyConnection) -> Result<bool, StorageError> {
        let Some(limit) = self.limit else {
            return Ok(false);
        };
        let counts = sqlx::query(
            "SELECT COUNT(*), COUNT(CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) \
             THEN 1 END) FROM keys WHERE account = $2",
        );
        let counts = counts.bind(self.created_at.0).bind(self.account.0);
        let counts = counts.fetch_one(connection).await?;
        let (rows, valid): (i64, i64) = (counts.try_get(0)?, counts.try_get(1)?);
        Ok(valid >= limit.valid || rows >= limit.rows)
    }
}

impl Change for KeyBinding {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let revision = revisions::next(Topic::Keys, connection).await?;
            let done = sqlx::query(
                "UPDATE keys SET worker_name = $1, expires_at = NULL, joins = 0, revision = $2 \
                 WHERE id = $3 AND joins = 1 AND revoked_at IS NULL AND (worker_name IS NULL OR worker_name = $1)",
            );
            let done = done
                .bind(&*self.worker_name)
                .bind(revision)
                .bind(self.key.0);
            Ok(done.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Change for Revocation {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let revision = revisions::next(Topic::Keys, connection).await?;
            let done = sqlx::query(
                "UPDATE keys SET revoked_at = $1, revision = $2 \
                 WHERE public_id = $3 AND revoked_at IS NULL",
            );
            let done = done.bind(self.now.0).bind(revision).bind(&*self.public_id);
            Ok(done.execute(connection).await?.rows_affected() > 0)
        })
    }
}

/// Revokes all keys of an account.
pub async fn revoke_all(
    account: AccountId,
    now: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    touch_keys(account, connection).await?;
    let done =
        sqlx::query("UPDATE keys SET revoked_at = $1 WHERE account = $2 AND revoked_at IS NULL");
    let done = done.bind(now.0).bind(account.0);
    done.execute(connection).await?;
    Ok(())
}

/// Gives all keys of a changed account a new revision each.
pub async fn touch_keys(
    account: AccountId,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let ids = sqlx::query("SELECT id FROM keys WHERE account = $1 AND revoked_at IS NULL");
    let ids = ids.bind(account.0).fetch_all(&mut *connection).await?;
    for row in ids {
        let revision = revisions::next(Topic::Keys, connection).await?;
        let key = sqlx::query("UPDATE keys SET revision = $1 WHERE id = $2");
        let key = key.bind(revision).bind(row.try_get::<i64, _>(0)?);
        key.execute(&mut *connection).await?;
    }
    Ok(())
}

impl Stored for KeyRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let moment =
            |name| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(name)?.map(UnixMillis));
        Ok(Self {
            id: KeyId(row.try_get("id")?),
            public_id: row.try_get("public_id")?,
            digest: row.try_get("digest")?,
            label: row.try_get("label")?,
            scopes: Scopes::parse(row.try_get("scopes")?),
            worker_name: row.try_get("worker_name")?,
            joins: row.try_get::<i64, _>("joins")? != 0,
            created_at: UnixMillis(row.try_get("created_at")?),
            expires_at: moment("expires_at")?,
            revoked_at: moment("revoked_at")?,
            revision: row.try_get("revision")?,
            account: AccountId(row.try_get("account")?),
            account_login: row.try_get("account_login")?,
            account_name: row.try_get("name")?,
            roles: Roles::parse(row.try_get("roles")?),
            means: Means::load(row)?,
            concurrency: row.try_get("concurrency")?,
        })
    }
}
