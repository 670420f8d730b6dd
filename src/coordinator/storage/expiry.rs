//! Expiry of requests and their results. Expired rows are deleted in small steps, so that other writes do not wait;
//! leftovers of a crash are searched by a reader first.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};

use muster_protocol::job::{RequestId, UnixMillis};

use super::write::Change;
use super::{StorageError, Store};

/// Requests, or jobs without one, per step: a few hundredths of a second of the writer.
pub const STEP: i64 = 500;

impl Store {
    /// Extends the lifetime of requests, in steps. Never shortens it.
    pub async fn keep_requests(
        &self,
        ids: Vec<RequestId>,
        until: UnixMillis,
    ) -> Result<(), StorageError> {
        for some in ids.chunks(STEP.unsigned_abs() as usize) {
            let ids = some.to_vec();
            self.change(Keep { ids, until }).await?;
        }
        Ok(())
    }

    /// Deletes some expired requests, oldest first. True if there may be more.
    pub async fn forget_requests(&self, now: UnixMillis) -> Result<bool, StorageError> {
        let gone = self.change(Forget(now)).await?;
        Ok(gone >= STEP.unsigned_abs())
    }

    /// Deletes some results without a request that ended before this moment: the request was never stored, or was
    /// deleted first. Returns their number.
    pub async fn forget_lost_results(&self, before: UnixMillis) -> Result<usize, StorageError> {
        let lost = sqlx::query(LOST).bind(before.0).bind(STEP);
        let lost = lost.fetch_all(&self.readers).await?;
        let jobs = lost.iter().map(|row| row.try_get(0));
        let jobs: Vec<String> = jobs.collect::<Result<_, _>>()?;
        let found = jobs.len();
        if found > 0 {
            self.change(ForgetResults(jobs)).await?;
        }
        Ok(found)
    }
}

/// The end of a job is in its record; a job without one ended long ago.
const LOST: &str = "SELECT results.job FROM results \
     WHERE NOT EXISTS (SELECT 1 FROM requests WHERE requests.id = results.request) \
     AND NOT EXISTS (SELECT 1 FROM settled WHERE settled.job = results.job \
     AND settled.accepted_at + settled.total_ms >= $1) LIMIT $2";

/// Requests per statement.
const AT_ONCE: usize = 8;
const KEEP: &str = "UPDATE requests SET expires_at = $1 WHERE expires_at < $1 \
                    AND id IN ($2, $3, $4, $5, $6, $7, $8, $9)";

#[derive(Debug)]
struct Keep {
    ids: Vec<RequestId>,
    until: UnixMillis,
}

impl Change for Keep {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            for some in self.ids.chunks(AT_ONCE) {
                let mut kept = sqlx::query(KEEP).bind(self.until.0);
                // Unused parameters repeat the last one.
                for place in 0..AT_ONCE {
                    kept = kept.bind(some[place.min(some.len() - 1)].to_string());
                }
                kept.execute(&mut *connection).await?;
            }
            Ok(())
        })
    }
}

/// Deletes requests that expired before this moment.
#[derive(Debug)]
struct Forget(UnixMillis);

/// In one transaction, since both are of the same requests.
const FORGET: [&str; 2] = [
    "DELETE FROM results WHERE request IN \
     (SELECT id FROM requests WHERE expires_at <= $1 ORDER BY expires_at, id LIMIT $2)",
    "DELETE FROM requests WHERE id IN \
     (SELECT id FROM requests WHERE expires_at <= $1 ORDER BY expires_at, id LIMIT $2)",
];

impl Change for Forget {
    type Answer = u64;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(async move {
            let mut gone = 0;
            for text in FORGET {
                let some = sqlx::query(text).bind(self.0.0).bind(STEP);
                gone = some.execute(&mut *connection).await?.rows_affected();
            }
            Ok(gone)
        })
    }
}

#[derive(Debug)]
struct ForgetResults(Vec<String>);

impl Change for ForgetResults {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            for job in &self.0 {
                let gone = sqlx::query("DELETE FROM results WHERE job = $1").bind(&**job);
                gone.execute(&mut *connection).await?;
            }
            Ok(())
        })
    }
}
