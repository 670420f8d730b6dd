//! Deletion of accounts: marked first, wiped after a grace period.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};

use crate::storage::erasures::erase_contents;
use crate::storage::keys::{revoke_all, touch_keys};
use crate::storage::revisions::{Topic, next};
use crate::storage::write::Change;
use crate::storage::{StorageError, Store};
use crate::values::Roles;
use muster_protocol::job::{AccountId, UnixMillis};

/// The next step of an account's deletion.
#[derive(Debug, Clone)]
pub struct Leaving {
    pub account: AccountId,
    /// Time between the mark and the wipe.
    pub grace: Duration,
    pub now: UnixMillis,
}

/// Progress of an account's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nobody,
    /// No permissions, but restorable. Stored requests, results and responses are deleted.
    Marked,
    /// The grace period since the mark has not passed.
    TooSoon,
    /// Name, login, contact, workers, keys and shared keys are deleted; the ledger keeps the account's number.
    Wiped,
}

impl Store {
    pub async fn leave(&self, leaving: Leaving) -> Result<Left, StorageError> {
        self.change(leaving).await
    }
}

impl Change for Leaving {
    type Answer = Left;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Left, StorageError>> {
        Box::pin(async move {
            let row = sqlx::query(
                "SELECT roles, deleted_at FROM accounts JOIN people ON people.account = accounts.id WHERE id = $1",
            );
            let row = row
                .bind(self.account.0)
                .fetch_optional(&mut *connection)
                .await?;
            let Some(row) = row else {
                return Ok(Left::Nobody);
            };
            let roles = Roles::parse(row.try_get("roles")?);
            let marked: Option<i64> = row.try_get("deleted_at")?;
            match marked.map(UnixMillis) {
                None => self.mark(roles, connection).await,
                Some(marked) if marked.after(self.grace) > self.now => Ok(Left::TooSoon),
                Some(_) => self.wipe(connection).await,
            }
        })
    }
}

impl Leaving {
    async fn mark(
        &self,
        roles: Roles,
        connection: &mut AnyConnection,
    ) -> Result<Left, StorageError> {
        let marked = sqlx::query("UPDATE people SET deleted_at = $1 WHERE account = $2");
        let marked = marked.bind(self.now.0).bind(self.account.0);
        marked.execute(&mut *connection).await?;
        let roles = roles.with(Roles::DELETED).to_string();
        let known = sqlx::query("UPDATE accounts SET roles = $1 WHERE id = $2");
        let known = known.bind(roles).bind(self.account.0);
        known.execute(&mut *connection).await?;
        touch_keys(self.account, connection).await?;
        erase_contents(self.account, self.now, connection).await?;
        Ok(Left::Marked)
    }

    async fn wipe(&self, connection: &mut AnyConnection) -> Result<Left, StorageError> {
        revoke_all(self.account, self.now, connection).await?;
        for forgotten in FORGET {
            let forgotten = sqlx::query(*forgotten).bind(self.account.0);
            forgotten.execute(&mut *connection).await?;
        }
        next(Topic::Messages, connection).await?;
        Ok(Left::Wiped)
    }
}

const FORGET: &[&str] = &[
    "UPDATE accounts SET name = 'deleted', roles = 'deleted', login = 'user-' || CAST(id AS TEXT) WHERE id = $1",
    "UPDATE people SET login = NULL, contact = NULL, admin_comment = NULL, proxy_passkey = NULL, \
     monthly_kudos = 0 WHERE account = $1",
    "DELETE FROM worker_messages WHERE worker IN (SELECT id FROM workers WHERE owner = $1)",
    "DELETE FROM worker_addresses WHERE worker IN (SELECT id FROM workers WHERE owner = $1)",
    "DELETE FROM rigs WHERE worker IN (SELECT id FROM workers WHERE owner = $1)",
    "DELETE FROM workers WHERE owner = $1",
    "UPDATE styles SET shared_key = NULL WHERE owner = $1",
    "DELETE FROM shared_keys WHERE owner = $1",
    "DELETE FROM responses WHERE account = $1",
];
