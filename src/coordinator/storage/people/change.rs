//! Changes of a user in one transaction: row, roles and kudos.

use futures_util::future::BoxFuture;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{AnyConnection, Row};

use crate::kudos::{Cause, MOST_CREATED, Posting, escrow_of};
use crate::storage::keys::touch_keys;
use crate::storage::postings::post;
use crate::storage::rigs::resume_all_of;
use crate::storage::suspicions::forgive;
use crate::storage::values::storable;
use crate::storage::write::Change;
use crate::storage::{StorageError, Store};
use crate::values::Roles;
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

/// Changes of a user; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonChange {
    pub name: Option<String>,
    pub contact: Option<String>,
    pub admin_comment: Option<String>,
    /// `Some(None)` restores the configured default.
    pub concurrency: Option<Option<i64>>,
    /// In thousandths.
    pub usage_multiplier: Option<i64>,
    pub worker_invited: Option<i64>,
    pub public_workers: Option<bool>,
    /// Encrypted, as stored.
    pub proxy_passkey: Option<String>,
    pub resets_suspicion: bool,
    pub returns: bool,
    /// Roles to add and to remove.
    pub gains: Roles,
    pub loses: Roles,
    /// Added to the balance, which does not fall below its floor.
    pub kudos: Option<Kudos>,
    /// Added to the monthly allowance, between zero and the maximum. An increase is paid at once, too.
    pub monthly_kudos: Option<Kudos>,
}

/// The values after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    pub kudos: Kudos,
    pub monthly_kudos: Kudos,
}

#[derive(Debug)]
struct Changing {
    account: AccountId,
    change: PersonChange,
    now: UnixMillis,
}

impl Store {
    /// `None` if the account does not exist.
    pub async fn change_person(
        &self,
        account: AccountId,
        change: PersonChange,
        now: UnixMillis,
    ) -> Result<Option<Changed>, StorageError> {
        self.change(Changing {
            account,
            change,
            now,
        })
        .await
    }
}

impl Change for Changing {
    type Answer = Option<Changed>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Option<Changed>, StorageError>> {
        Box::pin(async move {
            let before = sqlx::query("SELECT roles FROM accounts WHERE id = $1");
            let before = before
                .bind(self.account.0)
                .fetch_optional(&mut *connection)
                .await?;
            let Some(before) = before else {
                return Ok(None);
            };
            let before = Roles::parse(before.try_get(0)?);
            self.change_columns(connection).await?;
            self.change_roles(before, connection).await?;
            self.change_kudos(connection).await?;
            self.change_monthly(connection).await?;
            // The permissions of keys depend on the changed fields.
            touch_keys(self.account, connection).await?;
            self.changed(connection).await.map(Some)
        })
    }
}

impl Changing {
    async fn change_columns(&self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let change = &self.change;
        if let Some(name) = &change.name {
            let named = sqlx::query("UPDATE accounts SET name = $1 WHERE id = $2");
            self.run(named.bind(storable(name)), connection).await?;
        }
        let texts = [
            (
                "UPDATE people SET contact = $1 WHERE account = $2",
                &change.contact,
            ),
            (
                "UPDATE people SET admin_comment = $1 WHERE account = $2",
                &change.admin_comment,
            ),
            (
                "UPDATE people SET proxy_passkey = $1 WHERE account = $2",
                &change.proxy_passkey,
            ),
        ];
        for (update, text) in texts {
            if let Some(text) = text {
                self.run(sqlx::query(update).bind(whole(text)), connection)
                    .await?;
            }
        }
        let numbers = [
            (
                "UPDATE people SET worker_invited = $1 WHERE account = $2",
                change.worker_invited,
            ),
            (
                "UPDATE people SET public_workers = $1 WHERE account = $2",
                change.public_workers.map(i64::from),
            ),
            (MULTIPLY, change.usage_multiplier),
        ];
        for (update, number) in numbers {
            if let Some(number) = number {
                self.run(sqlx::query(update).bind(number), connection)
                    .await?;
            }
        }
        if change.resets_suspicion {
            forgive(self.account, connection).await?;
        }
        if let Some(concurrency) = change.concurrency {
            let limited = sqlx::query("UPDATE people SET concurrency = $1 WHERE account = $2");
            self.run(limited.bind(concurrency), connection).await?;
        }
        if change.returns {
            let back = sqlx::query("UPDATE people SET deleted_at = $1 WHERE account = $2");
            self.run(back.bind(None::<i64>), connection).await?;
            let goes_on = sqlx::query("DELETE FROM erasures WHERE account = $1");
            self.run(goes_on, connection).await?;
        }
        Ok(())
    }

    /// The account is the last parameter.
    async fn run(
        &self,
        update: Query<'_, sqlx::Any, AnyArguments>,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        update.bind(self.account.0).execute(connection).await?;
        Ok(())
    }

    /// An account that becomes trusted gets its escrow paid out and its paused workers resumed.
    async fn change_roles(
        &self,
        before: Roles,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        if self.change.gains.contains(Roles::TRUSTED) {
            resume_all_of(self.account, connection).await?;
        }
        let after = before.with(self.change.gains).without(self.change.loses);
        if after == before {
            return Ok(());
        }
        let roles = sqlx::query("UPDATE accounts SET roles = $1 WHERE id = $2");
        self.run(roles.bind(after.to_string()), connection).await?;
        match after.contains(Roles::TRUSTED) {
            true => release(self.account, self.now, connection).await,
            false => Ok(()),
        }
    }

    async fn change_kudos(&self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let Some(wanted) = self.change.kudos else {
            return Ok(());
        };
        let row = sqlx::query(
            "SELECT kudos, COALESCE(floor, 0) AS floor FROM balances WHERE account = $1",
        );
        let row = row.bind(self.account.0).fetch_one(&mut *connection).await?;
        let (kudos, floor): (i64, i64) = (row.try_get("kudos")?, row.try_get("floor")?);
        let least = floor.saturating_sub(kudos).min(0);
        let amount = Kudos(wanted.0.max(least));
        let correction = Posting::from_house(Cause::Correction, self.account, amount, self.now);
        post(&correction, connection).await?;
        Ok(())
    }

    async fn change_monthly(&self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let Some(more) = self.change.monthly_kudos else {
            return Ok(());
        };
        let monthly = sqlx::query(
            "UPDATE people SET monthly_kudos = CASE WHEN monthly_kudos + $1 < 0 THEN 0 \
             WHEN monthly_kudos + $1 > $2 THEN $2 ELSE monthly_kudos + $1 END, \
             monthly_paid_at = COALESCE(monthly_paid_at, $3) WHERE account = $4",
        );
        let monthly = monthly.bind(more.0).bind(MOST_CREATED.0).bind(self.now.0);
        self.run(monthly, connection).await?;
        if more.0 > 0 {
            let given = Posting::from_house(Cause::Monthly, self.account, more, self.now);
            post(&given, connection).await?;
        }
        Ok(())
    }

    async fn changed(&self, connection: &mut AnyConnection) -> Result<Changed, StorageError> {
        let row = sqlx::query(
            "SELECT kudos, monthly_kudos FROM people JOIN balances ON balances.account = people.account \
             WHERE people.account = $1",
        );
        let row = row.bind(self.account.0).fetch_one(connection).await?;
        Ok(Changed {
            kudos: Kudos(row.try_get("kudos")?),
            monthly_kudos: Kudos(row.try_get("monthly_kudos")?),
        })
    }
}

const MULTIPLY: &str = "INSERT INTO records (multiplier, account) VALUES ($1, $2) \
                        ON CONFLICT (account) DO UPDATE SET multiplier = excluded.multiplier";

/// For texts longer than the limit of names.
fn whole(text: &str) -> String {
    super::super::values::without_zeros(text)
}

/// Pays out an owner's escrow.
pub async fn release(
    account: AccountId,
    now: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let escrow = escrow_of(account);
    let row = sqlx::query("SELECT kudos FROM balances WHERE account = $1").bind(escrow.0);
    let row = row.fetch_optional(&mut *connection).await?;
    let kept = Kudos(row.map_or(Ok(0), |row| row.try_get(0))?);
    if kept.0 > 0 {
        let paid = Posting::between(Cause::Escrow, (escrow, account), kept, now);
        post(&paid, connection).await?;
    }
    Ok(())
}
