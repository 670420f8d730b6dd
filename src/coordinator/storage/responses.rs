//! Responses that clients may read again and go on from.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use muster_protocol::job::{AccountId, UnixMillis};

use super::rows::{Stored, all, first};
use super::write::Change;
use super::{StorageError, Store};

/// A stored response. All texts are JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRow {
    pub id: String,
    pub account: AccountId,
    /// The response that it goes on from.
    pub previous: Option<String>,
    pub response: String,
    /// Items of its own input.
    pub input: String,
    /// The request, while a background response has not ended.
    pub body: Option<String>,
    pub expires_at: UnixMillis,
}

#[derive(Debug)]
struct ResponseDeletion {
    id: String,
    account: AccountId,
}

#[derive(Debug)]
struct ExpiryDeletion(UnixMillis);

impl Store {
    /// Written anew if it is there.
    pub async fn save_response(&self, row: ResponseRow) -> Result<(), StorageError> {
        self.change(row).await
    }

    pub async fn response(
        &self,
        id: &str,
        account: AccountId,
    ) -> Result<Option<ResponseRow>, StorageError> {
        let query = sqlx::query("SELECT * FROM responses WHERE id = $1 AND account = $2");
        let query = query.bind(id.to_owned()).bind(account.0);
        first(query, &self.readers).await
    }

    /// Background responses that have not ended.
    pub async fn open_responses(&self) -> Result<Vec<ResponseRow>, StorageError> {
        let query = sqlx::query("SELECT * FROM responses WHERE body IS NOT NULL ORDER BY id");
        all(query, &self.readers).await
    }

    /// Whether it was there.
    pub async fn delete_response(
        &self,
        id: String,
        account: AccountId,
    ) -> Result<bool, StorageError> {
        self.change(ResponseDeletion { id, account }).await
    }

    /// Deletes those that have expired.
    pub async fn expire_responses(&self, now: UnixMillis) -> Result<(), StorageError> {
        self.change(ExpiryDeletion(now)).await
    }
}

impl Stored for ResponseRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            id: row.try_get("id")?,
            account: AccountId(row.try_get("account")?),
            previous: row.try_get("previous")?,
            response: row.try_get("response")?,
            input: row.try_get("input")?,
            body: row.try_get("body")?,
            expires_at: UnixMillis(row.try_get("expires_at")?),
        })
    }
}

impl Change for ResponseRow {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let query = sqlx::query(
                "INSERT INTO responses (id, account, previous, response, input, body, expires_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) \
                 ON CONFLICT (id) DO UPDATE SET response = excluded.response, body = excluded.body",
            );
            let query = query.bind(self.id.clone()).bind(self.account.0);
            let query = query.bind(self.previous.clone());
            let query = query.bind(self.response.clone()).bind(self.input.clone());
            let query = query.bind(self.body.clone()).bind(self.expires_at.0);
            query.execute(connection).await?;
            Ok(())
        })
    }
}

impl Change for ResponseDeletion {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let query = sqlx::query("DELETE FROM responses WHERE id = $1 AND account = $2");
            let query = query.bind(self.id.clone()).bind(self.account.0);
            Ok(query.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Change for ExpiryDeletion {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let query = sqlx::query("DELETE FROM responses WHERE expires_at <= $1");
            query.bind(self.0.0).execute(connection).await?;
            Ok(())
        })
    }
}
