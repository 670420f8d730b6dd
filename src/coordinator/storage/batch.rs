//! What is settled and what is accepted under one commit, in as few statements as that takes: they share the ledger,
//! the balances and the budgets of keys.

use sqlx::AnyConnection;

use crate::coordinator::kudos::{Entry, Posting, Settlement, forgiven};
use crate::protocol::job::{Kudos, SharedKeyId};

use super::StorageError;
use super::entries::{Booked, Forgiven, book};
use super::fees;
use super::holds::charged_to_key;
use super::records::note_records;
use super::requests::{Accept, insert_requests};
use super::script::Script;
use super::settlements::{insert_settled, note_forgiven};
use super::shared_keys::spend;
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

    /// Fails whole if any of it was settled before: what was written is to be rolled back then. The script may have to
    /// begin a transaction first.
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
        let forgiven = forgiven(&entries, &fallen);
        let sums = Forgiven::of_entries(&forgiven);
        let mut script = Script::default();
        note_forgiven(&self.settled, &sums, &mut script);
        book(&forgiven, script, connection).await?;
        spend(self.by_key(), connection).await?;
        for (accept, _) in self.accepted_by_key() {
            charged_to_key(accept.id(), accept.fee().amount, connection).await?;
        }
        self.write_uses(&sums, connection).await
    }

    /// Owners of styles share what those who used them have paid for their requests.
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

    /// What was asked for with keys that are shared.
    fn by_key(&self) -> impl Iterator<Item = (SharedKeyId, Kudos)> {
        let settled = self.settled.iter();
        let charges = settled.filter_map(|it| Some((it.shared_key?, it.charge)));
        let accepted = self.accepted_by_key();
        charges.chain(accepted.map(|(accept, key)| (key, accept.fee().amount)))
    }

    fn accepted_by_key(&self) -> impl Iterator<Item = (&'a Accept, SharedKeyId)> {
        let accepted = self.accepted.iter();
        accepted.filter_map(|accept| Some((*accept, accept.dues().shared_key?)))
    }
}
