//! Settlements and accepted requests under one commit, in as few statements as possible: they share the ledger, the
//! balances and the budgets of keys.

use sqlx::AnyConnection;

use crate::kudos::{Entry, Posting, Settlement, forgiven};
use muster_protocol::job::AccountId;

use super::StorageError;
use super::budgets::{Charge, spend};
use super::credits;
use super::entries::{Booked, Forgiven, book};
use super::fees;
use super::records::note_records;
use super::requests::{Accept, insert_requests};
use super::script::Script;
use super::settlements::{insert_settled, note_forgiven};
use super::stats;
use super::styles::write_use;

pub struct Batch<'a> {
    settled: Vec<&'a Settlement>,
    accepted: Vec<&'a Accept>,
    fees: Vec<Posting>,
}

impl<'a> Batch<'a> {
    pub fn of(
        settled: impl IntoIterator<Item = &'a Settlement>,
        accepted: impl IntoIterator<Item = &'a Accept>,
    ) -> Self {
        let accepted: Vec<_> = accepted.into_iter().collect();
        Self {
            settled: settled.into_iter().collect(),
            fees: fees::postings(accepted.iter().map(|accept| accept.fee())),
            accepted,
        }
    }

    /// Fails as a whole if any job was settled before; the caller then rolls back. The script may have to begin a
    /// transaction first.
    pub async fn write(
        &self,
        mut script: Script,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        insert_settled(&self.settled, &mut script);
        insert_requests(&self.accepted, &mut script);
        fees::insert_postings(&self.fees, &mut script);
        note_records(&self.settled, &mut script);
        stats::note(&self.settled, &mut script);
        let entries = self.entries();
        let fallen = book(&entries, script, connection).await?;
        credits::settle(&self.settled, connection).await?;
        let beyond = spend(self.charges(), connection).await?;
        // The house's payments for charged keys come first, so that no part of a charge is forgiven twice.
        let entries = [beyond.clone(), entries].concat();
        let forgiven = [beyond, forgiven(&entries, &fallen)].concat();
        let sums = Forgiven::of_entries(&forgiven);
        let mut script = Script::default();
        note_forgiven(&self.settled, &sums, &mut script);
        book(&forgiven, script, connection).await?;
        self.write_uses(&sums, connection).await
    }

    /// Pays owners of styles their share of the fees that users of their styles paid.
    async fn write_uses(
        &self,
        forgiven: &Forgiven,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        let uses = self.accepted.iter();
        let uses = uses.filter_map(|accept| Some((accept.dues().style?, accept.fee())));
        let uses: Vec<_> = uses.collect();
        if uses.is_empty() {
            return Ok(());
        }
        let mut paid = fees::paid(&self.fees, forgiven);
        for (used, fee) in uses {
            let left = paid.entry(fee.account).or_default();
            let earned = write_use(&used, &fee, *left, connection).await?;
            left.0 -= earned.0;
        }
        Ok(())
    }

    fn entries(&self) -> Vec<(&dyn Booked, Entry)> {
        let of_jobs = self.settled.iter().flat_map(|settlement| {
            let entries = settlement.entries.iter();
            entries.map(move |entry| (*settlement as &dyn Booked, *entry))
        });
        let of_fees = self.fees.iter().flat_map(|posting| {
            fees::entries(posting).map(move |entry| (posting as &dyn Booked, entry))
        });
        of_jobs.chain(of_fees).collect()
    }

    /// Charges to shared keys.
    fn charges(&self) -> Vec<Charge<'_>> {
        let settled = self.settled.iter().filter_map(|settlement| {
            Some(Charge {
                key: settlement.shared_key?,
                request: settlement.request,
                account: settlement.account,
                amount: settlement.charge,
                booked: *settlement,
            })
        });
        let accepted = self.accepted.iter().filter_map(|accept| {
            let fee = accept.fee();
            Some(Charge {
                key: accept.dues().shared_key?,
                request: accept.id(),
                account: fee.account,
                amount: fee.amount,
                booked: self.fees_of(fee.account)?,
            })
        });
        let charges = settled.chain(accepted);
        charges.filter(|charge| charge.amount.0 > 0).collect()
    }

    /// The posting of the account's request fees, if there is one.
    fn fees_of(&self, account: AccountId) -> Option<&Posting> {
        let is_its = |posting: &&Posting| posting.moves.iter().any(|(whose, _)| *whose == account);
        self.fees.iter().find(is_its)
    }
}
