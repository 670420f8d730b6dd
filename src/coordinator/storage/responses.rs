//! Stored responses, which clients may read and continue. Texts are large, so queries that need none load none.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use muster_protocol::job::{AccountId, RequestId, UnixMillis};

use super::accounts::is_deleted;
use super::rows::{Stored, all, first};
use super::write::Change;
use super::{StorageError, Store};
use crate::kudos::State;

/// A stored response. All texts are JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRow {
    pub id: String,
    pub account: AccountId,
    /// The response that this one continues.
    pub previous: Option<String>,
    pub response: String,
    /// Items of its own input, without those of earlier responses.
    pub input: String,
    /// The request, until a background response ends.
    pub body: Option<String>,
    /// The requested model of a background response.
    pub model: Option<String>,
    pub created_at: UnixMillis,
    pub expires_at: UnixMillis,
}

#[derive(Debug)]
struct OwnedResponse {
    row: ResponseRow,
    owner: i64,
}

/// A stored response without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    pub previous: Option<String>,
    /// Bytes of its texts.
    pub bytes: usize,
}

/// An unfinished background response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenResponse {
    pub id: String,
    pub account: AccountId,
    pub model: Option<String>,
}

/// Responses stored by an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseUsage {
    pub responses: usize,
    pub bytes: usize,
}

/// The end of a stored background response.
#[derive(Debug)]
struct ResponseEnd {
    id: String,
    account: AccountId,
    response: String,
}

/// Changes the number of starts of a background response.
#[derive(Debug)]
struct ResponseBeginning {
    id: String,
    times: i64,
}

#[derive(Debug)]
struct ResponseDeletion {
    id: String,
    account: AccountId,
}

#[derive(Debug)]
struct ExpiryDeletion(UnixMillis);

impl Store {
    /// Inserts or replaces a response. A background response counts as started once.
    pub async fn save_response(&self, row: ResponseRow) -> Result<(), StorageError> {
        let owner = self.owner();
        self.change(OwnedResponse { row, owner }).await
    }

    /// Ends a background response. False if it has ended before.
    pub async fn end_response(
        &self,
        id: String,
        account: AccountId,
        response: String,
    ) -> Result<bool, StorageError> {
        let end = ResponseEnd {
            id,
            account,
            response,
        };
        self.change(end).await
    }

    /// Counts another start of an open response. Call before queueing its jobs.
    pub async fn begin_response(&self, id: String) -> Result<(), StorageError> {
        self.change(ResponseBeginning { id, times: 1 }).await
    }

    /// Undoes [`Self::begin_response`] if the jobs were not queued.
    pub async fn take_back_beginning(&self, id: String) -> Result<(), StorageError> {
        self.change(ResponseBeginning { id, times: -1 }).await
    }

    /// Number of starts of an open response; `None` if it has ended or does not exist.
    pub async fn beginnings(
        &self,
        id: &str,
        account: AccountId,
    ) -> Result<Option<i64>, StorageError> {
        let query = sqlx::query(
            "SELECT begun FROM responses WHERE id = $1 AND account = $2 AND body IS NOT NULL",
        );
        let query = query.bind(id.to_owned()).bind(account.0);
        let row = query.fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Whether a job of this request was settled as delivered, and so charged.
    pub async fn is_delivered(
        &self,
        request: RequestId,
        account: AccountId,
        since: UnixMillis,
    ) -> Result<bool, StorageError> {
        let query = sqlx::query(
            "SELECT COUNT(*) FROM settled \
             WHERE account = $1 AND accepted_at >= $2 AND request = $3 AND state = $4",
        );
        let query = query.bind(account.0).bind(since.0);
        let query = query
            .bind(request.to_string())
            .bind(State::Delivered.word());
        let count: i64 = query.fetch_one(&self.readers).await?.try_get(0)?;
        Ok(count > 0)
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

    pub async fn response_head(
        &self,
        id: &str,
        account: AccountId,
    ) -> Result<Option<ResponseHead>, StorageError> {
        let query =
            sqlx::query("SELECT previous, bytes FROM responses WHERE account = $1 AND id = $2");
        let query = query.bind(account.0).bind(id.to_owned());
        first(query, &self.readers).await
    }

    /// Unfinished background responses of this coordinator.
    pub async fn open_responses(&self) -> Result<Vec<OpenResponse>, StorageError> {
        let query = sqlx::query(
            "SELECT id, account, model FROM responses \
             WHERE body IS NOT NULL AND ($1 = 0 OR owner = $1) ORDER BY id",
        );
        all(query.bind(self.owner()), &self.readers).await
    }

    pub async fn response_usage(&self, account: AccountId) -> Result<ResponseUsage, StorageError> {
        let query = sqlx::query(
            "SELECT COUNT(*) AS responses, COALESCE(CAST(SUM(bytes) AS BIGINT), 0) AS bytes \
             FROM responses WHERE account = $1",
        );
        let usage = first(query.bind(account.0), &self.readers).await?;
        Ok(usage.unwrap_or_default())
    }

    /// Whether it existed.
    pub async fn delete_response(
        &self,
        id: String,
        account: AccountId,
    ) -> Result<bool, StorageError> {
        self.change(ResponseDeletion { id, account }).await
    }

    /// Deletes expired responses.
    pub async fn expire_responses(&self, now: UnixMillis) -> Result<(), StorageError> {
        self.change(ExpiryDeletion(now)).await
    }
}

impl ResponseRow {
    fn bytes(&self) -> usize {
        let body = self.body.as_ref().map_or(0, String::len);
        self.response.len() + self.input.len() + body
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
            model: row.try_get("model")?,
            created_at: UnixMillis(row.try_get("created_at")?),
            expires_at: UnixMillis(row.try_get("expires_at")?),
        })
    }
}

impl Stored for ResponseHead {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            previous: row.try_get("previous")?,
            bytes: size(row.try_get("bytes")?),
        })
    }
}

impl Stored for OpenResponse {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            id: row.try_get("id")?,
            account: AccountId(row.try_get("account")?),
            model: row.try_get("model")?,
        })
    }
}

impl Stored for ResponseUsage {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            responses: size(row.try_get("responses")?),
            bytes: size(row.try_get("bytes")?),
        })
    }
}

impl Change for OwnedResponse {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            if is_deleted(self.row.account, connection).await? {
                return Ok(());
            }
            let query = sqlx::query(
                "INSERT INTO responses \
                 (id, account, previous, response, input, body, model, begun, bytes, created_at, expires_at, owner) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
                 ON CONFLICT (id) DO UPDATE \
                 SET response = excluded.response, body = excluded.body, bytes = excluded.bytes",
            );
            let row = &self.row;
            let query = query.bind(row.id.clone()).bind(row.account.0);
            let query = query.bind(row.previous.clone());
            let query = query.bind(row.response.clone()).bind(row.input.clone());
            let query = query.bind(row.body.clone()).bind(row.model.clone());
            let query = query.bind(i64::from(row.body.is_some()));
            let query = query.bind(row.bytes() as i64);
            let query = query.bind(row.created_at.0).bind(row.expires_at.0);
            let query = query.bind(self.owner);
            query.execute(connection).await?;
            Ok(())
        })
    }
}

impl Change for ResponseEnd {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let query = sqlx::query(
                "UPDATE responses SET response = $1, body = NULL, bytes = LENGTH(input) + $2 \
                 WHERE id = $3 AND account = $4 AND body IS NOT NULL",
            );
            let query = query.bind(self.response.clone());
            let query = query.bind(self.response.len() as i64);
            let query = query.bind(self.id.clone()).bind(self.account.0);
            Ok(query.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Change for ResponseBeginning {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let query = sqlx::query(
                "UPDATE responses SET begun = begun + $1 WHERE id = $2 AND body IS NOT NULL",
            );
            let query = query.bind(self.times).bind(self.id.clone());
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

fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
