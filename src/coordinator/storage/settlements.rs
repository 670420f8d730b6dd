//! Settled jobs: one row a job, its ledger entries and the balances they change, all in one transaction.
//!
//! The job's id is the key. Whoever settles a job again is told the reward that stands there, and nothing is
//! written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sqlx::AnyConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::coordinator::kudos::{Entry, Settlement};
use crate::protocol::job::{AccountId, JobId, Kind, Kudos};

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
}

const REWARD: &str = "SELECT reward FROM settled WHERE job = $1";

const SETTLED: Table = Table {
    head: "INSERT INTO settled (job, request, account, worker, kind, model, state, reason, attempts, \
           prompt_tokens, completion_tokens, paid_tokens, reward, charge, accepted_at, queued_ms, \
           first_output_ms, total_ms) VALUES ",
    columns: 18,
    tail: " ON CONFLICT (job) DO NOTHING",
};
const LEDGER: Table = Table {
    head: "INSERT INTO ledger (job, account, worker, reason, amount, at) VALUES ",
    columns: 6,
    tail: "",
};
const BALANCES: Table = Table {
    head: "INSERT INTO balances (account, kudos) VALUES ",
    columns: 2,
    tail: " ON CONFLICT (account) DO UPDATE SET kudos = balances.kudos + excluded.kudos",
};

/// The most rows in one statement. Statements are kept by their number of rows, which is a power of two, so that
/// a connection prepares few of them.
const ROWS: usize = 64;

/// An insertion of many rows.
struct Table {
    head: &'static str,
    columns: usize,
    tail: &'static str,
}

/// The texts of the statements in use.
#[derive(Debug, Default)]
pub struct Statements {
    texts: HashMap<(&'static str, usize), Arc<str>>,
}

/// Settlements that are written together.
pub struct Batch<'a> {
    settlements: Vec<&'a Settlement>,
}

impl<'a> Batch<'a> {
    pub fn of(settlements: impl Iterator<Item = &'a Settlement>) -> Self {
        Self {
            settlements: settlements.collect(),
        }
    }

    /// Whether all of them were new. If not, what was written is to be rolled back.
    pub async fn write(
        &self,
        connection: &mut AnyConnection,
        statements: &mut Statements,
    ) -> Result<bool, StorageError> {
        let rows = self.settlements.as_slice();
        let inserted = insert(&SETTLED, rows, settled_row, connection, statements).await?;
        if inserted < rows.len() as u64 {
            return Ok(false);
        }
        let entries: Vec<_> = rows
            .iter()
            .flat_map(|settlement| with_entries(settlement))
            .collect();
        insert(&LEDGER, &entries, ledger_row, connection, statements).await?;
        let sums: Vec<_> = sums(&entries).into_iter().collect();
        insert(&BALANCES, &sums, balance_row, connection, statements).await?;
        Ok(true)
    }

    /// One of them, which may be settled already.
    pub async fn settle_one(
        settlement: &'a Settlement,
        connection: &mut AnyConnection,
        statements: &mut Statements,
    ) -> Result<Kudos, StorageError> {
        let one = Self::of(std::iter::once(settlement));
        if one.write(connection, statements).await? {
            return Ok(settlement.reward);
        }
        let row = sqlx::query(REWARD).bind(settlement.job.to_string());
        Ok(Kudos(row.fetch_one(connection).await?.try_get(0)?))
    }
}

fn with_entries(settlement: &Settlement) -> impl Iterator<Item = (&Settlement, &Entry)> {
    settlement
        .entries
        .iter()
        .map(move |entry| (settlement, entry))
}

/// Each account once, in the order of their ids: everybody locks them in the same order.
fn sums(entries: &[(&Settlement, &Entry)]) -> BTreeMap<AccountId, i64> {
    let mut sums = BTreeMap::new();
    for (_, entry) in entries {
        *sums.entry(entry.account).or_insert(0) += entry.amount.0;
    }
    sums
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

fn ledger_row((settlement, entry): &(&Settlement, &Entry), values: &mut Values) {
    let timing = settlement.timing;
    values.text(&settlement.job.to_string());
    values.number(entry.account.0);
    values.maybe(entry.worker.map(|worker| worker.0));
    values.text(entry.reason.word());
    values.number(entry.amount.0);
    values.number(timing.accepted_at.after(timing.total).0);
}

fn balance_row((account, sum): &(AccountId, i64), values: &mut Values) {
    values.number(account.0);
    values.number(*sum);
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Image => "image",
        Kind::Video => "video",
        Kind::Audio => "audio",
        Kind::Mesh => "3d",
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Inserts the rows, as many as possible in one statement; how many were new.
async fn insert<T>(
    table: &Table,
    mut rows: &[T],
    bind: fn(&T, &mut Values),
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<u64, StorageError> {
    let mut inserted = 0;
    while !rows.is_empty() {
        let (now, later) = rows.split_at(rows_in_one(rows.len()));
        let mut values = Values::for_rows(now.len(), table.columns);
        now.iter().for_each(|row| bind(row, &mut values));
        let text = AssertSqlSafe(statements.text(table, now.len()));
        let query = sqlx::query_with(text, values.arguments);
        inserted += query.execute(&mut *connection).await?.rows_affected();
        rows = later;
    }
    Ok(inserted)
}

/// The largest power of two that is not more than there are.
fn rows_in_one(rows: usize) -> usize {
    1 << rows.min(ROWS).ilog2()
}

impl Statements {
    fn text(&mut self, table: &Table, rows: usize) -> Arc<str> {
        let text = self.texts.entry((table.head, rows));
        text.or_insert_with(|| table.insertion(rows).into()).clone()
    }
}

impl Table {
    /// `INSERT … VALUES ($1, $2), ($3, $4) …`.
    fn insertion(&self, rows: usize) -> String {
        let row = |row: usize| {
            let numbers =
                (1..=self.columns).map(|column| format!("${}", row * self.columns + column));
            format!("({})", numbers.collect::<Vec<_>>().join(", "))
        };
        let rows: Vec<_> = (0..rows).map(row).collect();
        format!("{}{}{}", self.head, rows.join(", "), self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::{BALANCES, rows_in_one};

    #[test]
    fn a_statement_has_a_power_of_two_of_rows() {
        let sizes: Vec<_> = [1, 2, 3, 63, 64, 200].map(rows_in_one).into();
        assert_eq!(sizes, [1, 2, 2, 32, 64, 64]);
    }

    #[test]
    fn every_row_has_its_own_numbers() {
        let text = BALANCES.insertion(2);
        assert!(
            text.contains("VALUES ($1, $2), ($3, $4) ON CONFLICT"),
            "{text}"
        );
    }
}
