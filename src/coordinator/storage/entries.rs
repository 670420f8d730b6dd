//! Entries of the ledger and their balances, in bulk. A charge that would take a balance below its floor is forgiven
//! down to there, by further entries.

use std::collections::{BTreeMap, HashMap};

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::kudos::{Entry, Fallen, Posting, Settlement};
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

use super::StorageError;
use super::rows::Stored;
use super::script::{Column, Script, Table, Verb};
use super::values::Values;

pub static LEDGER: Table = Table {
    verb: Verb::Insert("ledger"),
    columns: &[
        Column::Text("job"),
        Column::Number("account"),
        Column::Number("worker"),
        Column::Text("reason"),
        Column::Number("amount"),
        Column::Number("at"),
    ],
    tail: "",
};
static BALANCES: Table = Table {
    verb: Verb::Insert("balances"),
    columns: &[Column::Number("account"), Column::Number("kudos")],
    tail: "ON CONFLICT (account) DO UPDATE SET kudos = balances.kudos + excluded.kudos \
           RETURNING account, kudos, floor",
};

/// A record with ledger entries: its id and time.
pub trait Booked: Sync {
    fn id(&self) -> String;
    fn at(&self) -> UnixMillis;
}

/// Forgiven amounts by record id.
#[derive(Debug, Default)]
pub struct Forgiven(HashMap<String, Kudos>);

/// A balance after a change.
struct Balance {
    account: AccountId,
    kudos: Kudos,
    floor: Option<Kudos>,
}

impl Booked for Settlement {
    fn id(&self) -> String {
        self.job.to_string()
    }

    fn at(&self) -> UnixMillis {
        self.timing.accepted_at.after(self.timing.total)
    }
}

impl Booked for Posting {
    fn id(&self) -> String {
        self.id.0.to_string()
    }

    fn at(&self) -> UnixMillis {
        self.at
    }
}

impl Forgiven {
    pub fn of_entries(entries: &[(&dyn Booked, Entry)]) -> Self {
        let mut forgiven = HashMap::new();
        // The house's entry is the amount it pays.
        for (of, entry) in entries.iter().filter(|(_, entry)| entry.amount.0 > 0) {
            forgiven.entry(of.id()).or_insert(Kudos(0)).0 += entry.amount.0;
        }
        Self(forgiven)
    }

    pub fn of(&self, booked: &dyn Booked) -> Kudos {
        match self.0.is_empty() {
            true => Kudos(0),
            false => self.0.get(&booked.id()).copied().unwrap_or_default(),
        }
    }
}

/// Writes the entries and changes the balances, in one call with the rest of the script. Returns the accounts that have
/// fallen below their floors.
pub async fn book(
    entries: &[(&dyn Booked, Entry)],
    mut script: Script,
    connection: &mut AnyConnection,
) -> Result<HashMap<AccountId, Fallen>, StorageError> {
    let sums = sums_of(entries);
    script.add(&LEDGER, entries, ledger_row);
    script.add(&BALANCES, &sums, sum_row);
    let balances: Vec<Balance> = script.returning(connection).await?;
    let taken: HashMap<AccountId, i64> = sums.into_iter().collect();
    let fallen = balances.iter().filter_map(|balance| {
        let (account, floor) = (balance.account, balance.floor?);
        let taken = *taken.get(&account)?;
        let before = Kudos(balance.kudos.0 - taken);
        let has_fallen = taken < 0 && balance.kudos < floor;
        has_fallen.then_some((account, Fallen { before, floor }))
    });
    Ok(fallen.collect())
}

fn sums_of(entries: &[(&dyn Booked, Entry)]) -> Vec<(AccountId, i64)> {
    let amounts = entries.iter();
    sums(amounts.map(|(_, entry)| (entry.account, entry.amount)))
}

/// One sum per account, in the order of ids: every transaction locks accounts in the same order, which prevents
/// deadlocks.
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

fn ledger_row((of, entry): &(&dyn Booked, Entry), values: &mut Values) {
    values.text(&of.id());
    values.number(entry.account.0);
    values.maybe(entry.worker.map(|worker| worker.0));
    values.text(entry.reason.word());
    values.number(entry.amount.0);
    values.number(of.at().0);
}

pub fn sum_row((account, sum): &(AccountId, i64), values: &mut Values) {
    values.number(account.0);
    values.number(*sum);
}
