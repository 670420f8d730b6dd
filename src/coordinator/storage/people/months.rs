//! Monthly kudos: paid once per month, without back pay for months before the allowance began.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::kudos::{Cause, Posting, allowance};
use crate::storage::postings::post;
use crate::storage::rows::{Stored, all};
use crate::storage::write::Change;
use crate::storage::{StorageError, Store};
use crate::values::Roles;
use muster_protocol::job::{AccountId, Kudos, UnixMillis};
use muster_protocol::legacy::date::Date;

/// The longest month.
const MONTH: Duration = Duration::from_secs(31 * 86_400);

/// Payment of monthly kudos.
#[derive(Debug)]
struct Months {
    now: UnixMillis,
}

/// A user with a monthly allowance.
struct Regular {
    account: AccountId,
    roles: Roles,
    monthly: Kudos,
    paid_at: Option<UnixMillis>,
}

impl Store {
    /// Pays due monthly allowances. Returns the number of payments.
    pub async fn pay_months(&self, now: UnixMillis) -> Result<usize, StorageError> {
        self.change(Months { now }).await
    }
}

impl Change for Months {
    type Answer = usize;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<usize, StorageError>> {
        Box::pin(async move {
            self.begin_anew(connection).await?;
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

impl Months {
    /// Resets the months of users without an allowance now, so that missed months are not paid later.
    async fn begin_anew(&self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let forgotten = sqlx::query(
            "UPDATE people SET monthly_paid_at = NULL WHERE monthly_paid_at < $1 AND (deleted_at IS NOT NULL \
             OR monthly_kudos <= 0 AND NOT EXISTS (SELECT 1 FROM accounts WHERE accounts.id = people.account \
             AND roles LIKE $2 AND roles NOT LIKE $3))",
        );
        let forgotten = forgotten
            .bind(self.now.before(MONTH).0)
            .bind(format!("%{}%", Roles::MODERATOR))
            .bind(format!("%{}%", Roles::ADMIN));
        forgotten.execute(connection).await?;
        Ok(())
    }
}

impl Regular {
    /// Pays a due month once, even if several processes try: moving the date of the last payment is the lock.
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
