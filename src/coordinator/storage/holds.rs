//! Kudos that are kept for requests that are paid for before they are made. What is held is still its owner's, but
//! nobody can give it away, or have it held once more.

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;
use sqlx::{Executor, Row};

use crate::protocol::job::{AccountId, Kudos, RequestId, UnixMillis};

use super::rows::{Stored, all};
use super::write::Change;
use super::{StorageError, Store};

/// Kudos to be kept for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub request: RequestId,
    pub account: AccountId,
    pub amount: Kudos,
    pub at: UnixMillis,
}

#[derive(Debug)]
struct Release(RequestId);

/// Of holds that were made before this moment, those whose request is nowhere.
#[derive(Debug)]
struct ReleaseLost(UnixMillis);

/// What was let go.
struct Released(AccountId, Kudos);

impl Store {
    /// Whether there was enough, above the floor and beside what is held already.
    pub async fn hold(&self, hold: Hold) -> Result<bool, StorageError> {
        self.change(hold).await
    }

    /// What was kept for a request, if anything was, is its owner's to give again.
    pub async fn release(&self, request: RequestId) -> Result<(), StorageError> {
        self.change(Release(request)).await
    }

    /// Releases what was kept for requests that are no longer, or never came to be: how many.
    pub async fn release_lost(&self, before: UnixMillis) -> Result<usize, StorageError> {
        self.change(ReleaseLost(before)).await
    }

    /// The requests that something is kept for.
    pub async fn holding(&self) -> Result<Vec<RequestId>, StorageError> {
        let rows = sqlx::query("SELECT request FROM holds").fetch_all(&self.readers);
        let rows = rows.await?;
        let id = |row: &AnyRow| {
            let text: String = row.try_get(0)?;
            text.parse()
                .map(RequestId)
                .map_err(|_| StorageError::Broken(format!("a hold is for the request {text:?}")))
        };
        rows.iter().map(id).collect()
    }

    /// What is kept of an account.
    pub async fn held(&self, account: AccountId) -> Result<Kudos, StorageError> {
        let row = sqlx::query("SELECT held FROM balances WHERE account = $1").bind(account.0);
        let row = row.fetch_optional(&self.readers).await?;
        Ok(Kudos(row.map_or(Ok(0), |row| row.try_get(0))?))
    }
}

impl Change for Hold {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let kept = sqlx::query(
                "UPDATE balances SET held = held + $1 WHERE account = $2 AND kudos - held - $1 >= COALESCE(floor, 0)",
            );
            let kept = kept.bind(self.amount.0).bind(self.account.0);
            if kept.execute(&mut *connection).await?.rows_affected() == 0 {
                return Ok(false);
            }
            let row = sqlx::query(
                "INSERT INTO holds (request, account, amount, at) VALUES ($1, $2, $3, $4)",
            );
            let row = row
                .bind(self.request.to_string())
                .bind(self.account.0)
                .bind(self.amount.0)
                .bind(self.at.0);
            row.execute(connection).await?;
            Ok(true)
        })
    }
}

impl Change for Release {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let gone = "DELETE FROM holds WHERE request = $1 RETURNING account, amount";
            let gone = sqlx::query(gone).bind(self.0.to_string());
            let gone = all(gone, &mut *connection).await?;
            give_back(&gone, connection).await
        })
    }
}

impl Change for ReleaseLost {
    type Answer = usize;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<usize, StorageError>> {
        Box::pin(async move {
            let gone = "DELETE FROM holds WHERE at < $1 AND request NOT IN (SELECT id FROM requests) \
                        RETURNING account, amount";
            let gone = all(sqlx::query(gone).bind(self.0.0), &mut *connection).await?;
            give_back(&gone, connection).await?;
            Ok(gone.len())
        })
    }
}

async fn give_back(gone: &[Released], connection: &mut AnyConnection) -> Result<(), StorageError> {
    for Released(account, amount) in gone {
        let less = sqlx::query("UPDATE balances SET held = held - $1 WHERE account = $2");
        let less = less.bind(amount.0).bind(account.0);
        connection.execute(less).await?;
    }
    Ok(())
}

impl Stored for Released {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self(
            AccountId(row.try_get("account")?),
            Kudos(row.try_get("amount")?),
        ))
    }
}
