//! Unsaved changes of all workers, in memory.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::dispatch::Terms;
use crate::kudos::Prices;
use crate::moderation::Reason;
use crate::modes::{ModeSet, Reading};
use crate::names::Names;
use crate::storage::{RigNews, RigRow, Said, TeamShare};
use muster_protocol::job::WorkerId;
use muster_protocol::legacy::words::Trade;

use super::live::{Feat, Live, Seen};
use super::pace::Pace;

/// Jobs dropped within an hour that are not too many yet. Forms of interrogations come by the hundred.
const MOST_DROPPED: usize = 20;
const MOST_DROPPED_IN_A_RAID: usize = 10;
const MOST_FORMS_DROPPED: usize = 100;
/// No card draws larger images, and none that large can be asked for.
const MOST_PIXELS: i64 = 4096 * 4096;

/// Clones are the same.
#[derive(Debug, Clone)]
pub struct Records(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    modes: watch::Receiver<Reading>,
    live: Mutex<HashMap<WorkerId, Live>>,
    /// Suspicions for the keeper.
    noticed: Mutex<Vec<(WorkerId, Reason)>>,
    notified: Notify,
    /// Names and sizes of models, for judging workers' claims; `None` where suspicion is off.
    judges: OnceLock<(Names, Prices)>,
}

impl Records {
    /// Judged by the modes of the service.
    pub fn new(modes: watch::Receiver<Reading>) -> Self {
        Self(Arc::new(Shared {
            modes,
            live: Mutex::default(),
            noticed: Mutex::default(),
            notified: Notify::new(),
            judges: OnceLock::new(),
        }))
    }

    pub fn are_on(&self, modes: ModeSet) -> bool {
        self.0.modes.borrow().modes.contains(modes)
    }

    pub fn knows(&self, worker: WorkerId) -> bool {
        self.live().get(&worker).is_some_and(|live| live.known)
    }

    /// There is nothing to learn of one that is new.
    pub fn welcome(&self, worker: WorkerId) {
        self.live().entry(worker).or_default().known = true;
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

    pub fn is_doubted(&self, worker: WorkerId) -> bool {
        let live = self.live();
        let decided = live.get(&worker).map(|live| &live.decided);
        decided.is_some_and(|decided| decided.paused && decided.maintenance.is_none())
    }

    pub fn maintenance(&self, worker: WorkerId) -> Option<String> {
        self.live().get(&worker)?.decided.maintenance.clone()
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

    /// The worker's terms if they changed; counts as told to dispatch.
    pub fn change(&self, worker: WorkerId, billions: impl Fn(&str) -> f64) -> Option<Terms> {
        let mut live = self.live();
        let live = live.get_mut(&worker)?;
        let terms = live.terms(billions);
        live.tells(terms).then_some(terms)
    }

    /// Changed terms of all workers; count as told to dispatch.
    pub fn changed(&self, billions: impl Fn(&str) -> f64) -> Vec<(WorkerId, Terms)> {
        let mut live = self.live();
        let changed = live.iter_mut().filter_map(|(worker, live)| {
            let terms = live.terms(&billions);
            live.tells(terms).then_some((*worker, terms))
        });
        changed.collect()
    }

    /// From here on workers are suspected of what cannot be.
    pub fn judge_by(&self, names: Names, sizes: Prices) {
        // Said once, at the start.
        let _ = self.0.judges.set((names, sizes));
    }

    pub fn add(&self, worker: WorkerId, feat: &Feat) {
        let polls = {
            let mut live = self.live();
            let live = live.entry(worker).or_default();
            live.add(feat);
            live.trade.is_some()
        };
        // What comes by a socket was measured as it came.
        if polls && self.is_incredible(feat) {
            self.notice(worker, Reason::TooFast);
        }
    }

    fn is_incredible(&self, feat: &Feat) -> bool {
        let Some((names, sizes)) = self.0.judges.get() else {
            return false;
        };
        let (Some(trade), Some(speed), Some(model)) = (feat.trade, feat.speed(), &feat.model)
        else {
            return false;
        };
        Pace::is_incredible(trade, speed, model, sizes.known(&names.id(model)))
    }

    /// Checks a worker's report for implausible claims.
    pub fn suspect(&self, worker: WorkerId, said: &Said) {
        if self.0.judges.get().is_some() && said.max_pixels > MOST_PIXELS {
            self.notice(worker, Reason::ExtremeMaxPixels);
        }
    }

    /// Of its name, or of where it comes from: something that counts once.
    pub fn suspect_of(&self, worker: WorkerId, reason: Reason) {
        if self.0.judges.get().is_some() {
            self.notice(worker, reason);
        }
    }

    fn notice(&self, worker: WorkerId, reason: Reason) {
        self.0.noticed.lock().push((worker, reason));
        self.0.notified.notify_one();
    }

    /// Records a job dropped by the worker's fault.
    pub fn dropped(&self, worker: WorkerId) {
        let is_raid = self.are_on(ModeSet::RAID);
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
            self.notice(worker, Reason::DroppedJobs);
        }
    }

    /// Waits for suspicions to act on.
    pub async fn noticed(&self) -> Vec<(WorkerId, Reason)> {
        loop {
            let notified = self.0.notified.notified();
            let noticed = std::mem::take(&mut *self.0.noticed.lock());
            if !noticed.is_empty() {
                return noticed;
            }
            notified.await;
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

    /// Unsaved changes of one worker.
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
        self.0.live.lock()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::watch;

    use super::{
        MOST_DROPPED, MOST_DROPPED_IN_A_RAID, MOST_FORMS_DROPPED, ModeSet, Reading, Records,
    };
    use crate::moderation::Reason;
    use crate::rigs::live::Seen;
    use crate::storage::Said;
    use muster_protocol::job::WorkerId;
    use muster_protocol::legacy::words::Trade;

    const WORKER: WorkerId = WorkerId(1);

    /// How many jobs a worker may drop.
    fn allowed(modes: ModeSet, trade: Trade) -> usize {
        let reading = Reading { revision: 1, modes };
        let records = Records::new(watch::channel(reading).1);
        records.check_in(WORKER, Seen::now(Some((trade, Said::default()))));
        for dropped in 0.. {
            records.dropped(WORKER);
            if let Some(noticed) = records.noticed().now_or_never() {
                assert_eq!(noticed, [(WORKER, Reason::DroppedJobs)]);
                return dropped;
            }
        }
        0
    }

    #[test]
    fn in_a_raid_fewer_dropped_jobs_send_a_worker_into_maintenance() {
        for trade in [Trade::Text, Trade::Image] {
            assert_eq!(allowed(ModeSet::default(), trade), MOST_DROPPED);
            assert_eq!(allowed(ModeSet::RAID, trade), MOST_DROPPED_IN_A_RAID);
        }
        for modes in [ModeSet::default(), ModeSet::RAID] {
            assert_eq!(allowed(modes, Trade::Interrogation), MOST_FORMS_DROPPED);
        }
    }
}
