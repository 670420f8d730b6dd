//! Suspicion marks against accounts and their workers. Their sum is stored with the user, in the same transaction.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::BoxFuture;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{AnyConnection, Row};

use crate::values::Roles;
use crate::values::suspicion::{Mark, Reason, total};
use muster_protocol::job::{AccountId, UnixMillis, WorkerId};

use super::write::Change;
use super::{StorageError, Store};

const OF_ACCOUNT: &str =
    "SELECT reason, COUNT(*) FROM suspicions WHERE account = $1 GROUP BY reason";

#[derive(Debug)]
struct Marking {
    mark: Mark,
    now: UnixMillis,
}

/// The scope of a pardon.
#[derive(Debug)]
enum Pardon {
    /// All marks of an account and its workers.
    Account(AccountId),
    Worker(WorkerId),
}

impl Store {
    /// True if the mark counts: trusted and anonymous accounts get none, and most reasons count once. A known mark is
    /// skipped without a write.
    pub async fn mark(&self, mark: Mark, now: UnixMillis) -> Result<bool, StorageError> {
        if !mark.reason.repeats() {
            let known = known(&mark).fetch_optional(&self.readers).await?;
            if known.is_some() {
                return Ok(false);
            }
        }
        self.change(Marking { mark, now }).await
    }

    /// Number of marks per reason of an account and its workers.
    pub async fn marks(&self, account: AccountId) -> Result<Vec<(Reason, u32)>, StorageError> {
        let rows = sqlx::query(OF_ACCOUNT);
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

    /// Marks of all workers that have any.
    pub async fn marks_of_workers(
        &self,
    ) -> Result<HashMap<WorkerId, Vec<(Reason, u32)>>, StorageError> {
        let rows = sqlx::query(
            "SELECT reason, COUNT(*), worker FROM suspicions WHERE worker <> 0 GROUP BY worker, reason",
        );
        let rows = rows.fetch_all(&self.readers).await?;
        let mut marks: HashMap<WorkerId, Vec<(Reason, u32)>> = HashMap::new();
        for row in &rows {
            let worker = WorkerId(row.try_get(2)?);
            marks.entry(worker).or_default().extend(mark_in(row)?);
        }
        Ok(marks)
    }

    pub async fn forgive(&self, account: AccountId) -> Result<(), StorageError> {
        self.change(Pardon::Account(account)).await
    }

    pub async fn forgive_worker(&self, worker: WorkerId) -> Result<(), StorageError> {
        self.change(Pardon::Worker(worker)).await
    }
}

/// 0 stands for no worker, because NULLs would not be equal.
fn number(mark: &Mark) -> i64 {
    mark.worker.map_or(0, |worker| worker.0)
}

fn known(mark: &Mark) -> Query<'static, sqlx::Any, AnyArguments> {
    let known =
        sqlx::query("SELECT id FROM suspicions WHERE account = $1 AND worker = $2 AND reason = $3");
    let known = known.bind(mark.account.0).bind(number(mark));
    known.bind(mark.reason.name())
}

fn read(rows: &[AnyRow]) -> Result<Vec<(Reason, u32)>, StorageError> {
    rows.iter()
        .filter_map(|row| mark_in(row).transpose())
        .collect()
}

/// Reasons of newer versions are ignored.
fn mark_in(row: &AnyRow) -> Result<Option<(Reason, u32)>, StorageError> {
    let (reason, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Reason::named(&reason).map(|reason| (reason, count)))
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
            if !mark.reason.repeats()
                && known(mark)
                    .fetch_optional(&mut *connection)
                    .await?
                    .is_some()
            {
                return Ok(false);
            }
            let new = sqlx::query(
                "INSERT INTO suspicions (account, worker, reason, at) VALUES ($1, $2, $3, $4)",
            );
            let new = new
                .bind(mark.account.0)
                .bind(number(mark))
                .bind(mark.reason.name());
            new.bind(now.0).execute(&mut *connection).await?;
            add_up(mark.account, connection).await?;
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
            match self {
                Self::Account(account) => forgive(*account, connection).await?,
                Self::Worker(worker) => forgive_worker(*worker, connection).await?,
            }
            Ok(())
        })
    }
}

/// All marks of an account and its workers.
pub async fn forgive(
    account: AccountId,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let forgiven = sqlx::query("DELETE FROM suspicions WHERE account = $1").bind(account.0);
    forgiven.execute(&mut *connection).await?;
    add_up(account, connection).await
}

async fn forgive_worker(
    worker: WorkerId,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let forgiven = sqlx::query("DELETE FROM suspicions WHERE worker = $1 RETURNING account");
    let forgiven = forgiven.bind(worker.0).fetch_all(&mut *connection).await?;
    let accounts = forgiven.iter().map(|row| row.try_get(0));
    let accounts: BTreeSet<i64> = accounts.collect::<Result<_, _>>()?;
    for account in accounts {
        add_up(AccountId(account), connection).await?;
    }
    Ok(())
}

/// Updates the stored sum, which users and moderators see and transfers check.
async fn add_up(account: AccountId, connection: &mut AnyConnection) -> Result<(), StorageError> {
    let rows = sqlx::query(OF_ACCOUNT).bind(account.0);
    let marks = read(&rows.fetch_all(&mut *connection).await?)?;
    let sum = sqlx::query("UPDATE people SET suspicion = $1 WHERE account = $2");
    let sum = sum.bind(i64::from(total(&marks))).bind(account.0);
    sum.execute(connection).await?;
    Ok(())
}
