//! What is new of all workers, in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::coordinator::dispatch::Terms;
use crate::coordinator::storage::{Decided, RigNews, RigRow, TeamShare};
use crate::protocol::job::WorkerId;
use crate::protocol::legacy::words::Trade;

use super::live::{Feat, Live, Seen};

/// Jobs dropped within an hour that are not too many yet. Forms of interrogations come by the hundred.
const MOST_DROPPED: usize = 20;
const MOST_FORMS_DROPPED: usize = 100;

/// Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Records(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    live: Mutex<HashMap<WorkerId, Live>>,
    /// Those that have dropped too many jobs.
    failing: Mutex<Vec<WorkerId>>,
    failed: Notify,
}

impl Records {
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
        let too_many = {
            let mut live = self.live();
            let live = live.entry(worker).or_default();
            let most = match live.trade {
                Some(Trade::Interrogation) => MOST_FORMS_DROPPED,
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
