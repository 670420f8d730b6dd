//! Claims: a worker submits a job that an earlier process leased to it. Pops are not stored, so this process has no
//! lease; but the job is stored and queued again, the ticket proves which worker had it, and the work is done: it is
//! accepted, unless the job was leased again since.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::held::{NotTaken, Out};
use super::poller::Poller;
use super::{ATTEMPTS, NotServed, Pollers};
use crate::dispatch::Wants;
use crate::storage::WorkerRow;
use crate::switchboard::Lent;
use muster_protocol::job::{AccountId, JobId, Kind, WorkerId};
use muster_protocol::legacy::words::{Trade, Word};

impl Pollers {
    /// Leases the job as if its worker had just got it.
    pub(super) async fn claim(
        &self,
        owner: AccountId,
        id: JobId,
        kind: Kind,
    ) -> Result<Out, NotTaken> {
        let (row, job) = self.whose(owner, id, kind).await?;
        let poller = self.known(&row).ok_or(NotTaken::Unknown)?;
        let mut poller = poller.lock().await;
        if poller.row.id != row.id {
            return Err(NotTaken::Unknown);
        }
        let offered = self.claim_for(&mut poller, job, kind).await?;
        let offer = offered.first().ok_or(NotTaken::Unknown)?;
        let mut held = self.held();
        held.add(id, offer, owner, u32::MAX);
        held.take(id, owner)
    }

    /// The worker of this account that has such a ticket, and its job.
    async fn whose(
        &self,
        owner: AccountId,
        id: JobId,
        kind: Kind,
    ) -> Result<(WorkerRow, JobId), NotTaken> {
        let trade = Trade::of(kind).ok_or(NotTaken::Unknown)?;
        let mut before = WorkerId(i64::MAX);
        loop {
            let rows = self.0.store.workers_before(before, owner, trade.word());
            let rows = rows.await.map_err(|_| NotTaken::Unavailable)?;
            let last = rows.last().ok_or(NotTaken::Unknown)?;
            before = last.id;
            if let Some(found) = self.among(rows, id, kind).await? {
                return Ok(found);
            }
        }
    }

    /// Claims a queued job for one of these workers. Checks all of them at once, so that a guessed id costs as much as
    /// a real one.
    async fn among(
        &self,
        rows: Vec<WorkerRow>,
        id: JobId,
        kind: Kind,
    ) -> Result<Option<(WorkerRow, JobId)>, NotTaken> {
        let would_be = |row: &WorkerRow| self.0.badges.of(row.id).jobs(id, ATTEMPTS);
        let jobs: Vec<JobId> = rows.iter().flat_map(would_be).collect();
        let delivered = self.0.store.delivered(&jobs, kind).await;
        match delivered.map_err(|_| NotTaken::Unavailable)? {
            Some(true) => return Err(NotTaken::Already),
            Some(false) => return Err(NotTaken::TakenAway),
            None => {}
        }
        let waiting = self.0.switchboard.waiting_among(jobs).await;
        let waiting = waiting.map_err(|_| NotTaken::Unavailable)?;
        let its_kind = waiting.filter(|(_, of)| *of == kind);
        Ok(its_kind.and_then(|(job, _)| {
            let mut rows = rows.into_iter();
            let row = rows.find(|row| would_be(row).any(|its| its == job))?;
            Some((row, job))
        }))
    }

    async fn claim_for(
        &self,
        poller: &mut Poller,
        job: JobId,
        kind: Kind,
    ) -> Result<Lent, NotTaken> {
        if !poller.has_said() {
            let rig = self.0.store.rig_of_row(poller.row.id).await;
            let rig = rig.map_err(|_| NotTaken::Unavailable)?;
            poller.recollect(&rig.ok_or(NotTaken::Unknown)?, kind);
        }
        let wants = Wants {
            own_only: self.is_doubted(poller.row.id).await?,
            ..Wants::only(vec![job])
        };
        let news = match poller.is_known() {
            true => None,
            false => Some(poller.introduce(&self.0.names, &self.0.switchboard)),
        };
        let asked = self.ask(poller, news, wants).await;
        let mut popped = asked.map_err(|not| match not {
            NotServed::Unavailable => NotTaken::Unavailable,
            _ => NotTaken::Unknown,
        })?;
        popped.offers.keep();
        Ok(popped.offers)
    }

    /// Whether results of this worker are discarded, for all accounts but its owner's. The worker may not have polled
    /// since the start.
    async fn is_doubted(&self, worker: WorkerId) -> Result<bool, NotTaken> {
        let recalled = self.0.rigs.recall(worker).await;
        recalled.map_err(|_| NotTaken::Unavailable)?;
        Ok(self.0.rigs.is_doubted(worker))
    }

    /// The worker's poller, created if it has not polled since the start. `None` for a worker on a socket, which cannot
    /// submit here.
    fn known(&self, row: &WorkerRow) -> Option<Arc<Mutex<Poller>>> {
        let mut by_name = self.by_name();
        if let Some(known) = by_name.get(row.name.as_str()) {
            return Some(known.clone());
        }
        let online = self.0.switchboard.overview();
        if online.workers.iter().any(|it| it.id == row.id) {
            return None;
        }
        let known = Arc::new(Mutex::new(Poller::new(row.clone())));
        by_name.insert(row.name.as_str().into(), known.clone());
        Some(known)
    }
}
