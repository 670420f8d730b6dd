//! Marks of suspicion against accounts and their workers.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};

use crate::coordinator::accounts::Roles;
use crate::coordinator::moderation::{Mark, Reason};
use crate::protocol::job::{AccountId, UnixMillis, WorkerId};

use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug)]
struct Marking {
    mark: Mark,
    now: UnixMillis,
}

/// What is forgiven.
#[derive(Debug)]
enum Pardon {
    /// All of an account, its workers' too.
    Account(AccountId),
    Worker(WorkerId),
}

impl Store {
    /// Whether it counts: the trusted and the anonymous are under no suspicion, and most reasons count once.
    pub async fn mark(&self, mark: Mark, now: UnixMillis) -> Result<bool, StorageError> {
        self.change(Marking { mark, now }).await
    }

    /// How often each reason was found against an account, its workers included.
    pub async fn marks(&self, account: AccountId) -> Result<Vec<(Reason, u32)>, StorageError> {
        let rows = sqlx::query(
            "SELECT reason, COUNT(*) FROM suspicions WHERE account = $1 GROUP BY reason",
        );
        let rows = rows.bind(account.0).fetch_all(&self.readers).await?;
        read(&rows)
    }

    pub async fn marks_of_worker(
        &self,
        worker: WorkerId,
    ) -> Result<Vec<(Reason, u32)>, StorageError> {
        let rows = sqlx::query(
            "SELECT reason, COUNT(*) FROM suspicions WHERE worker = $1 GROUP BY reason",
        );
        let rows = rows.bind(worker.0).fetch_all(&self.readers).await?;
        read(&rows)
    }

    pub async fn forgive(&self, account: AccountId) -> Result<(), StorageError> {
        self.change(Pardon::Account(account)).await
    }

    pub async fn forgive_worker(&self, worker: WorkerId) -> Result<(), StorageError> {
        self.change(Pardon::Worker(worker)).await
    }
}

/// Reasons of a newer version count for nothing here.
fn read(rows: &[sqlx::any::AnyRow]) -> Result<Vec<(Reason, u32)>, StorageError> {
    let mut marks = Vec::with_capacity(rows.len());
    for row in rows {
        let (reason, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(reason) = Reason::named(&reason) {
            marks.push((reason, u32::try_from(count).unwrap_or(u32::MAX)));
        }
    }
    Ok(marks)
}

impl Change for Marking {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let Self { mark, now } = self;
            let roles = sqlx::query("SELECT roles FROM accounts WHERE id = $1 AND id > 0");
            let roles = roles
                .bind(mark.account.0)
                .fetch_optional(&mut *connection)
                .await?;
            let Some(roles) = roles else { return Ok(false) };
            let roles = Roles::parse(roles.try_get(0)?);
            if roles.contains(Roles::TRUSTED) || roles.moderates() {
                return Ok(false);
            }
            // 0 stands for no worker: two unknowns would not be equal.
            let worker = mark.worker.map_or(0, |worker| worker.0);
            if !mark.reason.repeats() {
                let known = sqlx::query(
                    "SELECT id FROM suspicions WHERE account = $1 AND worker = $2 AND reason = $3",
                );
                let known = known
                    .bind(mark.account.0)
                    .bind(worker)
                    .bind(mark.reason.name());
                if known.fetch_optional(&mut *connection).await?.is_some() {
                    return Ok(false);
                }
            }
            let new = sqlx::query(
                "INSERT INTO suspicions (account, worker, reason, at) VALUES ($1, $2, $3, $4)",
            );
            let new = new
                .bind(mark.account.0)
                .bind(worker)
                .bind(mark.reason.name());
            new.bind(now.0).execute(connection).await?;
            Ok(true)
        })
    }
}

impl Change for Pardon {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let (pardon, whose) = match self {
                Self::Account(account) => ("DELETE FROM suspicions WHERE account = $1", account.0),
                Self::Worker(worker) => ("DELETE FROM suspicions WHERE worker = $1", worker.0),
            };
            sqlx::query(pardon).bind(whose).execute(connection).await?;
            Ok(())
        })
    }
}
