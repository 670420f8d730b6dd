//! Holds of credits: created before jobs are queued, and released for jobs that do not run.

use std::collections::HashSet;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};

use super::{begin_day, day, give_back, remove};
use crate::billing::{Funds, MicroUsd};
use crate::storage::StorageError;
use crate::storage::write::Change;
use muster_protocol::job::{AccountId, JobId, UnixMillis};

/// A hold of credits for a request, before its jobs are queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreditHold {
    pub account: AccountId,
    /// With the maximum cost of each.
    pub jobs: Vec<(JobId, MicroUsd)>,
    /// Free credits of a day.
    pub allowance: MicroUsd,
    pub count: RequestCount,
    pub now: UnixMillis,
}

/// Whether the request counts towards the daily limit of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestCount {
    Uncounted,
    /// At most this many requests a day, unless the account has paid credits.
    UpTo(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditOutcome {
    Held,
    /// The missing amount.
    Missing(MicroUsd),
    /// The daily limit of requests is reached.
    NoRequests,
}

/// Jobs that were not queued: their holds are released, and the request is not counted.
#[derive(Debug, Clone)]
pub struct CreditRelease {
    pub account: AccountId,
    pub jobs: Vec<JobId>,
    pub was_counted: bool,
    pub now: UnixMillis,
}

#[derive(Debug)]
pub struct OwnedCreditHold {
    pub hold: CreditHold,
    pub owner: i64,
}

/// Releases holds whose jobs are gone, and gives those of the `kept` jobs this owner.
#[derive(Debug)]
pub struct LostCreditRelease {
    pub of: LostHolds,
    pub kept: HashSet<JobId>,
    pub owner: i64,
}

#[derive(Debug, Clone, Copy)]
pub enum LostHolds {
    /// Holds of fenced coordinators.
    Fenced,
    /// Holds of this coordinator from before a moment.
    Before(UnixMillis),
}

const TAKE: &str = "UPDATE credits SET promotional = promotional - $1, free_used = free_used + $2, \
     paid = paid - $3, requests = requests + $4 WHERE account = $5";
const INSERT_HOLD: &str = "INSERT INTO credit_holds (job, account, promotional, free, paid, day, at, owner) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const PAID_HOLDS: &str =
    "SELECT CAST(COALESCE(SUM(paid), 0) AS BIGINT) FROM credit_holds WHERE account = $1";
const OF_FENCED: &str =
    "SELECT job FROM credit_holds WHERE owner NOT IN (SELECT epoch FROM coordinators)";
const OLD: &str = "SELECT job FROM credit_holds WHERE at < $1 AND ($2 = 0 OR owner = $2)";
const TAKE_OVER: &str = "UPDATE credit_holds SET owner = $1 \
     WHERE owner <> $1 AND owner NOT IN (SELECT epoch FROM coordinators)";

impl Change for OwnedCreditHold {
    type Answer = CreditOutcome;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<CreditOutcome, StorageError>> {
        Box::pin(async move {
            let hold = &self.hold;
            let row = begin_day(hold.account, hold.now, connection).await?;
            if let RequestCount::UpTo(most) = hold.count
                && row.requests >= most
                && row
                    .paid
                    .0
                    .saturating_add(paid_holds(hold.account, connection).await?)
                    <= 0
            {
                return Ok(CreditOutcome::NoRequests);
            }
            let funds = row.funds(hold.allowance);
            let wanted: MicroUsd = hold.jobs.iter().map(|(_, amount)| *amount).sum();
            if wanted > funds.total() {
                let missing = wanted.0.saturating_sub(funds.total().0);
                return Ok(CreditOutcome::Missing(MicroUsd(missing)));
            }
            hold.take(funds.part(wanted), connection).await?;
            hold.insert_holds(funds, self.owner, connection).await?;
            Ok(CreditOutcome::Held)
        })
    }
}

/// Paid credits held for open jobs.
async fn paid_holds(
    account: AccountId,
    connection: &mut AnyConnection,
) -> Result<i64, StorageError> {
    let sum = sqlx::query(PAID_HOLDS).bind(account.0);
    Ok(sum.fetch_one(connection).await?.try_get(0)?)
}

impl CreditHold {
    async fn take(&self, part: Funds, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let counted = self.count != RequestCount::Uncounted;
        let taken = sqlx::query(TAKE)
            .bind(part.promotional.0)
            .bind(part.free.0)
            .bind(part.paid.0)
            .bind(i64::from(counted))
            .bind(self.account.0);
        taken.execute(connection).await?;
        Ok(())
    }

    async fn insert_holds(
        &self,
        mut funds: Funds,
        owner: i64,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        for (job, amount) in &self.jobs {
            let part = funds.part(*amount);
            funds = funds.minus(part);
            let row = sqlx::query(INSERT_HOLD)
                .bind(job.to_string())
                .bind(self.account.0)
                .bind(part.promotional.0)
                .bind(part.free.0)
                .bind(part.paid.0)
                .bind(day(self.now))
                .bind(self.now.0)
                .bind(owner);
            row.execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl Change for CreditRelease {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            for job in &self.jobs {
                if let Some(removed) = remove(*job, connection).await? {
                    give_back(&removed, connection).await?;
                }
            }
            if self.was_counted {
                let uncount = "UPDATE credits SET requests = requests - 1 \
                               WHERE account = $1 AND day = $2 AND requests > 0";
                let uncount = sqlx::query(uncount).bind(self.account.0);
                let uncount = uncount.bind(day(self.now));
                uncount.execute(connection).await?;
            }
            Ok(())
        })
    }
}

impl Change for LostCreditRelease {
    type Answer = usize;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<usize, StorageError>> {
        Box::pin(async move {
            let lost = match self.of {
                LostHolds::Fenced => sqlx::query(OF_FENCED),
                LostHolds::Before(before) => sqlx::query(OLD).bind(before.0).bind(self.owner),
            };
            let mut released = 0;
            for row in lost.fetch_all(&mut *connection).await? {
                let job: String = row.try_get("job")?;
                let job = job.parse().map(JobId);
                let Some(job) = job.ok().filter(|job| !self.kept.contains(job)) else {
                    continue;
                };
                if let Some(removed) = remove(job, connection).await? {
                    give_back(&removed, connection).await?;
                    released += 1;
                }
            }
            let kept = sqlx::query(TAKE_OVER).bind(self.owner);
            kept.execute(connection).await?;
            Ok(released)
        })
    }
}
