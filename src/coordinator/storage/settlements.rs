//! Settled jobs: one row a job, its ledger entries and the balances they change, all in one transaction.
//!
//! The job's id is the key. Whoever settles a job again is told the reward that stands there, and nothing is
//! written.

use std::time::Duration;

use sqlx::Row;
use sqlx::{AnyConnection, AssertSqlSafe};

use crate::coordinator::kudos::{Settlement, State};
use crate::protocol::job::{JobId, Kind, Kudos};

use super::entries::Forgiven;
use super::insertion::{Statements, Table, insert};
use super::values::Values;
use super::write::Write;
use super::{StorageError, Store};

impl Store {
    /// Settles a job, once, however often it is asked to: the reward of the worker that ended it.
    pub async fn settle(&self, settlement: Settlement) -> Result<Kudos, StorageError> {
        self.write(|answer| Write::settle(Box::new(settlement), answer))
            .await
    }

    /// The reward of the worker that ended this job, if it is settled.
    pub async fn reward(&self, job: JobId) -> Result<Option<Kudos>, StorageError> {
        let row = sqlx::query(REWARD).bind(job.to_string());
        let row = row.fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(Kudos))
    }

    /// Whether the one of these jobs that there is was delivered; nothing, if it has not ended.
    pub async fn delivered(&self, jobs: &[JobId]) -> Result<Option<bool>, StorageError> {
        let places: Vec<String> = (1..=jobs.len()).map(|place| format!("${place}")).collect();
        let text = format!(
            "SELECT state FROM settled WHERE job IN ({}) LIMIT 1",
            places.join(", ")
        );
        let row = sqlx::query(AssertSqlSafe(text));
        let row = jobs.iter().fold(row, |row, job| row.bind(job.to_string()));
        let row = row.fetch_optional(&self.readers).await?;
        let state: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        Ok(state.map(|state| state == State::Delivered.word()))
    }
}

const REWARD: &str = "SELECT reward FROM settled WHERE job = $1";

const SETTLED: Table = Table {
    head: "INSERT INTO settled (job, request, account, worker, kind, model, state, reason, attempts, \
           prompt_tokens, completion_tokens, paid_tokens, reward, charge, accepted_at, queued_ms, \
           first_output_ms, total_ms) VALUES ",
    columns: 18,
    tail: " ON CONFLICT (job) DO NOTHING",
};
const RESULTS: Table = Table {
    head: "INSERT INTO results (job, request, worker, model, state, reason, output, charge, forgiven) VALUES ",
    columns: 9,
    tail: " ON CONFLICT (job) DO NOTHING",
};

/// Whether all of them were new.
pub async fn insert_settled(
    settlements: &[&Settlement],
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<bool, StorageError> {
    let inserted = insert(&SETTLED, settlements, settled_row, connection, statements).await?;
    Ok(inserted == settlements.len() as u64)
}

/// What they brought, where somebody waits for it.
pub async fn insert_results(
    settlements: &[&Settlement],
    forgiven: &Forgiven,
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<(), StorageError> {
    let settlements = settlements.iter();
    let results = settlements.filter_map(|it| Some((*it, it.result.as_deref()?, forgiven.of(*it))));
    let results: Vec<_> = results.collect();
    insert(&RESULTS, &results, result_row, connection, statements).await?;
    Ok(())
}

/// Of a job that is settled.
pub async fn reward(job: JobId, connection: &mut AnyConnection) -> Result<Kudos, StorageError> {
    let row = sqlx::query(REWARD).bind(job.to_string());
    Ok(Kudos(row.fetch_one(connection).await?.try_get(0)?))
}

fn settled_row(settlement: &&Settlement, values: &mut Values) {
    let timing = settlement.timing;
    values.text(&settlement.job.to_string());
    values.text(&settlement.request.to_string());
    values.number(settlement.account.0);
    values.maybe(settlement.worker.map(|worker| worker.0));
    values.text(kind_word(settlement.kind));
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
}

fn result_row((settlement, output, forgiven): &(&Settlement, &str, Kudos), values: &mut Values) {
    values.text(&settlement.job.to_string());
    values.text(&settlement.request.to_string());
    values.maybe(settlement.worker.map(|worker| worker.0));
    values.text(&settlement.model);
    values.text(settlement.state.word());
    values.text(settlement.reason);
    values.whole_text(output);
    values.number(settlement.charge.0);
    values.number(forgiven.0);
}

pub fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Image => "image",
        Kind::Video => "video",
        Kind::Audio => "audio",
        Kind::Mesh => "3d",
        Kind::Interrogation => "interrogation",
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
