//! Lanes without workers: their jobs move to another lane if possible, else wait a while for a worker and then fail.
//! Unused lanes are removed here, too.

use std::collections::BTreeMap;

use muster_protocol::job::{Capabilities, Failure, FailureKind, Job, JobId};

use super::Dispatcher;
use super::effect::{CancelReason, Effect, Outcome};
use super::jobs::Entry;
use super::lanes::{LaneId, Need};
use super::timers::Alarm;

impl Dispatcher {
    /// The lane of a returning job: any worker of its lane or, once it has output, those that can continue it.
    pub(super) fn home(&mut self, job: JobId) -> LaneId {
        let Some(entry) = self.jobs.get(&job) else {
            return LaneId::default();
        };
        let (lane, has_output) = (entry.lane, entry.has_output());
        let online = self.lanes.lane(lane).map(|lane| lane.online);
        if !has_output && online > Some(0) {
            return lane;
        }
        let (job, also) = (entry.job.clone(), also_needed(entry));
        self.lane_for(&job, also).unwrap_or_else(|_| {
            if !has_output && online.is_some() {
                return lane;
            }
            self.lane_to_wait_in(&job, also)
        })
    }

    /// The lane of a job that no online worker can serve.
    pub(super) fn lane_to_wait_in(&mut self, job: &Job, also: Capabilities) -> LaneId {
        let (need, now) = (Need::of(job, also), self.now.mono);
        let lane = self.lanes.keep(need, &mut self.workers, now);
        self.timers
            .set_by(Alarm::Lane(lane), now + self.settings.lane_life);
        lane
    }

    /// Sets the lane's alarm: queued jobs without a worker fail after `unserved_patience`.
    pub(super) fn watch_lane(&mut self, id: LaneId) {
        let (now, patience) = (self.now.mono, self.settings.unserved_patience);
        let waiting = !self.queue.is_empty(id);
        let Some(lane) = self.lanes.lane_mut(id) else {
            return;
        };
        if lane.online == 0 && waiting {
            let end = *lane.unserved_since.get_or_insert(now) + patience;
            // Jobs that still wait after that are checked periodically.
            let next = if end > now { end } else { now + patience };
            self.timers.set_by(Alarm::Lane(id), next);
        }
    }

    /// Moves the jobs of a lane without workers to lanes that can serve them.
    pub(super) fn rehome(&mut self, from: LaneId) {
        let Some(lane) = self.lanes.lane(from).filter(|lane| lane.online == 0) else {
            return;
        };
        if self.lanes.is_deserted(&lane.need) {
            return self.watch_lane(from);
        }
        // Jobs of a lane differ only in their context length and in whether they have output.
        let mut homes = BTreeMap::new();
        for ticket in self.queue.in_lane(from) {
            let Some(entry) = self.jobs.get(&ticket.job) else {
                continue;
            };
            let also = also_needed(entry);
            let returns = entry.history.attempts > 0;
            let job = entry.job.clone();
            let (read, begun) = (job.limits.prompt_tokens, entry.has_output());
            let home = homes.entry((read, begun));
            let home = home.or_insert_with(|| self.lane_for(&job, also).ok());
            if let Some(to) = *home {
                self.queue.remove(from, &ticket);
                match returns {
                    true => self.queue.push_returning(to, ticket),
                    false => self.queue.push(to, ticket),
                }
                if let Some(entry) = self.jobs.get_mut(&ticket.job) {
                    entry.lane = to;
                }
                self.touched.lanes.push(to);
                self.touched.suspects |= self.is_waiting_suspect(&ticket);
            }
        }
        self.watch_lane(from);
    }

    pub(super) fn lane_alarm(&mut self, id: LaneId, out: &mut Vec<Effect>) {
        let (now, patience) = (self.now.mono, self.settings.unserved_patience);
        self.rehome(id);
        let Some(lane) = self.lanes.lane(id) else {
            return;
        };
        let used = lane.used;
        if lane
            .unserved_since
            .is_some_and(|since| since + patience <= now)
        {
            self.end_unserved(id, out);
        }
        if !self.queue.is_empty(id) {
            self.timers.set_by(Alarm::Lane(id), now + patience);
        } else if used + self.settings.lane_life > now {
            self.timers
                .set_by(Alarm::Lane(id), used + self.settings.lane_life);
        } else {
            self.lanes.remove(id, &mut self.workers);
            self.timers.clear(Alarm::Lane(id));
        }
    }

    /// No worker came in time: fails the lane's jobs, except durable ones and those of own-only workers.
    fn end_unserved(&mut self, lane: LaneId, out: &mut Vec<Effect>) {
        for ticket in self.queue.in_lane(lane) {
            let Some(entry) = self.jobs.get(&ticket.job) else {
                continue;
            };
            if entry.job.durable || self.awaits_own_worker(&entry.job) {
                continue;
            }
            let failure = match entry.has_output() {
                true => Failure::new(
                    FailureKind::WorkerLost,
                    "no other worker can continue this output",
                ),
                false => Failure::new(
                    FailureKind::NoWorker,
                    "the workers of this model have gone offline",
                ),
            };
            self.stop(
                ticket.job,
                Outcome::Failed(failure),
                CancelReason::Superseded,
                out,
            );
        }
    }
}

/// Capabilities that the worker needs besides those of the request.
fn also_needed(entry: &Entry) -> Capabilities {
    match entry.has_output() {
        true => Capabilities::CONTINUE,
        false => Capabilities::default(),
    }
}
