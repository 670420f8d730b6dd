//! The outlook of a waiting job: jobs before it, expected wait, and whether an online worker could serve it. No
//! decision depends on this.

use std::time::Duration;

use muster_protocol::job::JobId;

use super::Dispatcher;
use super::clock::Mono;
use super::fairness::Work;
use super::jobs::{Lease, State};
use super::lanes::{Lane, LaneId};
use super::pace::Pace;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Jobs that will probably start before this one.
    pub ahead: usize,
    /// Other requests among these jobs.
    pub requests_ahead: usize,
    /// Estimate until the job ends.
    pub wait: Duration,
    /// An online worker could serve the job.
    pub is_possible: bool,
}

impl Dispatcher {
    /// `None` for a job that has ended.
    pub fn outlook(&self, job: JobId, now: Mono) -> Option<Outlook> {
        let entry = self.jobs.get(&job)?;
        let lane = self.lanes.lane(entry.lane);
        let online = lane.map_or(0, |lane| lane.online);
        let of_lane = lane.map_or_else(Pace::default, |lane| lane.pace);
        let pace = of_lane.or(self.paces.of(entry.job.kind));
        Some(match &entry.state {
            State::Queued => {
                let ahead = self.queue.ahead(entry.lane, &entry.ticket);
                // Jobs ahead count as typical ones, since their sizes are not looked up.
                let first = pace.time_for(Work(1000 * ahead.jobs as u64)) / online.max(1);
                let wait = until_free(lane, now) + first + pace.time_for(entry.ticket.work);
                Outlook {
                    ahead: ahead.jobs,
                    requests_ahead: ahead.requests,
                    wait,
                    is_possible: online > 0,
                }
            }
            State::Running(lease) => {
                let took = now.since(lease.offered);
                Outlook {
                    wait: pace
                        .time_for(lease.work(entry.ticket.work))
                        .saturating_sub(took),
                    is_possible: true,
                    ..Outlook::default()
                }
            }
            State::Settling(_) => Outlook {
                is_possible: true,
                ..Outlook::default()
            },
        })
    }

    /// Records that a job of this lane has started.
    pub(super) fn note_begun(&mut self, job: JobId, lane: LaneId) {
        let (Some(entry), Some(lane)) = (self.jobs.get(&job), self.lanes.lane_mut(lane)) else {
            return;
        };
        let pace = lane.pace.or(self.paces.of(entry.job.kind));
        let end = self.now.mono + pace.time_for(entry.ticket.work);
        lane.busy_until = lane.busy_until.max(end);
    }

    /// Records the duration of a finished job.
    pub(super) fn note_pace(&mut self, job: JobId, lease: &Lease) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        let work = lease.work(entry.ticket.work);
        let took = self.now.mono.since(lease.offered);
        self.paces.learn(entry.job.kind, work, took);
        if let Some(lane) = self.lanes.lane_mut(entry.lane) {
            lane.pace.learn(work, took);
        }
    }
}

/// Zero if a worker is free; else until a running job is expected to end.
fn until_free(lane: Option<&Lane>, now: Mono) -> Duration {
    let busy = lane.filter(|lane| lane.free.is_empty());
    busy.map_or(Duration::ZERO, |lane| lane.busy_until.since(now))
}
