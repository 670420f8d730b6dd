//! What everybody has asked for and made, ever: counted in the transaction that settles a job, since the settled rows
//! themselves are forgotten one day.

use std::collections::BTreeMap;

use sqlx::AnyConnection;

use crate::coordinator::kudos::{Entry, Reason, Settlement, State, owner_of};
use crate::protocol::job::{AccountId, Kind};

use super::StorageError;
use super::insertion::{Statements, Table, insert};
use super::values::Values;

const RECORDS: Table = Table {
    head: "INSERT INTO records (account, used_tokens, made_tokens, asked_images, asked_texts, \
           made_images, made_texts) VALUES ",
    columns: 7,
    tail: " ON CONFLICT (account) DO UPDATE SET \
           used_tokens = records.used_tokens + excluded.used_tokens * records.multiplier / 1000, \
           made_tokens = records.made_tokens + excluded.made_tokens, \
           asked_images = records.asked_images + excluded.asked_images, \
           asked_texts = records.asked_texts + excluded.asked_texts, \
           made_images = records.made_images + excluded.made_images, \
           made_texts = records.made_texts + excluded.made_texts",
};

/// What one account adds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Added {
    used_tokens: i64,
    made_tokens: i64,
    asked: Count,
    made: Count,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    images: i64,
    texts: i64,
}

/// Adds what these jobs were.
pub async fn note_records(
    settlements: &[&Settlement],
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<(), StorageError> {
    // In the order of the accounts, as everybody locks them.
    let mut added = BTreeMap::new();
    let delivered = settlements
        .iter()
        .filter(|job| job.state == State::Delivered);
    delivered.for_each(|job| add(job, &mut added));
    let rows: Vec<(AccountId, Added)> = added.into_iter().collect();
    insert(&RECORDS, &rows, row, connection, statements).await?;
    Ok(())
}

fn add(job: &Settlement, added: &mut BTreeMap<AccountId, Added>) {
    let asked = added.entry(job.account).or_default();
    asked.used_tokens += i64::from(job.paid_tokens);
    asked.asked.one_of(job.kind);
    let earned = earned(job);
    let all: i64 = earned.values().sum();
    for (owner, earned) in earned {
        let made = added.entry(owner).or_default();
        let share = i128::from(job.paid_tokens) * i128::from(earned) / i128::from(all.max(1));
        made.made_tokens += i64::try_from(share).unwrap_or(0);
        made.made.one_of(job.kind);
    }
}

/// By whom, what is kept back included.
fn earned(job: &Settlement) -> BTreeMap<AccountId, i64> {
    let mut earned = BTreeMap::new();
    for Entry {
        account,
        reason,
        amount,
        ..
    } in &job.entries
    {
        let owner = match reason {
            Reason::Reward => *account,
            Reason::Escrow => owner_of(*account).unwrap_or(*account),
            Reason::Charge | Reason::Fee | Reason::Forgiven => continue,
        };
        *earned.entry(owner).or_insert(0) += amount.0;
    }
    earned
}

impl Count {
    fn one_of(&mut self, kind: Kind) {
        match kind {
            Kind::Text => self.texts += 1,
            Kind::Image => self.images += 1,
            Kind::Video | Kind::Audio | Kind::Mesh | Kind::Interrogation => {}
        }
    }
}

fn row((account, added): &(AccountId, Added), values: &mut Values) {
    values.number(account.0);
    values.number(added.used_tokens);
    values.number(added.made_tokens);
    values.number(added.asked.images);
    values.number(added.asked.texts);
    values.number(added.made.images);
    values.number(added.made.texts);
}
