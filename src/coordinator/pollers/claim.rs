//! A worker brings a job that an earlier process of ours has given it. Pops are not written down, so nobody here knows;
//! but the job is on disk and waits again, its id is known to whoever was given it and to nobody else, and the work is
//! done: it is taken, unless somebody was given it since.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::held::{NotTaken, Out, called};
use super::poller::Poller;
use super::{ATTEMPTS, NotServed, Pollers, id_of};
use crate::coordinator::dispatch::Wants;
use crate::coordinator::storage::WorkerRow;
use crate::protocol::job::{AccountId, JobId};

impl Pollers {
    /// The job, as if a worker of this account had just been given it.
    pub(super) async fn claim(&self, owner: AccountId, id: JobId) -> Result<Out, NotTaken> {
        // Nobody knows which attempt it was, and each is called by another id. All are looked for at once: whoever guesses
        // ids costs as much as whoever has one.
        let jobs: Vec<JobId> = (1..=ATTEMPTS).map(|attempt| called(id, attempt)).collect();
        let delivered = self.0.store.delivered(&jobs).await;
        match delivered.map_err(|_| NotTaken::Unavailable)? {
            Some(true) => return Err(NotTaken::Already),
            Some(false) => return Err(NotTaken::TakenAway),
            None => {}
        }
        let waits = self.0.switchboard.waits(jobs.clone()).await;
        if !waits.map_err(|_| NotTaken::Unavailable)? {
            return Err(NotTaken::Unknown);
        }
        let poller = self.claimant(owner).await?;
        let mut poller = poller.lock().await;
        if self.0.rigs.is_doubted(poller.row.id) {
            // Nothing it makes is believed.
            return Err(NotTaken::Unknown);
        }
        let news = match poller.is_known() {
            true => None,
            false => Some(poller.introduce(&self.0.names, &self.0.switchboard)),
        };
        let asked = self.ask(&mut poller, news, Wants::only(jobs)).await;
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

    /// A worker of this account that may have been given it: the one that came last, as far as anybody knows. One that
    /// is on a socket brings nothing here.
    async fn claimant(&self, owner: AccountId) -> Result<Arc<Mutex<Poller>>, NotTaken> {
        if let Some(poller) = self.latest_of(owner) {
            return Ok(poller);
        }
        let rows = self.0.store.newest_workers(owner).await;
        let rows = rows.map_err(|_| NotTaken::Unavailable)?;
        let online = self.0.switchboard.overview();
        let is_here = |row: &WorkerRow| online.workers.iter().any(|it| it.id == row.id);
        let row = rows.into_iter().find(|row| !is_here(row));
        let row = row.ok_or(NotTaken::Unknown)?;
        let mut by_name = self.by_name();
        let known = by_name.entry(row.name.as_str().into());
        let known = known.or_insert_with(|| Arc::new(Mutex::new(Poller::new(row))));
        Ok(known.clone())
    }

    /// Of those that came since the start. One that is just being served has come now.
    fn latest_of(&self, owner: AccountId) -> Option<Arc<Mutex<Poller>>> {
        let seen = |poller: &Arc<Mutex<Poller>>| {
            let Ok(poller) = poller.try_lock() else {
                return None;
            };
            (poller.row.owner == owner).then_some(poller.seen)
        };
        let by_name = self.by_name();
        let its = by_name
            .values()
            .filter_map(|poller| Some((seen(poller)?, poller)));
        let latest = its.max_by_key(|(seen, _): &(Instant, _)| *seen);
        latest.map(|(_, poller)| poller.clone())
    }
}
