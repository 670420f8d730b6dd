//! Money of accounts in micro-USD: balances, holds for open jobs, and costs of ended ones. A hold takes its amount from
//! the balance; the transaction that settles the job gives back the difference to the cost.
//!
//! | file | contents |
//! | --- | --- |
//! | `holds` | holds: made, and released where jobs do not run |

mod holds;

pub use holds::{CreditHold, CreditOutcome, CreditRelease, RequestCount};

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::billing::{Funds, MicroUsd};
use crate::kudos::Settlement;
use muster_protocol::job::{AccountId, JobId, UnixMillis};

use super::rows::{Stored, first};
use super::write::Change;
use super::{StorageError, Store};
use holds::{LostCreditRelease, LostHolds, OwnedCreditHold};

/// Balances of an account on one UTC day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CreditRow {
    pub paid: MicroUsd,
    pub promotional: MicroUsd,
    /// Used part of the day's free credits.
    pub free_used: MicroUsd,
    /// Counted requests of the day.
    pub requests: u32,
}

/// Credits of an account and the sum of its holds, from one query: a settlement moves credits between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountCredits {
    pub row: CreditRow,
    pub held: MicroUsd,
}

/// Credits added by the operator.
#[derive(Debug, Clone, Copy)]
pub struct CreditGrant {
    pub account: AccountId,
    pub amount: MicroUsd,
    pub kind: CreditKind,
    pub now: UnixMillis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditKind {
    Paid,
    /// Spent first.
    Promotional,
}

/// A deleted hold.
struct ReleasedHold {
    account: AccountId,
    funds: Funds,
    day: i64,
}

const DAY_MILLIS: i64 = 86_400_000;

const CREDITS: &str = "SELECT paid, promotional, CASE WHEN day = $1 THEN free_used ELSE 0 END AS free_used, \
     CASE WHEN day = $1 THEN requests ELSE 0 END AS requests, \
     CAST((SELECT COALESCE(SUM(promotional + free + paid), 0) FROM credit_holds WHERE account = $2) AS BIGINT) AS held \
     FROM credits WHERE account = $2";

/// Resets the counters on a new day, and locks the row.
const BEGIN_DAY: &str = "INSERT INTO credits (account, paid, promotional, day, free_used, requests) \
     VALUES ($1, 0, 0, $2, 0, 0) ON CONFLICT (account) DO UPDATE SET \
     free_used = CASE WHEN credits.day = excluded.day THEN credits.free_used ELSE 0 END, \
     requests = CASE WHEN credits.day = excluded.day THEN credits.requests ELSE 0 END, \
     day = excluded.day RETURNING paid, promotional, free_used, requests";
const GIVE_BACK: &str = "UPDATE credits SET promotional = promotional + $1, \
     free_used = free_used - CASE WHEN day = $2 THEN $3 ELSE 0 END, paid = paid + $4 WHERE account = $5";
const REMOVE_HOLD: &str =
    "DELETE FROM credit_holds WHERE job = $1 RETURNING account, promotional, free, paid, day";
const INSERT_ENTRY: &str = "INSERT INTO credit_entries (account, job, promotional, free, paid, at) \
     VALUES ($1, $2, $3, $4, $5, $6)";

impl Store {
    pub async fn credits(
        &self,
        account: AccountId,
        now: UnixMillis,
    ) -> Result<AccountCredits, StorageError> {
        let row = sqlx::query(CREDITS).bind(day(now)).bind(account.0);
        Ok(first(row, &self.readers).await?.unwrap_or_default())
    }

    /// Holds the whole amount, or nothing.
    pub async fn hold_credits(&self, hold: CreditHold) -> Result<CreditOutcome, StorageError> {
        let owner = self.owner();
        self.change(OwnedCreditHold { hold, owner }).await
    }

    pub async fn release_credits(&self, release: CreditRelease) -> Result<(), StorageError> {
        self.change(release).await
    }

    /// Releases holds of earlier coordinators, except for the `kept` jobs. Returns the number of released holds.
    pub async fn release_credits_of_fenced(&self, kept: Vec<JobId>) -> Result<usize, StorageError> {
        self.release_lost_credits(LostHolds::Fenced, kept).await
    }

    /// Releases this coordinator's holds from before a time, except for the `kept` jobs. Returns the number of released
    /// holds.
    pub async fn release_credits_before(
        &self,
        before: UnixMillis,
        kept: Vec<JobId>,
    ) -> Result<usize, StorageError> {
        let of = LostHolds::Before(before);
        self.release_lost_credits(of, kept).await
    }

    async fn release_lost_credits(
        &self,
        of: LostHolds,
        kept: Vec<JobId>,
    ) -> Result<usize, StorageError> {
        let (kept, owner) = (kept.into_iter().collect(), self.owner());
        self.change(LostCreditRelease { of, kept, owner }).await
    }

    /// Returns the new balances.
    pub async fn add_credits(&self, grant: CreditGrant) -> Result<CreditRow, StorageError> {
        self.change(grant).await
    }
}

/// Turns the holds of these jobs into their costs. A job whose hold was released is not charged.
pub async fn settle(
    settlements: &[&Settlement],
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    for settlement in settlements {
        let Some(cost) = settlement.cost else {
            continue;
        };
        let Some(hold) = remove(settlement.job, connection).await? else {
            let free = sqlx::query("UPDATE settled SET cost = 0 WHERE job = $1");
            let free = free.bind(settlement.job.to_string());
            free.execute(&mut *connection).await?;
            continue;
        };
        let spent = hold.funds.part(cost);
        let rest = ReleasedHold {
            funds: hold.funds.minus(spent),
            ..hold
        };
        give_back(&rest, connection).await?;
        if spent.total().0 > 0 {
            let entry = CreditEntry {
                account: hold.account,
                job: Some(settlement.job),
                amount: Funds::default().minus(spent),
                at: settlement.timing.accepted_at.after(settlement.timing.total),
            };
            entry.append(connection).await?;
        }
    }
    Ok(())
}

struct CreditEntry {
    account: AccountId,
    job: Option<JobId>,
    amount: Funds,
    at: UnixMillis,
}

impl CreditEntry {
    async fn append(&self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let row = sqlx::query(INSERT_ENTRY).bind(self.account.0);
        let row = row
            .bind(self.job.map(|job| job.to_string()))
            .bind(self.amount.promotional.0)
            .bind(self.amount.free.0)
            .bind(self.amount.paid.0)
            .bind(self.at.0);
        row.execute(connection).await?;
        Ok(())
    }
}

impl CreditRow {
    /// Spendable credits, with this daily allowance.
    pub fn funds(&self, allowance: MicroUsd) -> Funds {
        Funds {
            promotional: self.promotional,
            free: MicroUsd((allowance.0 - self.free_used.0).max(0)),
            paid: self.paid,
        }
    }
}

impl Change for CreditGrant {
    type Answer = CreditRow;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<CreditRow, StorageError>> {
        Box::pin(async move {
            begin_day(self.account, self.now, connection).await?;
            let amount = match self.kind {
                CreditKind::Paid => Funds {
                    paid: self.amount,
                    ..Funds::default()
                },
                CreditKind::Promotional => Funds {
                    promotional: self.amount,
                    ..Funds::default()
                },
            };
            let added = ReleasedHold {
                account: self.account,
                funds: amount,
                day: day(self.now),
            };
            give_back(&added, connection).await?;
            let entry = CreditEntry {
                account: self.account,
                job: None,
                amount,
                at: self.now,
            };
            entry.append(connection).await?;
            begin_day(self.account, self.now, connection).await
        })
    }
}

async fn begin_day(
    account: AccountId,
    now: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<CreditRow, StorageError> {
    let row = sqlx::query(BEGIN_DAY).bind(account.0).bind(day(now));
    let row = row.fetch_one(connection).await?;
    CreditRow::load(&row)
}

async fn remove(
    job: JobId,
    connection: &mut AnyConnection,
) -> Result<Option<ReleasedHold>, StorageError> {
    let row = sqlx::query(REMOVE_HOLD).bind(job.to_string());
    first(row, connection).await
}

/// Free credits of an earlier day are not returned: each day has new ones.
async fn give_back(
    removed: &ReleasedHold,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let given = sqlx::query(GIVE_BACK)
        .bind(removed.funds.promotional.0)
        .bind(removed.day)
        .bind(removed.funds.free.0)
        .bind(removed.funds.paid.0)
        .bind(removed.account.0);
    given.execute(connection).await?;
    Ok(())
}

/// UTC days since 1970-01-01.
fn day(now: UnixMillis) -> i64 {
    now.0.div_euclid(DAY_MILLIS)
}

impl Stored for CreditRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let amount = |name| row.try_get(name).map(MicroUsd);
        let requests: i64 = row.try_get("requests")?;
        Ok(Self {
            paid: amount("paid")?,
            promotional: amount("promotional")?,
            free_used: amount("free_used")?,
            requests: u32::try_from(requests).unwrap_or(0),
        })
    }
}

impl Stored for AccountCredits {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            row: CreditRow::load(row)?,
            held: MicroUsd(row.try_get("held")?),
        })
    }
}

impl Stored for ReleasedHold {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let amount = |name| row.try_get(name).map(MicroUsd);
        Ok(Self {
            account: AccountId(row.try_get("account")?),
            funds: Funds {
                promotional: amount("promotional")?,
                free: amount("free")?,
                paid: amount("paid")?,
            },
            day: row.try_get("day")?,
        })
    }
}
