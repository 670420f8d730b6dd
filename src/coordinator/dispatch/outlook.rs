//! What somebody who waits may be told: how many go first, how long that takes, whether anybody could serve it at all.
//! Nothing decides by it.

use std::time::Duration;

use crate::protocol::job::JobId;

use super::Dispatcher;
use super::jobs::State;

/// What a job takes where nothing has been measured yet.
const TYPICAL: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Jobs that probably go first.
    pub ahead: usize,
    /// Until its end, roughly.
    pub wait: Duration,
    /// Somebody online could serve it.
    pub is_possible: bool,
}

impl Dispatcher {
    /// None of a job that has ended.
    pub fn outlook(&self, job: JobId) -> Option<Outlook> {
        let entry = self.jobs.get(&job)?;
        let lane = self.lanes.lane(entry.lane);
        let online = lane.map_or(0, |lane| lane.online);
        let typical = self.typical(entry.lane);
        Some(match &entry.state {
            State::Queued => {
                let ahead = self.queue.ahead(entry.lane, &entry.ticket);
                let rounds = u32::try_from(ahead + 1).unwrap_or(u32::MAX);
                Outlook {
                    ahead,
                    wait: typical.saturating_mul(rounds.div_ceil(online.max(1))),
                    is_possible: online > 0,
                }
            }
            State::Running(lease) => Outlook {
                ahead: 0,
                wait: typical.saturating_sub(self.now.mono.since(lease.offered)),
                is_possible: true,
            },
            State::Settling(_) => Outlook {
                is_possible: true,
                ..Outlook::default()
            },
        })
    }

    /// What a job takes at the worker of this lane that would get the next one.
    fn typical(&self, lane: super::lanes::LaneId) -> Duration {
        let first = self.lanes.lane(lane).and_then(|lane| lane.free.first());
        first.map_or(TYPICAL, |place| Duration::from_millis(place.wait_millis))
    }
}
