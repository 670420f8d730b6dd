//! Deletion and suspension of accounts. The ledger, settled jobs and balances stay, under the account's number.

use std::collections::HashSet;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use crate::values::Roles;
use muster_protocol::job::{AccountId, UnixMillis};

use super::keys::{revoke_all, touch_keys};
use super::revisions::{Topic, next};
use super::write::Change;
use super::{StorageError, Store};

/// Outcome of a deletion or suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountChange {
    Done,
    /// Unknown account.
    Missing,
    /// The account is the only administrator: nothing was changed.
    LastAdmin,
}

/// Deletes an account with all its stored data.
#[derive(Debug)]
struct AccountDeletion {
    account: AccountId,
    now: UnixMillis,
}

/// Deletes stored requests, results and responses of an account.
#[derive(Debug)]
struct ContentDeletion(AccountId);

/// Suspends an account, or ends its suspension.
#[derive(Debug)]
struct Suspension {
    account: AccountId,
    is_suspended: bool,
}

/// Ends erasures that began before this moment, since no more rows of theirs can arrive.
#[derive(Debug)]
struct ErasureEnd(UnixMillis);

impl Store {
    /// Revokes the keys of the account and deletes its name, login, contact and stored contents.
    pub async fn delete_account(
        &self,
        account: AccountId,
        now: UnixMillis,
    ) -> Result<AccountChange, StorageError> {
        self.change(AccountDeletion { account, now }).await
    }

    /// Returns the number of deleted rows. The account stays.
    pub async fn delete_contents(&self, account: AccountId) -> Result<u64, StorageError> {
        self.change(ContentDeletion(account)).await
    }

    pub async fn suspend_account(
        &self,
        account: AccountId,
        is_suspended: bool,
    ) -> Result<AccountChange, StorageError> {
        self.change(Suspension {
            account,
            is_suspended,
        })
        .await
    }

    /// Accounts whose contents are being deleted, with the start time.
    pub async fn erasures(&self) -> Result<Vec<(AccountId, UnixMillis)>, StorageError> {
        let rows = sqlx::query("SELECT account, at FROM erasures ORDER BY at");
        let rows = rows.fetch_all(&self.readers).await?;
        let erasure =
            |row: &sqlx::any::AnyRow| Ok((AccountId(row.try_get(0)?), UnixMillis(row.try_get(1)?)));
        rows.iter().map(erasure).collect()
    }

    pub async fn end_erasures(&self, before: UnixMillis) -> Result<(), StorageError> {
        self.change(ErasureEnd(before)).await
    }

    /// The account's jobs and requests that have not ended, or ended since this time. Media objects have their ids.
    pub async fn object_owners(
        &self,
        account: AccountId,
        since: UnixMillis,
    ) -> Result<HashSet<Uuid>, StorageError> {
        let settled = sqlx::query(
            "SELECT job, request FROM settled WHERE account = $1 AND accepted_at >= $2",
        );
        let settled = settled.bind(account.0).bind(since.0);
        let requests = sqlx::query("SELECT id, id FROM requests WHERE account = $1");
        let results = sqlx::query(
            "SELECT job, request FROM results WHERE request IN (SELECT id FROM requests WHERE account = $1)",
        );
        let mut ids = HashSet::new();
        for query in [settled, requests.bind(account.0), results.bind(account.0)] {
            for row in query.fetch_all(&self.readers).await? {
                for column in 0..2 {
                    let id: String = row.try_get(column)?;
                    ids.extend(id.parse::<Uuid>());
                }
            }
        }
        Ok(ids)
    }
}

/// Stored contents of an account's requests.
const CONTENTS: &[&str] = &[
    "DELETE FROM results WHERE request IN (SELECT id FROM requests WHERE account = $1)",
    "DELETE FROM requests WHERE account = $1",
    "DELETE FROM responses WHERE account = $1",
    "DELETE FROM replies WHERE account = $1",
];

/// Personal data of an account. Balances, tallies and records are numbers, and stay with the ledger.
const ACCOUNT: &[&str] = &[
    "UPDATE accounts SET name = 'deleted', roles = 'deleted', login = 'user-' || CAST(id AS TEXT) WHERE id = $1",
    "UPDATE people SET login = NULL, contact = NULL, admin_comment = NULL, proxy_passkey = NULL, \
     monthly_kudos = 0, public_workers = 0 WHERE account = $1",
    "UPDATE keys SET label = '', worker_name = NULL WHERE account = $1",
    "DELETE FROM worker_messages WHERE author = $1",
    "DELETE FROM worker_messages WHERE worker IN (SELECT id FROM workers WHERE owner = $1)",
    "DELETE FROM worker_addresses WHERE worker IN (SELECT id FROM workers WHERE owner = $1)",
    "DELETE FROM rigs WHERE worker IN (SELECT id FROM workers WHERE owner = $1)",
    "DELETE FROM workers WHERE owner = $1",
    "DELETE FROM teams WHERE creator = $1 AND NOT EXISTS (SELECT 1 FROM rigs WHERE team = teams.id)",
    "DELETE FROM collection_styles WHERE collection IN (SELECT id FROM collections WHERE owner = $1)",
    "DELETE FROM collection_styles WHERE style IN (SELECT id FROM styles WHERE owner = $1)",
    "DELETE FROM collections WHERE owner = $1",
    "DELETE FROM style_words WHERE style IN (SELECT id FROM styles WHERE owner = $1)",
    "DELETE FROM styles WHERE owner = $1",
    "DELETE FROM shared_keys WHERE owner = $1",
    "DELETE FROM suspicions WHERE account = $1",
];

const BEGIN_ERASURE: &str = "INSERT INTO erasures (account, at) VALUES ($1, $2) \
                             ON CONFLICT (account) DO UPDATE SET at = excluded.at";

/// Deletes stored requests, results and responses, and marks those still to come for deletion.
pub(super) async fn erase_contents(
    account: AccountId,
    now: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<u64, StorageError> {
    let begun = sqlx::query(BEGIN_ERASURE).bind(account.0).bind(now.0);
    begun.execute(&mut *connection).await?;
    delete_all(CONTENTS, account, connection).await
}

async fn delete_all(
    texts: &'static [&'static str],
    account: AccountId,
    connection: &mut AnyConnection,
) -> Result<u64, StorageError> {
    let mut rows = 0;
    for text in texts {
        let done = sqlx::query(*text).bind(account.0);
        rows += done.execute(&mut *connection).await?.rows_affected();
    }
    Ok(rows)
}

/// `None` for the house, the anonymous account and unknown accounts.
async fn roles_of(
    account: AccountId,
    connection: &mut AnyConnection,
) -> Result<Option<Roles>, StorageError> {
    let row = sqlx::query("SELECT roles FROM accounts WHERE id = $1 AND id > 0");
    let row = row.bind(account.0).fetch_optional(connection).await?;
    row.map_or(Ok(None), |row| Ok(Some(Roles::parse(row.try_get(0)?))))
}

/// Suspended administrators do not count.
async fn is_last_admin(
    account: AccountId,
    roles: Roles,
    connection: &mut AnyConnection,
) -> Result<bool, StorageError> {
    if !roles.contains(Roles::ADMIN) {
        return Ok(false);
    }
    let others = sqlx::query("SELECT roles FROM accounts WHERE roles LIKE $1 AND id <> $2");
    let others = others.bind(format!("%{}%", Roles::ADMIN)).bind(account.0);
    for other in others.fetch_all(connection).await? {
        let roles = Roles::parse(other.try_get(0)?);
        if roles.contains(Roles::ADMIN) && !roles.contains(Roles::SUSPENDED) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Change for AccountDeletion {
    type Answer = AccountChange;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<AccountChange, StorageError>> {
        Box::pin(async move {
            let Some(roles) = roles_of(self.account, connection).await? else {
                return Ok(AccountChange::Missing);
            };
            if is_last_admin(self.account, roles, connection).await? {
                return Ok(AccountChange::LastAdmin);
            }
            // Notifies processes that cache the account without a key.
            next(Topic::Keys, connection).await?;
            revoke_all(self.account, self.now, connection).await?;
            erase_contents(self.account, self.now, connection).await?;
            delete_all(ACCOUNT, self.account, connection).await?;
            next(Topic::Messages, connection).await?;
            Ok(AccountChange::Done)
        })
    }
}

impl Change for ContentDeletion {
    type Answer = u64;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(delete_all(CONTENTS, self.0, connection))
    }
}

impl Change for Suspension {
    type Answer = AccountChange;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<AccountChange, StorageError>> {
        Box::pin(async move {
            let Some(roles) = roles_of(self.account, connection).await? else {
                return Ok(AccountChange::Missing);
            };
            if self.is_suspended && is_last_admin(self.account, roles, connection).await? {
                return Ok(AccountChange::LastAdmin);
            }
            let roles = match self.is_suspended {
                true => roles.with(Roles::SUSPENDED),
                false => roles.without(Roles::SUSPENDED),
            };
            let changed = sqlx::query("UPDATE accounts SET roles = $1 WHERE id = $2");
            let changed = changed.bind(roles.to_string()).bind(self.account.0);
            changed.execute(&mut *connection).await?;
            next(Topic::Keys, connection).await?;
            touch_keys(self.account, connection).await?;
            Ok(AccountChange::Done)
        })
    }
}

impl Change for ErasureEnd {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let ended = sqlx::query("DELETE FROM erasures WHERE at < $1");
            ended.bind(self.0.0).execute(connection).await?;
            Ok(())
        })
    }
}
