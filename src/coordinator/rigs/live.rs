//! Unsaved changes of a worker, and its volatile state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::wall_clock;
use crate::dispatch::Terms;
use crate::storage::{Decided, RigNews, RigRow, Said, Tally, TeamShare};
use crate::switchboard::WorkerOnline;
use muster_protocol::job::{Kind, Kudos, UnixMillis, WorkerId};
use muster_protocol::legacy::words::{Trade, Word, named};

use super::pace::Pace;

/// A worker is offline after this time without contact.
pub const ONLINE: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

/// The last contact of a worker.
#[derive(Debug, Clone)]
pub struct Seen {
    at: Instant,
    wall: UnixMillis,
    /// The kind of worker on a socket.
    does: Option<Trade>,
    said: Option<(Trade, Said)>,
}

/// A job done by a worker.
#[derive(Debug, Clone)]
pub struct Feat {
    pub trade: Option<Trade>,
    pub model: Option<Arc<str>>,
    pub reward: Kudos,
    /// Pixelsteps, tokens or forms.
    pub work: u64,
    /// Size of the worker's batch, this job included.
    pub together: u32,
    /// `None` if other workers had a part in it.
    pub took: Option<Duration>,
}

impl Feat {
    fn work_together(&self) -> u64 {
        self.work.saturating_mul(self.together.into())
    }

    /// Work per second, if measured.
    pub fn speed(&self) -> Option<f64> {
        let took = self.took.filter(|took| !took.is_zero())?;
        Some(self.work_together() as f64 / took.as_secs_f64())
    }
}

#[derive(Debug, Default)]
pub struct Live {
    /// Whether its row was loaded.
    pub known: bool,
    pub trade: Option<Trade>,
    /// The main kind of a socket worker: only this is measured, because work of several kinds cannot be added up.
    does: Option<Trade>,
    pub decided: Decided,
    said: Option<Said>,
    is_new: bool,
    seen: Option<(Instant, UnixMillis)>,
    up: Duration,
    fresh: Tally,
    share: TeamShare,
    pace: Pace,
    dropped: VecDeque<Instant>,
    saved: UnixMillis,
    told: Option<Terms>,
}

impl Seen {
    pub fn now(said: Option<(Trade, Said)>) -> Self {
        Self {
            at: Instant::now(),
            wall: wall_clock(),
            does: None,
            said,
        }
    }

    pub fn on_socket(does: Trade) -> Self {
        Self {
            does: Some(does),
            ..Self::now(None)
        }
    }
}

impl Live {
    pub fn learn(&mut self, row: &RigRow) {
        if !self.known {
            self.pace = Pace::known(row.speed as f64 / 1000.0);
        }
        self.known = true;
        self.trade = named(&row.trade).or(self.trade);
        self.decided = row.decided.clone();
    }

    pub fn check_in(&mut self, seen: Seen) {
        let serves = self.decided.maintenance.is_none() && !self.decided.paused;
        if let Some((before, _)) = self.seen
            && serves
            && seen.at.duration_since(before) <= ONLINE
        {
            self.up += seen.at.duration_since(before);
        }
        self.seen = Some((seen.at, seen.wall));
        self.does = seen.does.or(self.does);
        if let Some((trade, said)) = seen.said {
            self.is_new |= self.said.as_ref() != Some(&said) || self.trade != Some(trade);
            self.trade = Some(trade);
            self.said = Some(said);
        }
    }

    pub fn add(&mut self, feat: &Feat) {
        self.fresh.fulfilled += 1;
        self.fresh.earned.0 += feat.reward.0;
        // Teams count only images, but all uptime.
        if feat.trade == Some(Trade::Image) {
            self.share.fulfilled += 1;
            self.share.earned.0 += feat.reward.0;
        }
        let does = self.trade.or(self.does).or(feat.trade);
        if does == feat.trade {
            self.does = does;
            self.fresh.work += i64::try_from(feat.work).unwrap_or(i64::MAX);
            self.measure(feat);
        }
    }

    /// Jobs given together count as one batch.
    fn measure(&mut self, feat: &Feat) {
        if let Some(took) = feat.took {
            self.pace.note(feat.work_together(), took);
        }
    }

    /// Records a dropped job. True if it was one too many within an hour.
    pub fn drop_one(&mut self, most: usize, now: Instant) -> bool {
        self.fresh.uncompleted += 1;
        let is_old = |at: &Instant| now.duration_since(*at) >= HOUR;
        while self.dropped.front().is_some_and(is_old) {
            self.dropped.pop_front();
        }
        self.dropped.push_back(now);
        let too_many = self.dropped.len() > most;
        if too_many {
            // The count starts again after maintenance.
            self.dropped.clear();
        }
        too_many && self.decided.maintenance.is_none()
    }

    /// `billions` gives the size of a model.
    pub fn terms(&self, billions: impl Fn(&str) -> f64) -> Terms {
        let models = self.said.iter().flat_map(|said| &said.models);
        let largest = models.map(|name| billions(name)).reduce(f64::max);
        Terms {
            own_only: self.decided.maintenance.is_some() || self.decided.paused,
            fast: self.pace.is_fast(self.trade.or(self.does), largest),
        }
    }

    /// Whether the terms changed; counts as told to dispatch.
    pub fn tells(&mut self, terms: Terms) -> bool {
        self.told.replace(terms).unwrap_or_default() != terms
    }

    /// The changes to save, if any.
    pub fn take_news(&mut self, worker: WorkerId) -> Option<RigNews> {
        let seen_at = self.seen.map_or(self.saved, |(_, wall)| wall);
        if seen_at <= self.saved && self.fresh == Tally::default() && !self.is_new {
            return None;
        }
        self.saved = seen_at;
        let whole = self.up.as_secs();
        self.up -= Duration::from_secs(whole);
        let uptime = i64::try_from(whole).unwrap_or(i64::MAX);
        self.fresh.uptime += uptime;
        self.share.uptime += uptime;
        let said = match std::mem::take(&mut self.is_new) {
            true => self.said.clone(),
            false => None,
        };
        let done = std::mem::take(&mut self.fresh);
        let share = std::mem::take(&mut self.share);
        let team = self.decided.team.as_ref().map(|team| (team.id, share));
        Some(RigNews {
            worker,
            seen_at,
            said: said.map(|said| (self.trade.map_or("", Word::word).to_owned(), said)),
            done,
            speed: self.pace.thousandths(),
            team,
        })
    }

    /// Restores changes whose save failed.
    pub fn put_back(&mut self, news: RigNews) {
        self.fresh.add(&news.done);
        self.is_new |= news.said.is_some();
        if let Some((_, share)) = news.team {
            self.share.add(&share);
        }
    }

    /// Unsaved share for the worker's team.
    pub fn team_share(&self) -> Option<(i64, TeamShare)> {
        let team = self.decided.team.as_ref()?;
        let mut share = self.share;
        share.uptime += i64::try_from(self.up.as_secs()).unwrap_or(i64::MAX);
        Some((team.id, share))
    }

    /// Leaves a deleted team; the unsaved share is dropped.
    pub fn leave(&mut self, team: i64) {
        if self.decided.team.take_if(|it| it.id == team).is_some() {
            self.share = TeamShare::default();
        }
    }

    /// Adds the unsaved changes to the row.
    pub fn bring_up_to_date(&self, row: &mut RigRow) {
        row.done.add(&self.fresh);
        row.done.uptime += i64::try_from(self.up.as_secs()).unwrap_or(i64::MAX);
        row.speed = self.pace.thousandths();
        if let Some((_, wall)) = self.seen {
            row.seen_at = row.seen_at.max(wall);
        }
        if let Some(said) = &self.said {
            row.said = said.clone();
            row.trade = self.trade.map_or("", Word::word).to_owned();
        }
    }

    /// Whether it can be removed from memory: saved, and not seen for a while.
    pub fn is_stale(&self, now: Instant) -> bool {
        let is_away = |(at, _): (Instant, _)| now.duration_since(at) > HOUR;
        self.seen.is_none_or(is_away) && self.fresh == Tally::default()
    }
}

/// A socket worker's kind in the AI Horde API.
pub fn trade(worker: Option<&std::sync::Arc<WorkerOnline>>) -> Trade {
    match worker.is_some_and(|it| it.kinds.contains(Kind::Image) && !it.kinds.contains(Kind::Text))
    {
        true => Trade::Image,
        false => Trade::Text,
    }
}

/// A socket worker's report, in the AI Horde API's terms.
pub fn said_on_socket(worker: &WorkerOnline) -> Said {
    Said {
        agent: worker.agent.to_string(),
        threads: u32::try_from(worker.slots).unwrap_or(u32::MAX),
        nsfw: true,
        models: worker.models.iter().map(|it| it.to_string()).collect(),
        max_length: i64::from(worker.context),
        max_context: i64::from(worker.context),
        ..Said::default()
    }
}
