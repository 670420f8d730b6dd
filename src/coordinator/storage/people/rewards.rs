//! Rewards besides jobs: uptime and trust.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use super::change::release;
use crate::kudos::{Cause, Posting, escrow_of, owner_of};
use crate::storage::keys::touch_keys;
use crate::storage::postings::post;
use crate::storage::rigs::resume_all_of;
use crate::storage::write::Change;
use crate::storage::{StorageError, Store};
use crate::values::Roles;
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

/// A reward for the uptime of a worker.
#[derive(Debug, Clone)]
pub struct Attended {
    pub worker: Uuid,
    pub worth: Kudos,
    /// Whether the owner is paid at once even if untrusted; otherwise the reward goes to escrow.
    pub at_once: bool,
    pub now: UnixMillis,
}

/// The conditions under which owners become trusted.
#[derive(Debug, Clone)]
pub struct Promotion {
    pub earned: Kudos,
    /// Only accounts created before this moment.
    pub born_before: UnixMillis,
    /// Only accounts with fewer suspicion marks.
    pub suspicion: i64,
    pub now: UnixMillis,
}

/// Pays out all escrows, since trust is not required any more.
#[derive(Debug)]
struct Escrows {
    now: UnixMillis,
}

impl Store {
    /// False if the worker has no owner.
    pub async fn pay_attendance(&self, attended: Attended) -> Result<bool, StorageError> {
        self.change(attended).await
    }

    /// Makes deserving owners trusted, pays out their escrow and resumes their paused workers. Returns the newly
    /// trusted accounts.
    pub async fn promote(&self, promotion: Promotion) -> Result<Vec<AccountId>, StorageError> {
        self.change(promotion).await
    }

    /// Pays out every escrow.
    pub async fn release_escrows(&self, now: UnixMillis) -> Result<(), StorageError> {
        self.change(Escrows { now }).await
    }
}

impl Change for Attended {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let row = sqlx::query(
                "SELECT workers.id, owner, roles FROM workers JOIN accounts ON accounts.id = workers.owner WHERE public_id = $1",
            );
            let row = row.bind(self.worker.to_string());
            let Some(row) = row.fetch_optional(&mut *connection).await? else {
                return Ok(false);
            };
            let owner = AccountId(row.try_get("owner")?);
            let is_trusted = Roles::parse(row.try_get("roles")?).contains(Roles::TRUSTED);
            let account = match self.at_once || is_trusted {
                true => owner,
                false => escrow_of(owner),
            };
            let paid = Posting::from_house(Cause::Uptime, account, self.worth, self.now);
            post(&paid.about(self.worker.to_string()), connection).await?;
            let noted = sqlx::query("UPDATE rigs SET rewarded = rewarded + $1 WHERE worker = $2");
            let noted = noted.bind(self.worth.0).bind(row.try_get::<i64, _>("id")?);
            noted.execute(connection).await?;
            Ok(true)
        })
    }
}

impl Change for Promotion {
    type Answer = Vec<AccountId>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Vec<AccountId>, StorageError>> {
        Box::pin(async move {
            // Escrow accounts have ids below the house's. Late escrow of trusted owners is paid out, too.
            let rows = sqlx::query(
                "SELECT id, roles FROM balances JOIN accounts ON accounts.id = -1 - balances.account \
                 JOIN people ON people.account = accounts.id \
                 WHERE balances.account < -1 AND kudos > 0 AND (roles LIKE $1 \
                 OR kudos >= $2 AND created_at < $3 AND suspicion < $4)",
            );
            let rows = rows.bind(format!("%{}%", Roles::TRUSTED));
            let rows = rows.bind(self.earned.0).bind(self.born_before.0);
            let rows = rows
                .bind(self.suspicion)
                .fetch_all(&mut *connection)
                .await?;
            let mut promoted = Vec::new();
            for row in rows {
                let account = AccountId(row.try_get("id")?);
                let roles = Roles::parse(row.try_get("roles")?);
                if !deserves(roles) {
                    continue;
                }
                trust(account, roles, self.now, connection).await?;
                if !roles.contains(Roles::TRUSTED) {
                    resume_all_of(account, connection).await?;
                    promoted.push(account);
                }
            }
            Ok(promoted)
        })
    }
}

impl Change for Escrows {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let rows = "SELECT account FROM balances WHERE account < -1 AND kudos > 0";
            for row in sqlx::query(rows).fetch_all(&mut *connection).await? {
                if let Some(owner) = owner_of(AccountId(row.try_get(0)?)) {
                    release(owner, self.now, connection).await?;
                }
            }
            Ok(())
        })
    }
}

fn deserves(roles: Roles) -> bool {
    let doubtful = [Roles::FLAGGED, Roles::DELETED];
    !doubtful.iter().any(|doubt| roles.contains(*doubt))
}

async fn trust(
    account: AccountId,
    roles: Roles,
    now: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let trusted = sqlx::query("UPDATE accounts SET roles = $1 WHERE id = $2");
    let trusted = trusted.bind(roles.with(Roles::TRUSTED).to_string());
    trusted.bind(account.0).execute(&mut *connection).await?;
    release(account, now, connection).await?;
    touch_keys(account, connection).await
}
