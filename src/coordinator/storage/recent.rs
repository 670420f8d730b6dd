//! The latest jobs, without prompts and results: delivered ones for the public list, and those of an account for its
//! owner.

use sqlx::Row;
use sqlx::any::AnyRow;

use muster_protocol::job::{AccountId, JobId, Kudos, MicroUsd, UnixMillis};

use super::rows::{Stored, all};
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentJob {
    pub job: String,
    pub kind: String,
    pub model: String,
    /// The worker's name; `None` if the worker was deleted.
    pub worker: Option<String>,
    pub reward: Kudos,
    /// Tokens of a text; otherwise the number of outputs, which is one.
    pub units: i64,
    pub first_output_millis: Option<i64>,
    pub total_millis: i64,
    pub ended_at: UnixMillis,
}

/// Most jobs read for the list, however many of them failed.
const MOST_LOOKED_AT: i64 = 1000;

/// The index on the end time gives the latest rows, and only these are joined.
const RECENT: &str = "SELECT latest.job, latest.kind, latest.model, workers.name AS worker_name, latest.reward, \
     latest.paid_tokens, latest.first_output_ms, latest.total_ms, latest.accepted_at FROM (\
     SELECT job, kind, model, state, worker, reward, paid_tokens, first_output_ms, total_ms, accepted_at \
     FROM settled ORDER BY accepted_at + total_ms DESC LIMIT $1\
     ) AS latest LEFT JOIN workers ON workers.id = latest.worker WHERE latest.state = 'delivered' \
     ORDER BY latest.accepted_at + latest.total_ms DESC LIMIT $2";

impl Store {
    /// The latest delivered jobs, newest first.
    pub async fn recent_jobs(&self, most: u32) -> Result<Vec<RecentJob>, StorageError> {
        let rows = sqlx::query(RECENT).bind(MOST_LOOKED_AT);
        all(rows.bind(i64::from(most)), &self.readers).await
    }
}

/// An ended job for its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountJob {
    pub job: String,
    pub kind: String,
    pub model: String,
    pub state: String,
    pub reason: String,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    pub charge: Kudos,
    /// `None` if the account did not pay in money.
    pub cost: Option<MicroUsd>,
    pub accepted_at: UnixMillis,
    pub total_millis: i64,
}

/// Job ids begin with a timestamp, so they order jobs of one millisecond.
const OF_ACCOUNT: &str = "SELECT job, kind, model, state, reason, prompt_tokens, completion_tokens, charge, cost, \
     accepted_at, total_ms FROM settled WHERE account = $1 \
     AND ($2 = '' OR accepted_at < COALESCE((SELECT accepted_at FROM settled WHERE job = $2), 0) \
     OR (accepted_at = COALESCE((SELECT accepted_at FROM settled WHERE job = $2), 0) AND job < $2)) \
     ORDER BY accepted_at DESC, job DESC LIMIT $3";

impl Store {
    /// The latest ended jobs of an account, newest first, or those before a job; none if that job's record was deleted.
    pub async fn jobs_of(
        &self,
        account: AccountId,
        before: Option<JobId>,
        most: u32,
    ) -> Result<Vec<AccountJob>, StorageError> {
        let before = before.map(|job| job.to_string()).unwrap_or_default();
        let rows = sqlx::query(OF_ACCOUNT).bind(account.0).bind(before);
        all(rows.bind(i64::from(most)), &self.readers).await
    }
}

impl Stored for AccountJob {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            job: row.try_get("job")?,
            kind: row.try_get("kind")?,
            model: row.try_get("model")?,
            state: row.try_get("state")?,
            reason: row.try_get("reason")?,
            prompt_tokens: row.try_get("prompt_tokens")?,
            completion_tokens: row.try_get("completion_tokens")?,
            charge: Kudos(row.try_get("charge")?),
            cost: row.try_get::<Option<i64>, _>("cost")?.map(MicroUsd),
            accepted_at: UnixMillis(row.try_get("accepted_at")?),
            total_millis: row.try_get("total_ms")?,
        })
    }
}

impl Stored for RecentJob {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let total_millis: i64 = row.try_get("total_ms")?;
        let accepted_at: i64 = row.try_get("accepted_at")?;
        let kind: String = row.try_get("kind")?;
        Ok(Self {
            job: row.try_get("job")?,
            model: row.try_get("model")?,
            worker: row.try_get("worker_name")?,
            reward: Kudos(row.try_get("reward")?),
            units: match kind.as_str() {
                "text" => row.try_get("paid_tokens")?,
                _ => 1,
            },
            kind,
            first_output_millis: row.try_get("first_output_ms")?,
            total_millis,
            ended_at: UnixMillis(accepted_at.saturating_add(total_millis)),
        })
    }
}
