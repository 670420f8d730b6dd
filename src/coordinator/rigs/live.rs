//! What is new of one worker since it was last saved, and what is only known while it is here.

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

/// A worker that was not seen for this long is offline.
pub const ONLINE: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

/// A worker came.
#[derive(Debug, Clone)]
pub struct Seen {
    at: Instant,
    wall: UnixMillis,
    /// What it does on a socket.
    does: Option<Trade>,
    said: Option<(Trade, Said)>,
}

/// A job that a worker has ended well.
#[derive(Debug, Clone)]
pub struct Feat {
    pub trade: Option<Trade>,
    pub model: Option<Arc<str>>,
    pub reward: Kudos,
    /// Pixelsteps, tokens or forms.
    pub work: u64,
    /// Jobs that it was given in one go, this one too.
    pub together: u32,
    /// None if others had a part in it.
    pub took: Option<Duration>,
}

impl Feat {
    fn work_together(&self) -> u64 {
        self.work.saturating_mul(self.together.into())
    }

    /// In a second, if that is known.
    pub fn speed(&self) -> Option<f64> {
        let took = self.took.filter(|took| !took.is_zero())?;
        Some(self.work_together() as f64 / took.as_secs_f64())
    }
}

#[derive(Debug, Default)]
pub struct Live {
    /// Whether its row was read.
    pub known: bool,
    pub trade: Option<Trade>,
    /// What one on a socket does most: only that is measured, because work of several kinds does not add up.
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
        // Teams count images only, and the time of all.
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

    /// Those that it was given together it does together.
    fn measure(&mut self, feat: &Feat) {
        if let Some(took) = feat.took {
            self.pace.note(feat.work_together(), took);
        }
    }

    /// It took a job and did not bring it. Says whether that was one too many within an hour.
    pub fn drop_one(&mut self, most: usize, now: Instant) -> bool {
        self.fresh.uncompleted += 1;
        let is_old = |at: &Instant| now.duration_since(*at) >= HOUR;
        while self.dropped.front().is_some_and(is_old) {
            self.dropped.pop_front();
        }
        self.dropped.push_back(now);
        let too_many = self.dropped.len() > most;
        if too_many {
            // Whoever ends the maintenance gives it another try.
            self.dropped.clear();
        }
        too_many && self.decided.maintenance.is_none()
    }

    /// `billions` is the size of a model.
    pub fn terms(&self, billions: impl Fn(&str) -> f64) -> Terms {
        let models = self.said.iter().flat_map(|said| &said.models);
        let largest = models.map(|name| billions(name)).reduce(f64::max);
        Terms {
            own_only: self.decided.maintenance.is_some() || self.decided.paused,
            fast: self.pace.is_fast(self.trade.or(self.does), largest),
        }
    }

    /// Whether dispatch has to be told anything new.
    pub fn tells(&mut self, terms: Terms) -> bool {
        self.told.replace(terms).unwrap_or_default() != terms
    }

    /// What is to be saved, if anything is new.
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

    /// It could not be saved: it is still new.
    pub fn put_back(&mut self, news: RigNews) {
        self.fresh.add(&news.done);
        self.is_new |= news.said.is_some();
        if let Some((_, share)) = news.team {
            self.share.add(&share);
        }
    }

    /// What it did for its team that is not saved yet.
    pub fn team_share(&self) -> Option<(i64, TeamShare)> {
        let team = self.decided.team.as_ref()?;
        let mut share = self.share;
        share.uptime += i64::try_from(self.up.as_secs()).unwrap_or(i64::MAX);
        Some((team.id, share))
    }

    /// The team is no more, and what was done for it counts for none.
    pub fn leave(&mut self, team: i64) {
        if self.decided.team.take_if(|it| it.id == team).is_some() {
            self.share = TeamShare::default();
        }
    }

    /// Puts what is new into what was saved.
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

    /// Whether it may be forgotten: nothing is new, and it was not here for long.
    pub fn is_stale(&self, now: Instant) -> bool {
        let is_away = |(at, _): (Instant, _)| now.duration_since(at) > HOUR;
        self.seen.is_none_or(is_away) && self.fresh == Tally::default()
    }
}

/// What a worker on a socket does, of what the poll API has words for.
pub fn trade(worker: Option<&std::sync::Arc<WorkerOnline>>) -> Trade {
    match worker.is_some_and(|it| it.kinds.contains(Kind::Image) && !it.kinds.contains(Kind::Text))
    {
        true => Trade::Image,
        false => Trade::Text,
    }
}

/// What a worker on a socket said, in the words of those that poll.
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
