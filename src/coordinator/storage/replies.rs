//! Replies to requests with an `Idempotency-Key`, for later processes. Replies are encrypted: the store cannot read
//! them.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use muster_protocol::job::{AccountId, UnixMillis};

use super::accounts::is_deleted;
use super::rows::{Stored, first};
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyRow {
    pub account: AccountId,
    /// The digest of the header.
    pub key: String,
    pub sealed: String,
    pub expires_at: UnixMillis,
}

#[derive(Debug)]
struct ReplyExpiry(UnixMillis);

impl Store {
    pub async fn save_reply(&self, row: ReplyRow) -> Result<(), StorageError> {
        self.change(row).await
    }

    /// `None` after its expiry.
    pub async fn reply(
        &self,
        account: AccountId,
        key: &str,
        now: UnixMillis,
    ) -> Result<Option<ReplyRow>, StorageError> {
        let query = sqlx::query(
            "SELECT * FROM replies WHERE account = $1 AND key = $2 AND expires_at > $3",
        );
        let query = query.bind(account.0).bind(key.to_owned()).bind(now.0);
        first(query, &self.readers).await
    }

    pub async fn expire_replies(&self, now: UnixMillis) -> Result<(), StorageError> {
        self.change(ReplyExpiry(now)).await
    }
}

impl Stored for ReplyRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            account: AccountId(row.try_get("account")?),
            key: row.try_get("key")?,
            sealed: row.try_get("sealed")?,
            expires_at: UnixMillis(row.try_get("expires_at")?),
        })
    }
}

impl Change for ReplyRow {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            if is_deleted(self.account, connection).await? {
                return Ok(());
            }
            let insert = sqlx::query(
                "INSERT INTO replies (account, key, sealed, expires_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (account, key) DO UPDATE SET sealed = excluded.sealed, expires_at = excluded.expires_at",
            );
            let insert = insert
                .bind(self.account.0)
                .bind(self.key.clone())
                .bind(self.sealed.clone())
                .bind(self.expires_at.0);
            insert.execute(connection).await?;
            Ok(())
        })
    }
}

impl Change for ReplyExpiry {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let delete = sqlx::query("DELETE FROM replies WHERE expires_at <= $1");
            delete.bind(self.0.0).execute(connection).await?;
            Ok(())
        })
    }
}
