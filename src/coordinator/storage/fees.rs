//! Request fees, charged whatever becomes of the jobs: one posting per account for all of its requests in a commit.
//! Below an account's floor the fee is forgiven, so it never causes a refusal. Fees have no tally, since they count as
//! work like the charges of jobs.

use std::collections::{BTreeMap, HashMap};

use crate::kudos::{Cause, Entry, Posting, Reason};
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

use super::entries::Forgiven;
use super::script::{Column, Script, Table, Verb};
use super::values::Values;

static POSTINGS: Table = Table {
    verb: Verb::Insert("postings"),
    columns: &[
        Column::Text("id"),
        Column::Text("cause"),
        Column::Text("about"),
        Column::Text("terms"),
        Column::Number("at"),
    ],
    tail: "",
};

/// The fee of one request.
#[derive(Debug, Clone, Copy)]
pub struct Fee {
    pub account: AccountId,
    pub amount: Kudos,
    pub at: UnixMillis,
}

pub fn postings(fees: impl Iterator<Item = Fee>) -> Vec<Posting> {
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

pub fn entries(posting: &Posting) -> impl Iterator<Item = Entry> {
    let moves = posting.moves.iter();
    moves.map(|&(account, amount)| Entry {
        account,
        worker: None,
        reason: Reason::Request,
        amount,
    })
}

/// Fees paid by each account.
pub fn paid(postings: &[Posting], forgiven: &Forgiven) -> HashMap<AccountId, Kudos> {
    let mut paid = HashMap::new();
    for posting in postings {
        let forgiven = forgiven.of(posting).0;
        let charged = posting.moves.iter().filter(|(_, amount)| amount.0 < 0);
        paid.extend(charged.map(|(account, amount)| (*account, Kudos(-amount.0 - forgiven))));
    }
    paid
}

pub fn insert_postings(postings: &[Posting], script: &mut Script) {
    script.add(&POSTINGS, postings, posting_row);
}

fn posting_row(posting: &Posting, values: &mut Values) {
    values.text(&posting.id.0.to_string());
    values.text(posting.cause.word());
    values.text(&posting.about);
    values.whole_text(&posting.terms());
    values.number(posting.at.0);
}
