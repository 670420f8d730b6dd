//! What is new of all workers, in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::coordinator::dispatch::Terms;
use crate::coordinator::modes::{ModeSet, Reading};
use crate::coordinator::storage::{Decided, RigNews, RigRow, TeamShare};
use crate::protocol::job::WorkerId;
use crate::protocol::legacy::words::Trade;

use super::live::{Feat, Live, Seen};

/// Jobs dropped within an hour that are not too many yet. Forms of interrogations come by the hundred.
const MOST_DROPPED: usize = 20;
const MOST_DROPPED_IN_A_RAID: usize = 10;
const MOST_FORMS_DROPPED: usize = 100;

/// Clones are the same.
#[derive(Debug, Clone)]
pub struct Records(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    modes: watch::Receiver<Reading>,
    live: Mutex<HashMap<WorkerId, Live>>,
    /// Those that have dropped too many jobs.
    failing: Mutex<Vec<WorkerId>>,
    failed: Notify,
}

impl Records {
    /// Judged by the modes of the service.
    pub fn new(modes: watch::Receiver<Reading>) -> Self {
        Self(Arc::new(Shared {
            modes,
            live: Mutex::default(),
            failing: Mutex::default(),
            failed: Notify::new(),
        }))
    }

    pub fn knows(&self, worker: WorkerId) -> bool {
        self.live().get(&worker).is_some_and(|live| live.known)
    }

    pub fn learn(&self, row: &RigRow) {
        self.live().entry(row.id).or_default().learn(row);
    }

    pub fn forget(&self, worker: WorkerId) {
        self.live().remove(&worker);
    }

    pub fn check_in(&self, worker: WorkerId, seen: Seen) {
        self.live().entry(worker).or_default().check_in(seen);
    }

    pub fn decided(&self, worker: WorkerId) -> Decided {
        let live = self.live();
        let live = live.get(&worker);
        live.map(|live| live.decided.clone()).unwrap_or_default()
    }

    pub fn trade(&self, worker: WorkerId) -> Option<Trade> {
        self.live().get(&worker).and_then(|live| live.trade)
    }

    /// What dispatch has to know of a worker, which it is told now.
    pub fn terms(&self, worker: WorkerId, billions: impl Fn(&str) -> f64) -> Terms {
        let mut live = self.live();
        let Some(live) = live.get_mut(&worker) else {
            return Terms::default();
        };
        let terms = live.terms(billions);
        live.tells(terms);
        terms
    }

    /// What dispatch has to be told about a worker, if that is anything new. It is told now.
    pub fn change(&self, worker: WorkerId, billions: impl Fn(&str) -> f64) -> Option<Terms> {
        let mut live = self.live();
        let live = live.get_mut(&worker)?;
        let terms = live.terms(billions);
        live.tells(terms).then_some(terms)
    }

    /// Those about whom dispatch has to be told something new, which it is now.
    pub fn changed(&self, billions: impl Fn(&str) -> f64) -> Vec<(WorkerId, Terms)> {
        let mut live = self.live();
        let changed = live.iter_mut().filter_map(|(worker, live)| {
            let terms = live.terms(&billions);
            live.tells(terms).then_some((*worker, terms))
        });
        changed.collect()
    }

    pub fn add(&self, worker: WorkerId, feat: Feat) {
        self.live().entry(worker).or_default().add(feat);
    }

    /// It took a job and did not bring it, and the job was not to blame.
    pub fn dropped(&self, worker: WorkerId) {
        let is_raid = self.0.modes.borrow().modes.contains(ModeSet::RAID);
        let too_many = {
            let mut live = self.live();
            let live = live.entry(worker).or_default();
            let most = match live.trade {
                Some(Trade::Interrogation) => MOST_FORMS_DROPPED,
                _ if is_raid => MOST_DROPPED_IN_A_RAID,
                _ => MOST_DROPPED,
            };
            live.drop_one(most, Instant::now())
        };
        if too_many {
            let failing = self.0.failing.lock();
            failing.unwrap_or_else(PoisonError::into_inner).push(worker);
            self.0.failed.notify_one();
        }
    }

    /// Those that have dropped too many jobs, as soon as there are any.
    pub async fn failing(&self) -> Vec<WorkerId> {
        loop {
            let failed = self.0.failed.notified();
            let failing = {
                let failing = self.0.failing.lock();
                std::mem::take(&mut *failing.unwrap_or_else(PoisonError::into_inner))
            };
            if !failing.is_empty() {
                return failing;
            }
            failed.await;
        }
    }

    pub fn take_news(&self) -> Vec<RigNews> {
        let now = Instant::now();
        let mut live = self.live();
        let news = live.iter_mut().filter_map(|(id, live)| live.take_news(*id));
        let news = news.collect();
        live.retain(|_, live| !live.is_stale(now));
        news
    }

    /// What is new of one worker.
    pub fn take_news_of(&self, worker: WorkerId) -> Option<RigNews> {
        self.live().get_mut(&worker)?.take_news(worker)
    }

    /// What workers did for their teams that is not saved yet.
    pub fn team_shares(&self) -> HashMap<i64, TeamShare> {
        let mut shares: HashMap<i64, TeamShare> = HashMap::new();
        let live = self.live();
        for (team, share) in live.values().filter_map(Live::team_share) {
            shares.entry(team).or_default().add(&share);
        }
        shares
    }

    /// A team is no more.
    pub fn disband(&self, team: i64) {
        self.live().values_mut().for_each(|live| live.leave(team));
    }

    pub fn put_back(&self, news: Vec<RigNews>) {
        let mut live = self.live();
        for news in news {
            live.entry(news.worker).or_default().put_back(news);
        }
    }

    pub fn bring_up_to_date(&self, row: &mut RigRow) {
        if let Some(live) = self.live().get(&row.id) {
            live.bring_up_to_date(row);
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<WorkerId, Live>> {
        let live = self.0.live.lock();
        live.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::watch;

    use super::{MOST_DROPPED, MOST_DROPPED_IN_A_RAID, ModeSet, Reading, Records};
    use crate::protocol::job::WorkerId;

    /// How many jobs a worker may drop.
    fn allowed(modes: ModeSet) -> usize {
        let reading = Reading { revision: 1, modes };
        let records = Records::new(watch::channel(reading).1);
        let mut dropped = 0;
        while records.failing().now_or_never().is_none() {
            records.dropped(WorkerId(1));
            dropped += 1;
        }
        dropped - 1
    }

    #[test]
    fn in_a_raid_fewer_dropped_jobs_send_a_worker_into_maintenance() {
        assert_eq!(allowed(ModeSet::default()), MOST_DROPPED);
        assert_eq!(allowed(ModeSet::RAID), MOST_DROPPED_IN_A_RAID);
    }
}
