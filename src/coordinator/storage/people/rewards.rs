//! What people are given for being there: months, minutes, and trust.

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;
use uuid::Uuid;

use super::change::release;
use crate::coordinator::accounts::Roles;
use crate::coordinator::kudos::{Cause, Posting, escrow_of};
use crate::coordinator::people::allowance;
use crate::coordinator::storage::keys::touch_keys;
use crate::coordinator::storage::postings::post;
use crate::coordinator::storage::rows::{Stored, all};
use crate::coordinator::storage::write::Change;
use crate::coordinator::storage::{StorageError, Store};
use crate::protocol::job::{AccountId, Kudos, UnixMillis};
use crate::protocol::legacy::date::Date;

/// A worker was there for a while.
#[derive(Debug, Clone)]
pub struct Attended {
    pub worker: Uuid,
    pub worth: Kudos,
    /// Whether its owner is paid, trusted or not; else it waits with what else waits.
    pub at_once: bool,
    pub now: UnixMillis,
}

/// Owners who have earned so much that nobody doubts them any more.
#[derive(Debug, Clone)]
pub struct Promotion {
    pub earned: Kudos,
    /// Of accounts that were there before this.
    pub born_before: UnixMillis,
    /// Suspected less often than this.
    pub suspicion: i64,
    pub now: UnixMillis,
}

/// Monthly kudos are due.
#[derive(Debug)]
struct Months {
    now: UnixMillis,
}

/// Somebody who is given something each month.
struct Regular {
    account: AccountId,
    roles: Roles,
    monthly: Kudos,
    paid_at: Option<UnixMillis>,
}

impl Store {
    /// Whether anybody owns this worker.
    pub async fn pay_attendance(&self, attended: Attended) -> Result<bool, StorageError> {
        self.change(attended).await
    }

    /// Who is trusted from now on, and has been paid what waited for that.
    pub async fn promote(&self, promotion: Promotion) -> Result<Vec<AccountId>, StorageError> {
        self.change(promotion).await
    }

    /// Pays what is due each month: to how many.
    pub async fn pay_months(&self, now: UnixMillis) -> Result<usize, StorageError> {
        self.change(Months { now }).await
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
            // Escrows are the balances below the house's. Who is trusted already is paid what came late.
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
                if deserves(roles) {
                    trust(account, roles, self.now, connection).await?;
                    promoted.push(account);
                }
            }
            Ok(promoted)
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

impl Change for Months {
    type Answer = usize;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<usize, StorageError>> {
        Box::pin(async move {
            let regulars = sqlx::query(
                "SELECT id, roles, monthly_kudos, monthly_paid_at FROM people \
                 JOIN accounts ON accounts.id = people.account \
                 WHERE (monthly_kudos > 0 OR roles LIKE $1) AND deleted_at IS NULL",
            );
            let regulars = regulars.bind(format!("%{}%", Roles::MODERATOR));
            let mut paid = 0;
            for regular in all::<Regular>(regulars, &mut *connection).await? {
                paid += usize::from(regular.pay(self.now, connection).await?);
            }
            Ok(paid)
        })
    }
}

impl Regular {
    /// Once for each month, whoever else does it: the moment of the last payment is moved on by one of them.
    async fn pay(
        &self,
        now: UnixMillis,
        connection: &mut AnyConnection,
    ) -> Result<bool, StorageError> {
        let due = self.paid_at.map_or(now, |at| Date(at).a_month_later().0);
        let amount = allowance(self.monthly, self.roles);
        if amount.0 <= 0 || due > now {
            return Ok(false);
        }
        let moved = sqlx::query(
            "UPDATE people SET monthly_paid_at = $1 WHERE account = $2 AND COALESCE(monthly_paid_at, -1) = $3",
        );
        let before = self.paid_at.map_or(-1, |at| at.0);
        let moved = moved.bind(due.0).bind(self.account.0).bind(before);
        if moved.execute(&mut *connection).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let given = Posting::from_house(Cause::Monthly, self.account, amount, now);
        post(&given, connection).await?;
        Ok(true)
    }
}

impl Stored for Regular {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let paid_at: Option<i64> = row.try_get("monthly_paid_at")?;
        Ok(Self {
            account: AccountId(row.try_get("id")?),
            roles: Roles::parse(row.try_get("roles")?),
            monthly: Kudos(row.try_get("monthly_kudos")?),
            paid_at: paid_at.map(UnixMillis),
        })
    }
}
