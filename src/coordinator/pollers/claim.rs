//! A worker brings a job that an earlier process of ours has given it. Pops are not written down, so nobody here knows;
//! but the job is on disk and waits again, its id is known to whoever was given it and to nobody else, and the work is
//! done: it is taken, unless somebody was given it since.

use std::cmp::Reverse;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::held::{NotTaken, Out, called};
use super::poller::Poller;
use super::{ATTEMPTS, NotServed, Pollers, id_of};
use crate::coordinator::dispatch::Wants;
use crate::coordinator::storage::WorkerRow;
use crate::protocol::job::{AccountId, JobId, Kind, WorkerId};
use crate::protocol::legacy::words::{Trade, Word};

impl Pollers {
    /// The job, as if a worker of this account had just been given it.
    pub(super) async fn claim(
        &self,
        owner: AccountId,
        id: JobId,
        kind: Kind,
    ) -> Result<Out, NotTaken> {
        // Nobody knows which attempt it was, and each is called by another id. All are looked for at once: whoever guesses
        // ids costs as much as whoever has one.
        let jobs: Vec<JobId> = (1..=ATTEMPTS).map(|attempt| called(id, attempt)).collect();
        let delivered = self.0.store.delivered(&jobs, kind).await;
        match delivered.map_err(|_| NotTaken::Unavailable)? {
            Some(true) => return Err(NotTaken::Already),
            Some(false) => return Err(NotTaken::TakenAway),
            None => {}
        }
        let waiting = self.0.switchboard.waiting_among(jobs).await;
        let waiting = waiting.map_err(|_| NotTaken::Unavailable)?;
        let its_kind = waiting.filter(|(_, of)| *of == kind);
        let (job, _) = its_kind.ok_or(NotTaken::Unknown)?;
        let poller = self.claimant(owner, kind).await?;
        let mut poller = poller.lock().await;
        let wants = Wants {
            own_only: self.is_doubted(poller.row.id).await?,
            ..Wants::only(vec![job])
        };
        let news = match poller.is_known() {
            true => None,
            false => Some(poller.introduce(&self.0.names, &self.0.switchboard)),
        };
        let asked = self.ask(&mut poller, news, wants).await;
        let mut popped = asked.map_err(|not| match not {
            NotServed::Unavailable => NotTaken::Unavailable,
            _ => NotTaken::Unknown,
        })?;
        popped.offers.keep();
        let offer = popped.offers.first().ok_or(NotTaken::Unknown)?;
        let mut held = self.held();
        let id = id_of(offer);
        held.add(offer, owner, u32::MAX);
        held.claim(id);
        held.take(id, owner)
    }

    /// A worker of this account that makes such things and may have been given it: the one that came last, as far as
    /// anybody knows, of those that are believed; where none is, the last of all, and it brings what its owner asked for.
    /// One that is on a socket brings nothing here.
    async fn claimant(&self, owner: AccountId, kind: Kind) -> Result<Arc<Mutex<Poller>>, NotTaken> {
        let trade = Trade::of(kind).ok_or(NotTaken::Unknown)?;
        let here = self.latest_of(owner, trade);
        for (worker, poller) in &here {
            if !self.is_doubted(*worker).await? {
                return Ok(poller.clone());
            }
        }
        let rows = self.0.store.newest_workers(owner, trade.word()).await;
        let mut rows = rows.map_err(|_| NotTaken::Unavailable)?;
        let online = self.0.switchboard.overview();
        rows.retain(|row| online.workers.iter().all(|it| it.id != row.id));
        for row in &rows {
            if !self.is_doubted(row.id).await? {
                return Ok(self.known(row.clone()));
            }
        }
        let here = here.into_iter().map(|(_, poller)| poller);
        let stored = rows.into_iter().map(|row| self.known(row));
        here.chain(stored).next().ok_or(NotTaken::Unknown)
    }

    /// Whether nothing that it makes for others is believed. It may not have come since the start.
    async fn is_doubted(&self, worker: WorkerId) -> Result<bool, NotTaken> {
        let recalled = self.0.rigs.recall(worker).await;
        recalled.map_err(|_| NotTaken::Unavailable)?;
        Ok(self.0.rigs.is_doubted(worker))
    }

    fn known(&self, row: WorkerRow) -> Arc<Mutex<Poller>> {
        let mut by_name = self.by_name();
        let known = by_name.entry(row.name.as_str().into());
        let known = known.or_insert_with(|| Arc::new(Mutex::new(Poller::new(row))));
        known.clone()
    }

    /// Those of this trade that came since the start, the last one first, without any that is just being served.
    fn latest_of(&self, owner: AccountId, trade: Trade) -> Vec<(WorkerId, Arc<Mutex<Poller>>)> {
        let its = |known: &Arc<Mutex<Poller>>| {
            let poller = known.try_lock().ok()?;
            let is_its = poller.row.owner == owner && poller.trade() == Some(trade);
            is_its.then(|| (poller.seen, poller.row.id, known.clone()))
        };
        let mut latest: Vec<_> = self.by_name().values().filter_map(its).collect();
        latest.sort_unstable_by_key(|(seen, ..)| Reverse(*seen));
        let latest = latest.into_iter();
        latest.map(|(_, worker, poller)| (worker, poller)).collect()
    }
}
