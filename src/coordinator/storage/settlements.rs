//! Settled jobs: one row a job, its ledger entries and the balances they change, all in one transaction.
//!
//! The job's id is the key. Whoever settles a job again is told the reward that stands there, and nothing is
//! written.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::coordinator::kudos::{Entry, Fallen, Settlement, State, forgiven};
use crate::protocol::job::{AccountId, JobId, Kind, Kudos};

use super::insertion::{Statements, Table, insert, insert_returning};
use super::records::note_records;
use super::rows::Stored;
use super::shared_keys::spend;
use super::stats;
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

    /// Whether the job was delivered; nothing, if it has not ended.
    pub async fn delivered(&self, job: JobId) -> Result<Option<bool>, StorageError> {
        let row = sqlx::query("SELECT state FROM settled WHERE job = $1").bind(job.to_string());
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
    head: "INSERT INTO results (job, request, worker, model, state, reason, output, charge) VALUES ",
    columns: 8,
    tail: " ON CONFLICT (job) DO NOTHING",
};
pub const LEDGER: Table = Table {
    head: "INSERT INTO ledger (job, account, worker, reason, amount, at) VALUES ",
    columns: 6,
    tail: "",
};
const BALANCES: Table = Table {
    head: "INSERT INTO balances (account, kudos) VALUES ",
    columns: 2,
    tail: " ON CONFLICT (account) DO UPDATE SET kudos = balances.kudos + excluded.kudos \
           RETURNING account, kudos, floor",
};

/// A balance after it has changed.
struct Balance {
    account: AccountId,
    kudos: Kudos,
    floor: Option<Kudos>,
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
        let amounts = entries
            .iter()
            .map(|(_, entry)| (entry.account, entry.amount));
        let fallen = change_balances(&sums(amounts), connection, statements).await?;
        if !fallen.is_empty() {
            forgive(&entries, &fallen, connection, statements).await?;
        }
        note_records(rows, connection, statements).await?;
        let by_key = rows
            .iter()
            .filter_map(|row| Some((row.shared_key?, row.charge)));
        spend(by_key, connection).await?;
        let with_result = rows
            .iter()
            .filter_map(|row| Some((*row, row.result.as_deref()?)));
        let results: Vec<_> = with_result.collect();
        insert(&RESULTS, &results, result_row, connection, statements).await?;
        stats::note(rows, connection, statements).await?;
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

/// Adds to the balances; which of them have fallen below their floors by that.
async fn change_balances(
    sums: &[(AccountId, i64)],
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<HashMap<AccountId, Fallen>, StorageError> {
    let balances: Vec<Balance> =
        insert_returning(&BALANCES, sums, sum_row, connection, statements).await?;
    let taken: HashMap<AccountId, i64> = sums.iter().copied().collect();
    let fallen = balances.iter().filter_map(|balance| {
        let (account, floor) = (balance.account, balance.floor?);
        let taken = *taken.get(&account)?;
        let before = Kudos(balance.kudos.0 - taken);
        let has_fallen = taken < 0 && balance.kudos < floor;
        has_fallen.then_some((account, Fallen { before, floor }))
    });
    Ok(fallen.collect())
}

/// The house pays what is missing.
async fn forgive(
    entries: &[(&Settlement, &Entry)],
    fallen: &HashMap<AccountId, Fallen>,
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<(), StorageError> {
    let forgiven = forgiven(entries, fallen);
    let forgiven: Vec<_> = forgiven.iter().map(|(job, entry)| (*job, entry)).collect();
    insert(&LEDGER, &forgiven, ledger_row, connection, statements).await?;
    let amounts = forgiven
        .iter()
        .map(|(_, entry)| (entry.account, entry.amount));
    change_balances(&sums(amounts), connection, statements).await?;
    Ok(())
}

fn with_entries(settlement: &Settlement) -> impl Iterator<Item = (&Settlement, &Entry)> {
    settlement
        .entries
        .iter()
        .map(move |entry| (settlement, entry))
}

/// Each account once, in the order of their ids: everybody locks them in the same order.
pub fn sums(amounts: impl Iterator<Item = (AccountId, Kudos)>) -> Vec<(AccountId, i64)> {
    let mut sums = BTreeMap::new();
    for (account, amount) in amounts {
        *sums.entry(account).or_insert(0) += amount.0;
    }
    sums.into_iter().collect()
}

impl Stored for Balance {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            account: AccountId(row.try_get("account")?),
            kudos: Kudos(row.try_get("kudos")?),
            floor: row.try_get::<Option<i64>, _>("floor")?.map(Kudos),
        })
    }
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

fn ledger_row((settlement, entry): &(&Settlement, &Entry), values: &mut Values) {
    let timing = settlement.timing;
    values.text(&settlement.job.to_string());
    values.number(entry.account.0);
    values.maybe(entry.worker.map(|worker| worker.0));
    values.text(entry.reason.word());
    values.number(entry.amount.0);
    values.number(timing.accepted_at.after(timing.total).0);
}

pub fn sum_row((account, sum): &(AccountId, i64), values: &mut Values) {
    values.number(account.0);
    values.number(*sum);
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
