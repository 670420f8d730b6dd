//! Lifetime totals of users: updated in the transaction that settles a job, since settled rows are deleted one day.

use std::collections::BTreeMap;

use crate::kudos::{Entry, Reason, Settlement, State, owner_of};
use muster_protocol::job::{AccountId, Kind};

use super::script::{Column, Script, Table, Verb};
use super::values::Values;

static RECORDS: Table = Table {
    verb: Verb::Insert("records"),
    columns: &[
        Column::Number("account"),
        Column::Number("used_tokens"),
        Column::Number("used_pixelsteps"),
        Column::Number("made_tokens"),
        Column::Number("made_pixelsteps"),
        Column::Number("asked_images"),
        Column::Number("asked_texts"),
        Column::Number("asked_interrogations"),
        Column::Number("made_images"),
        Column::Number("made_texts"),
        Column::Number("made_interrogations"),
    ],
    tail: "ON CONFLICT (account) DO UPDATE SET \
           used_tokens = records.used_tokens + excluded.used_tokens * records.multiplier / 1000, \
           used_pixelsteps = records.used_pixelsteps + excluded.used_pixelsteps * records.multiplier / 1000, \
           made_tokens = records.made_tokens + excluded.made_tokens, \
           made_pixelsteps = records.made_pixelsteps + excluded.made_pixelsteps, \
           asked_images = records.asked_images + excluded.asked_images, \
           asked_texts = records.asked_texts + excluded.asked_texts, \
           asked_interrogations = records.asked_interrogations + excluded.asked_interrogations, \
           made_images = records.made_images + excluded.made_images, \
           made_texts = records.made_texts + excluded.made_texts, \
           made_interrogations = records.made_interrogations + excluded.made_interrogations",
};

/// The amounts to add for one account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Added {
    used: Work,
    made: Work,
    asked: Count,
    done: Count,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Work {
    tokens: i64,
    /// In thousands.
    pixelsteps: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    images: i64,
    texts: i64,
    interrogations: i64,
}

/// Adds these jobs to the totals.
pub fn note_records(settlements: &[&Settlement], script: &mut Script) {
    // In the order of accounts: every transaction locks them in the same order, which prevents deadlocks.
    let mut added = BTreeMap::new();
    let delivered = settlements
        .iter()
        .filter(|job| job.state == State::Delivered);
    delivered.for_each(|job| add(job, &mut added));
    let rows: Vec<(AccountId, Added)> = added.into_iter().collect();
    script.add(&RECORDS, &rows, row);
}

fn add(job: &Settlement, added: &mut BTreeMap<AccountId, Added>) {
    let work = Work::of(job);
    let asked = added.entry(job.account).or_default();
    asked.used.add(work);
    asked.asked.one_of(job.kind);
    let earned = earned(job);
    let all: i64 = earned.values().sum();
    for (owner, earned) in earned {
        let made = added.entry(owner).or_default();
        made.made.add(work.part(earned, all));
        made.done.one_of(job.kind);
    }
}

impl Work {
    fn of(job: &Settlement) -> Self {
        let size = i64::try_from(job.size / 1000).unwrap_or(i64::MAX);
        Self {
            tokens: i64::from(job.paid_tokens),
            pixelsteps: if job.kind == Kind::Image { size } else { 0 },
        }
    }

    /// The share of an account that earned `earned` of `all`.
    fn part(self, earned: i64, all: i64) -> Self {
        let part = |whole: i64| {
            let part = i128::from(whole) * i128::from(earned) / i128::from(all.max(1));
            i64::try_from(part).unwrap_or(0)
        };
        Self {
            tokens: part(self.tokens),
            pixelsteps: part(self.pixelsteps),
        }
    }

    fn add(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.pixelsteps = self.pixelsteps.saturating_add(other.pixelsteps);
    }
}

/// Rewards by account, with escrow.
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
            Reason::Charge | Reason::Fee | Reason::Forgiven | Reason::Request => continue,
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
            Kind::Form => self.interrogations += 1,
            _ => {}
        }
    }
}

fn row((account, added): &(AccountId, Added), values: &mut Values) {
    values.number(account.0);
    for work in [added.used, added.made] {
        values.number(work.tokens);
        values.number(work.pixelsteps);
    }
    for count in [added.asked, added.done] {
        values.number(count.images);
        values.number(count.texts);
        values.number(count.interrogations);
    }
}
