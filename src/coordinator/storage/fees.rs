//! What requests cost at once, whatever becomes of their jobs: one posting for each account, however many of its
//! requests are accepted under one commit. Nobody is refused for it: below a floor it is forgiven.

use std::collections::BTreeMap;

use sqlx::AnyConnection;

use crate::coordinator::kudos::{Cause, Entry, Posting, Reason};
use crate::protocol::job::{AccountId, Kudos, UnixMillis};

use super::StorageError;
use super::entries::book;
use super::insertion::{Statements, Table, insert};
use super::values::Values;

const POSTINGS: Table = Table {
    head: "INSERT INTO postings (id, cause, about, terms, at) VALUES ",
    columns: 5,
    tail: "",
};
const TALLIES: Table = Table {
    head: "INSERT INTO tallies (account, cause, kudos) VALUES ",
    columns: 3,
    tail: " ON CONFLICT (account, cause) DO UPDATE SET kudos = tallies.kudos + excluded.kudos",
};

/// What one request costs.
#[derive(Debug, Clone, Copy)]
pub struct Fee {
    pub account: AccountId,
    pub amount: Kudos,
    pub at: UnixMillis,
}

type Tally = ((AccountId, &'static str), i64);

pub async fn charge(
    fees: impl Iterator<Item = Fee>,
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<(), StorageError> {
    let postings = postings(fees);
    insert(&POSTINGS, &postings, posting_row, connection, statements).await?;
    let mut entries: Vec<(&Posting, Entry)> = postings.iter().flat_map(entries).collect();
    entries.extend(book(&entries, connection, statements).await?);
    let tallies = tallies(&entries);
    insert(&TALLIES, &tallies, tally_row, connection, statements).await?;
    Ok(())
}

fn postings(fees: impl Iterator<Item = Fee>) -> Vec<Posting> {
    let mut sums: BTreeMap<AccountId, (u32, i64, UnixMillis)> = BTreeMap::new();
    for fee in fees.filter(|fee| fee.amount.0 > 0) {
        let (requests, sum, at) = sums.entry(fee.account).or_insert((0, 0, fee.at));
        *requests += 1;
        *sum = sum.saturating_add(fee.amount.0);
        *at = fee.at.max(*at);
    }
    let postings = sums.into_iter().map(|(account, (requests, sum, at))| {
        let taken = Kudos(sum.saturating_neg());
        Posting::from_house(Cause::Request, account, taken, at)
            .about(format!("{requests} accepted"))
    });
    postings.collect()
}

fn entries(posting: &Posting) -> impl Iterator<Item = (&Posting, Entry)> {
    let moves = posting.moves.iter();
    moves.map(move |&(account, amount)| {
        let entry = Entry {
            account,
            worker: None,
            reason: Reason::Request,
            amount,
        };
        (posting, entry)
    })
}

fn tallies(entries: &[(&Posting, Entry)]) -> Vec<Tally> {
    let mut tallies = BTreeMap::new();
    for (_, entry) in entries {
        let tally = tallies.entry((entry.account, entry.reason.word()));
        *tally.or_insert(0) += entry.amount.0;
    }
    tallies.into_iter().collect()
}

fn posting_row(posting: &Posting, values: &mut Values) {
    values.text(&posting.id.0.to_string());
    values.text(posting.cause.word());
    values.text(&posting.about);
    values.whole_text(&posting.terms());
    values.number(posting.at.0);
}

fn tally_row(((account, cause), sum): &Tally, values: &mut Values) {
    values.number(account.0);
    values.text(cause);
    values.number(*sum);
}
