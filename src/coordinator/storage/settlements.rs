//! Settled jobs: one row a job, its ledger entries and the balances they change, all in one transaction.
//!
//! The job's id is the key. Settling a job again writes nothing and returns the recorded reward.

use std::time::Duration;

use sqlx::Row;
use sqlx::{Any, AssertSqlSafe, Executor};

use crate::kudos::{Settlement, State};
use muster_protocol::job::{AccountId, JobId, Kind, Kudos, MicroUsd, RequestId};

use super::entries::Forgiven;
use super::script::{Column, Script, Table, Verb};
use super::values::Values;
use super::write::Write;
use super::{StorageError, Store};

impl Store {
    /// Settles a job, idempotently. Returns the reward of the worker that ended it.
    pub async fn settle(&self, settlement: Settlement) -> Result<Kudos, StorageError> {
        self.write(|answer| Write::settle(Box::new(settlement), answer))
            .await
    }

    /// The reward of the worker that ended this job; `None` if the job is not settled.
    pub async fn reward(&self, job: JobId) -> Result<Option<Kudos>, StorageError> {
        reward(job, &self.readers).await
    }

    /// The stored end state of an account's job; `None` if the job is not settled.
    pub async fn settled_state(
        &self,
        job: JobId,
        account: AccountId,
    ) -> Result<Option<String>, StorageError> {
        let row = sqlx::query("SELECT state FROM settled WHERE job = $1 AND account = $2");
        let row = row.bind(job.to_string()).bind(account.0);
        let row = row.fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Cost of a request's ended jobs in money, and the duration of the slowest in milliseconds.
    pub async fn media_figures(&self, request: RequestId) -> Result<(MicroUsd, u64), StorageError> {
        let row = sqlx::query(FIGURES).bind(request.to_string());
        let row = row.fetch_one(&self.readers).await?;
        let millis: i64 = row.try_get(1)?;
        Ok((MicroUsd(row.try_get(0)?), millis.max(0).cast_unsigned()))
    }

    /// Whether the job of this kind among these ids was delivered; `None` if it has not ended.
    pub async fn delivered(
        &self,
        jobs: &[JobId],
        kind: Kind,
    ) -> Result<Option<bool>, StorageError> {
        let places: Vec<String> = (1..=jobs.len()).map(|place| format!("${place}")).collect();
        let text = format!(
            "SELECT state FROM settled WHERE job IN ({}) AND kind = ${} LIMIT 1",
            places.join(", "),
            jobs.len() + 1
        );
        let row = sqlx::query(AssertSqlSafe(text));
        let row = jobs.iter().fold(row, |row, job| row.bind(job.to_string()));
        let row = row.bind(kind.word()).fetch_optional(&self.readers);
        let row = row.await?;
        let state: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        Ok(state.map(|state| state == State::Delivered.word()))
    }
}

const FIGURES: &str = "SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT), \
     CAST(COALESCE(MAX(total_ms - COALESCE(queued_ms, 0)), 0) AS BIGINT) FROM settled WHERE request = $1";
const REWARD: &str = "SELECT reward FROM settled WHERE job = $1";

/// A job that is settled already fails the statement; one that is not has no result either, since both are written
/// together, and results are deleted first.
static SETTLED: Table = Table {
    verb: Verb::Insert("settled"),
    columns: &[
        Column::Text("job"),
        Column::Text("request"),
        Column::Number("account"),
        Column::Number("worker"),
        Column::Text("kind"),
        Column::Text("model"),
        Column::Text("state"),
        Column::Text("reason"),
        Column::Number("attempts"),
        Column::Number("prompt_tokens"),
        Column::Number("completion_tokens"),
        Column::Number("paid_tokens"),
        Column::Number("reward"),
        Column::Number("charge"),
        Column::Number("accepted_at"),
        Column::Number("queued_ms"),
        Column::Number("first_output_ms"),
        Column::Number("total_ms"),
        Column::Number("cost"),
    ],
    tail: "",
};
static RESULTS: Table = Table {
    verb: Verb::Insert("results"),
    columns: &[
        Column::Text("job"),
        Column::Text("request"),
        Column::Number("worker"),
        Column::Text("model"),
        Column::Text("state"),
        Column::Text("reason"),
        Column::Text("output"),
        Column::Number("charge"),
    ],
    tail: "",
};
static FORGIVEN: Table = Table {
    verb: Verb::Update("results SET forgiven = news.forgiven"),
    columns: &[Column::Text("job"), Column::Number("forgiven")],
    tail: "WHERE results.job = news.job",
};

/// Adds the jobs, and the results that a client will fetch.
pub fn insert_settled(settlements: &[&Settlement], script: &mut Script) {
    script.add(&SETTLED, settlements, settled_row);
    let results = settlements.iter();
    let results: Vec<_> = results
        .filter_map(|it| Some((*it, it.result.as_deref()?)))
        .collect();
    script.add(&RESULTS, &results, result_row);
}

/// Records the forgiven part of the charges.
pub fn note_forgiven(settlements: &[&Settlement], forgiven: &Forgiven, script: &mut Script) {
    let waited_for = settlements.iter().filter(|it| it.result.is_some());
    let sums = waited_for.map(|it| (it.job, forgiven.of(*it)));
    let sums: Vec<_> = sums.filter(|(_, sum)| sum.0 > 0).collect();
    script.add(&FORGIVEN, &sums, forgiven_row);
}

/// `None` if the job is not settled.
pub async fn reward(
    job: JobId,
    source: impl Executor<'_, Database = Any>,
) -> Result<Option<Kudos>, StorageError> {
    let row = sqlx::query(REWARD).bind(job.to_string());
    let row = row.fetch_optional(source).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.map(Kudos))
}

fn settled_row(settlement: &&Settlement, values: &mut Values) {
    let timing = settlement.timing;
    values.text(&settlement.job.to_string());
    values.text(&settlement.request.to_string());
    values.number(settlement.account.0);
    values.maybe(settlement.worker.map(|worker| worker.0));
    values.text(settlement.kind.word());
    values.text(&settlement.model);
    values.text(settlement.state.word());
    values.text(settlement.reason);
    values.number(settlement.attempts.into());
    values.number(settlement.usage.prompt_tokens.into());
    values.number(settlement.usage.completion_tokens.into());
    values.number(settlement.paid_tokens.into());
    values.number(settlement.reward.0);
    values.number(settlement.charge.0);
    values.number(timing.accepted_at.0);
    values.maybe(timing.queued.map(millis));
    values.maybe(timing.first_output.map(millis));
    values.number(millis(timing.total));
    values.maybe(settlement.cost.map(|cost| cost.0));
}

fn result_row((settlement, output): &(&Settlement, &str), values: &mut Values) {
    values.text(&settlement.job.to_string());
    values.text(&settlement.request.to_string());
    values.maybe(settlement.worker.map(|worker| worker.0));
    values.text(&settlement.model);
    values.text(settlement.state.word());
    values.text(settlement.reason);
    values.whole_text(output);
    values.number(settlement.charge.0);
}

fn forgiven_row((job, sum): &(JobId, Kudos), values: &mut Values) {
    values.text(&job.to_string());
    values.number(sum.0);
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
