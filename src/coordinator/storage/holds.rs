//! Kudos that are kept for requests until they have ended: of balances for what is paid for before it is made, of shared
//! keys for whatever is asked with them. What is held is still its owner's, but nobody can give it away, or have it held
//! once more.

use futures_util::future::BoxFuture;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Executor, Row};

use crate::protocol::job::{AccountId, Kudos, RequestId, SharedKeyId, UnixMillis};

use super::rows::{Stored, all};
use super::shared_keys::shared_key_id;
use super::write::Change;
use super::{StorageError, Store};

/// What kudos are kept of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purse {
    /// The balance of an account, as far as it is above its floor.
    Account(AccountId),
    /// What is left of the budget of a shared key.
    Key(SharedKeyId),
}

/// Kudos to be kept for a request, which may have one of each kind of purse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub request: RequestId,
    pub of: Purse,
    pub amount: Kudos,
    pub at: UnixMillis,
}

#[derive(Debug)]
struct Release(RequestId);

/// Of holds that were made before this moment, those whose request is nowhere.
#[derive(Debug)]
struct ReleaseLost(UnixMillis);

/// What was let go, of either kind of purse.
struct OfAccount(AccountId, Kudos);
struct OfKey(SharedKeyId, Kudos);

impl Store {
    /// Whether there was enough beside what is held already.
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
        let rows = sqlx::query("SELECT request FROM holds UNION SELECT request FROM key_holds");
        let rows = rows.fetch_all(&self.readers).await?;
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

const KEEP: &str = "UPDATE balances SET held = held + $1 WHERE account = $2 AND kudos - held - $1 >= COALESCE(floor, 0)";
const KEEP_OF_KEY: &str = "UPDATE shared_keys SET held = held + $1 \
                           WHERE id = $2 AND (budget IS NULL OR budget - held >= $1)";
const NOTE: &str = "INSERT INTO holds (request, account, amount, at) VALUES ($1, $2, $3, $4)";
const NOTE_OF_KEY: &str =
    "INSERT INTO key_holds (request, shared_key, amount, at) VALUES ($1, $2, $3, $4)";

/// Deletes the holds of which something about `$1` is so.
macro_rules! gone {
    ($which:literal) => {
        [
            concat!(
                "DELETE FROM holds WHERE ",
                $which,
                " RETURNING account, amount"
            ),
            concat!(
                "DELETE FROM key_holds WHERE ",
                $which,
                " RETURNING shared_key, amount"
            ),
        ]
    };
}
const OF_REQUEST: [&str; 2] = gone!("request = $1");
const LOST: [&str; 2] =
    gone!("at < $1 AND NOT EXISTS (SELECT 1 FROM requests WHERE requests.id = request)");

impl Change for Hold {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let kept = match self.of {
                Purse::Account(account) => sqlx::query(KEEP).bind(self.amount.0).bind(account.0),
                Purse::Key(key) => {
                    let kept = sqlx::query(KEEP_OF_KEY).bind(self.amount.0);
                    kept.bind(key.to_string())
                }
            };
            if kept.execute(&mut *connection).await?.rows_affected() == 0 {
                return Ok(false);
            }
            let request = self.request.to_string();
            let row = match self.of {
                Purse::Account(account) => sqlx::query(NOTE).bind(request).bind(account.0),
                Purse::Key(key) => sqlx::query(NOTE_OF_KEY).bind(request).bind(key.to_string()),
            };
            let row = row.bind(self.amount.0).bind(self.at.0);
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
            let gone = OF_REQUEST.map(|text| sqlx::query(text).bind(self.0.to_string()));
            let_go(gone, connection).await?;
            Ok(())
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
            let gone = LOST.map(|text| sqlx::query(text).bind(self.0.0));
            let_go(gone, connection).await
        })
    }
}

/// Gives back what these deletions say: of how many holds.
async fn let_go(
    [of_accounts, of_keys]: [Query<'static, Any, AnyArguments>; 2],
    connection: &mut AnyConnection,
) -> Result<usize, StorageError> {
    let of_accounts: Vec<OfAccount> = all(of_accounts, &mut *connection).await?;
    let of_keys: Vec<OfKey> = all(of_keys, &mut *connection).await?;
    for OfAccount(account, amount) in &of_accounts {
        let less = sqlx::query("UPDATE balances SET held = held - $1 WHERE account = $2");
        let less = less.bind(amount.0).bind(account.0);
        connection.execute(less).await?;
    }
    for OfKey(key, amount) in &of_keys {
        let less = sqlx::query("UPDATE shared_keys SET held = held - $1 WHERE id = $2");
        let less = less.bind(amount.0).bind(key.to_string());
        connection.execute(less).await?;
    }
    Ok(of_accounts.len() + of_keys.len())
}

impl Stored for OfAccount {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self(
            AccountId(row.try_get("account")?),
            Kudos(row.try_get("amount")?),
        ))
    }
}

impl Stored for OfKey {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let key = shared_key_id(row.try_get("shared_key")?)?;
        Ok(Self(key, Kudos(row.try_get("amount")?)))
    }
}
