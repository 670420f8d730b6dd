//! Retention: old records are deleted, as bookkeepers close a year. These are settled rows of jobs, postings, the
//! entries of both, and messages to workers that expired long ago.
//!
//! The ledger grows by three entries per job, more than anything else here, so they cannot stay for ever. Their sums
//! stay: the transaction that removes entries adds them to each account's opening balance. So balances never change,
//! the whole still sums to zero, and an account's balance is still its opening balance plus its entries. Only the link
//! from an old balance to its jobs and postings is lost.
//!
//! A job is deleted as a whole: its entries bear the moment of its end, as those of a posting bear its own, and
//! everything up to one moment is deleted together. Deletion runs in small steps between other writes, and several
//! processes may run it side by side: each carries over exactly the entries that its own transaction removed.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::clock::wall_clock;
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

use super::entries::{sum_row, sums};
use super::rows::{Stored, all};
use super::script::{Column, Table, Verb, insert};
use super::write::Change;
use super::{StorageError, Store};

/// How long refused prompts count towards later blocks.
pub const HITS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Jobs and postings per step: a few hundredths of a second of the writer.
const STEP: u32 = 500;
/// Pause between steps, for other writes.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval when nothing is left.
const EVERY: Duration = Duration::from_secs(600);

static OPENINGS: Table = Table {
    verb: Verb::Insert("openings"),
    columns: &[Column::Number("account"), Column::Number("kudos")],
    tail: "ON CONFLICT (account) DO UPDATE SET kudos = openings.kudos + excluded.kudos",
};

/// Deletes the oldest records from before a moment: about `most` jobs, and as many postings.
#[derive(Debug)]
struct Forgetting {
    before: UnixMillis,
    most: u32,
}

const SO_MANY_JOBS: &str = "SELECT accepted_at + total_ms FROM settled WHERE accepted_at + total_ms < $1 \
                            ORDER BY accepted_at + total_ms LIMIT 1 OFFSET $2";
const SO_MANY_POSTINGS: &str =
    "SELECT at FROM postings WHERE at < $1 ORDER BY at LIMIT 1 OFFSET $2";

/// A deleted entry.
struct Removed(AccountId, Kudos);

impl Store {
    /// Deletes records of ended jobs after this time, until shutdown.
    pub fn keep_records(&self, time: Duration, tasks: &Tasks) {
        let (store, stopping) = (self.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(store.forget_on(time)).await });
    }

    /// Deletes some records from before a moment. Returns the number of jobs and postings, 0 when none are left.
    pub async fn forget_before(&self, before: UnixMillis) -> Result<u64, StorageError> {
        self.change(Forgetting { before, most: STEP }).await
    }

    async fn forget_on(self, time: Duration) {
        let (started, wall) = (Instant::now(), wall_clock());
        loop {
            // A wall clock that jumps ahead while the process runs must not delete recent records.
            let now = wall_clock().min(wall.after(started.elapsed()));
            let forgotten = self.forget_before(now.before(time)).await;
            let more = match forgotten {
                Ok(gone) => gone >= STEP.into(),
                Err(error) => {
                    debug!("deleting old records failed, retrying later: {error}");
                    false
                }
            };
            if more {
                sleep(PAUSE).await;
                continue;
            }
            if let Err(error) = self.expire_addresses(now, now.before(HITS_KEPT)).await {
                debug!("deleting old addresses failed, retrying later: {error}");
            }
            if let Err(error) = self.expire_replies(now).await {
                debug!("deleting old replies failed, retrying later: {error}");
            }
            sleep(EVERY).await;
        }
    }
}

impl Change for Forgetting {
    type Answer = u64;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(async move {
            let until = self.until(connection).await?;
            let jobs = sqlx::query("DELETE FROM settled WHERE accepted_at + total_ms <= $1");
            let jobs = jobs.bind(until).execute(&mut *connection).await?;
            let postings = sqlx::query("DELETE FROM postings WHERE at <= $1");
            let postings = postings.bind(until).execute(&mut *connection).await?;
            let costs = "DELETE FROM credit_entries WHERE job IS NOT NULL AND at <= $1";
            let costs = sqlx::query(costs).bind(until);
            costs.execute(&mut *connection).await?;
            let messages = sqlx::query("DELETE FROM worker_messages WHERE expires_at < $1");
            let messages = messages.bind(self.before.0);
            messages.execute(&mut *connection).await?;
            let entries = "DELETE FROM ledger WHERE at <= $1 RETURNING account, amount";
            let entries: Vec<Removed> =
                all(sqlx::query(entries).bind(until), &mut *connection).await?;
            let amounts = entries.into_iter();
            let carried = sums(amounts.map(|Removed(account, amount)| (account, amount)));
            insert(&OPENINGS, &carried, sum_row, connection).await?;
            Ok(jobs.rows_affected() + postings.rows_affected())
        })
    }
}

impl Forgetting {
    /// End of a step: the time up to which there are about `most` jobs or `most` postings, whichever is earlier.
    async fn until(&self, connection: &mut AnyConnection) -> Result<i64, StorageError> {
        let mut until = self.before.0.saturating_sub(1);
        for text in [SO_MANY_JOBS, SO_MANY_POSTINGS] {
            let row = sqlx::query(text).bind(self.before.0);
            let row = row.bind(i64::from(self.most) - 1);
            if let Some(row) = row.fetch_optional(&mut *connection).await? {
                until = until.min(row.try_get(0)?);
            }
        }
        Ok(until)
    }
}

impl Stored for Removed {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self(
            AccountId(row.try_get("account")?),
            Kudos(row.try_get("amount")?),
        ))
    }
}
