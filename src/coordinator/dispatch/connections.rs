//! Connect, disconnect, resume and replacement of workers. A worker is identified by its name; a session is one of its
//! sockets, of which only the newest counts.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_protocol::job::{JobId, WorkerId};

use super::Dispatcher;
use super::effect::{CloseReason, Effect, Verdict};
use super::input::{Claim, Registration, SessionId};
use super::jobs::{Phase, State};
use super::suspects::Isolation;
use super::timers::Alarm;
use super::workers::{Hold, Leaving, Worker};

/// How a worker's connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// The socket broke, was replaced or timed out: the worker may reconnect and resume its jobs.
    Lost,
    /// The worker reconnected without the job, so the job gets no strike.
    Dropped,
    /// Closed by the coordinator or by agreement: the worker does not resume, and its jobs get no strike.
    Closed,
}

impl Dispatcher {
    pub(super) fn connect(&mut self, registration: &Registration, out: &mut Vec<Effect>) {
        let (id, session) = (registration.worker, registration.session);
        if let Some(retry_after) = self.conduct.barred(id, self.now.mono) {
            let reason = CloseReason::Barred { retry_after };
            out.push(Effect::CloseWorker { session, reason });
            return;
        }
        let older = self.workers.get(&id).and_then(|worker| worker.session);
        let known = self.workers.get(&id);
        let known = known.map(|worker| (worker.speed, worker.succeeded));
        let mark = out.len();
        if older.is_some() {
            self.disconnect(id, Gone::Lost, out);
        }
        let mut worker = Worker::new(registration, self.now.mono);
        (worker.speed, worker.succeeded) = known.unwrap_or_default();
        let resumed = self.resume(&mut worker, registration, out);
        self.sessions.insert(session, id);
        self.workers.insert(id, worker);
        self.settle_in(id);
        self.set_worker_alarm(id);
        // The new socket takes over before any effect on the old one.
        out.insert(mark, Effect::Ready { session, resumed });
        if let Some(session) = older {
            let reason = CloseReason::Replaced;
            out.push(Effect::CloseWorker { session, reason });
        }
    }

    pub(super) fn lose_socket(&mut self, session: SessionId, out: &mut Vec<Effect>) {
        if let Some(&worker) = self.sessions.get(&session) {
            self.disconnect(worker, Gone::Lost, out);
        }
    }

    /// For frames without a job.
    pub(super) fn heard(&mut self, session: SessionId) {
        let worker = self
            .sessions
            .get(&session)
            .and_then(|id| self.workers.get_mut(id));
        if let Some(worker) = worker {
            worker.heard = self.now.mono;
        }
    }

    /// Removes a disconnected worker. The jobs wait for the worker if it can resume them, and are requeued otherwise.
    pub(super) fn disconnect(&mut self, id: WorkerId, gone: Gone, out: &mut Vec<Effect>) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if let Some(session) = worker.session.take() {
            self.sessions.remove(&session);
        }
        let left = self.lanes.detach(worker);
        self.touched.left.extend(left);
        self.own_only.remove(&(worker.owner, id));
        worker.hold = None;
        worker.backoff_until = None;
        let comes_back = gone == Gone::Lost && worker.extensions.resume && worker.leaving.is_none();
        let running: Vec<JobId> = worker.running.keys().copied().collect();
        if worker.is_set_aside() {
            self.end_isolation(id);
        }
        self.timers.clear(Alarm::Worker(id));
        self.touched.workers.push(id);
        for job in &running {
            let lease = self.jobs.get_mut(job).and_then(|entry| entry.lease_mut());
            if let Some(lease) = lease {
                lease.was_accompanied = running.len() > 1;
            }
        }
        for job in running {
            if self.is_cancelling(job) {
                self.cancel_confirmed(job, None, out);
            } else if comes_back {
                self.orphan(job);
            } else {
                self.take_back(job, gone, out);
            }
        }
    }

    /// Holds the job until its worker may resume it. For a suspect the full grace applies, since its loss counts
    /// against it.
    fn orphan(&mut self, job: JobId) {
        let now = self.now.mono;
        let (short, until) = (now + self.settings.short_grace, now + self.settings.grace);
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let look = match entry.history.is_suspect {
            true => until,
            false => short,
        };
        if let Some(lease) = entry.lease_mut() {
            lease.phase = Phase::Orphaned { look, until };
        }
        self.set_alarm(job);
    }

    /// Checks an orphaned job: requeues it if another worker is free, else keeps waiting for its own worker.
    pub(super) fn look_after_orphan(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let lane = self.home(job);
        while let Some(worker) = self.lanes.next_unplaced() {
            self.refresh(worker);
        }
        let lane = self.lanes.lane(lane);
        if lane.is_some_and(|lane| !lane.free.is_empty()) {
            return self.take_back(job, Gone::Lost, out);
        }
        let next = self.now.mono + self.settings.short_grace;
        let lease = self.jobs.get_mut(&job).and_then(|entry| entry.lease_mut());
        if let Some(Phase::Orphaned { look, .. }) = lease.map(|lease| &mut lease.phase) {
            *look = next;
        }
        self.set_alarm(job);
    }

    /// Moves the jobs that the worker claims and may resume to its new socket; requeues the others.
    fn resume(
        &mut self,
        worker: &mut Worker,
        registration: &Registration,
        out: &mut Vec<Effect>,
    ) -> Vec<Verdict> {
        let claims = registration
            .resume
            .as_ref()
            .map_or(&[][..], |resume| &resume.jobs);
        let mut seen = BTreeSet::new();
        let fresh = claims.iter().filter(|claim| seen.insert(claim.job));
        let verdicts: Vec<Verdict> = fresh
            .map(|claim| Verdict {
                job: claim.job,
                attempt: claim.attempt,
                go_on_after: self.reattach(worker, registration, *claim),
                resumed: self
                    .jobs
                    .get(&claim.job)
                    .map(|entry| entry.as_handed_out().clone()),
            })
            .collect();
        let gone = match registration.resume {
            Some(_) => Gone::Dropped,
            None => Gone::Lost,
        };
        self.drop_left_behind(worker, gone, out);
        verdicts
    }

    /// The sequence number of the claimed attempt's last frame, if the attempt may continue.
    fn reattach(
        &mut self,
        worker: &mut Worker,
        registration: &Registration,
        claim: Claim,
    ) -> Option<u64> {
        let resumed = registration.resume.as_ref()?.session;
        let before = self.workers.get_mut(&worker.id);
        let entry = self.jobs.get_mut(&claim.job)?;
        let lease = match &mut entry.state {
            State::Running(lease) => lease,
            State::Settling(settling) => {
                let ack = settling.ack.as_mut()?;
                return (ack.worker == worker.id && ack.attempt == claim.attempt)
                    .then_some(ack.seq);
            }
            State::Queued => return None,
        };
        let same = lease.worker == worker.id && lease.attempt == claim.attempt;
        if !same || lease.session != resumed || lease.is_live() {
            return None;
        }
        let before = before?;
        let model = worker.place_of(before.models.get(lease.model)?);
        before.models[lease.model].running -= 1;
        let kind = before.running.remove(&claim.job);
        worker.models[model].running += 1;
        worker.running.extend(kind.map(|kind| (claim.job, kind)));
        if matches!(before.isolation, Isolation::Alone { job, .. } if job == claim.job) {
            worker.isolation = std::mem::take(&mut before.isolation);
        }
        lease.model = model;
        lease.session = registration.session;
        lease.heard = self.now.mono;
        lease.phase = Phase::Live;
        let seq = lease.seq;
        self.set_alarm(claim.job);
        Some(seq)
    }

    /// Requeues jobs of the worker's earlier connection that it did not resume.
    fn drop_left_behind(&mut self, worker: &Worker, gone: Gone, out: &mut Vec<Effect>) {
        let before = self.workers.get(&worker.id);
        let left: Vec<JobId> = before
            .iter()
            .flat_map(|before| before.running.keys().copied())
            .collect();
        for job in left {
            self.take_back(job, gone, out);
        }
    }

    /// Offers nothing for a while to a worker that is full or was paused by its owner.
    pub(super) fn back_off(&mut self, id: WorkerId, wait: Duration) {
        let wait = wait.clamp(Duration::from_millis(50), Duration::from_secs(60));
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.backoff_until = Some(self.now.mono + wait);
            self.set_worker_alarm(id);
            self.touched.workers.push(id);
        }
    }

    /// Drains the worker: its running jobs finish, and new ones go elsewhere.
    pub(super) fn leave(&mut self, session: SessionId, within: Duration) {
        if let Some(&worker) = self.sessions.get(&session) {
            self.retire(worker, within, false);
        }
    }

    pub(super) fn drain_worker(&mut self, id: WorkerId, within: Duration, out: &mut Vec<Effect>) {
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        if let (Some(session), true) = (worker.session, worker.extensions.multi) {
            out.push(Effect::TellDrain { session, within });
        }
        self.retire(id, within, true);
    }

    fn retire(&mut self, id: WorkerId, within: Duration, asked_by_us: bool) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let until = self.now.mono + within;
        worker.leaving = Some(Leaving { until, asked_by_us });
        let left = self.lanes.detach(worker);
        self.touched.left.extend(left);
        if worker.is_set_aside() {
            self.end_isolation(id);
        }
        self.touched.workers.push(id);
        self.set_worker_alarm(id);
    }

    pub(super) fn worker_alarm(&mut self, id: WorkerId, out: &mut Vec<Effect>) {
        let now = self.now.mono;
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.backoff_until = worker.backoff_until.filter(|&until| until > now);
        let muted_too_long = matches!(worker.hold, Some(Hold::Muted { until, .. }) if until <= now);
        let out_of_time = worker.leaving.is_some_and(|leaving| leaving.until <= now);
        if out_of_time {
            self.close(id, CloseReason::Drained, Gone::Closed, out);
        } else if muted_too_long {
            self.close(id, CloseReason::Silent, Gone::Lost, out);
        } else {
            self.look_for(id);
            self.set_worker_alarm(id);
        }
        self.touched.workers.push(id);
        self.touched.suspects |= !self.suspects.is_empty();
    }

    pub(super) fn close(
        &mut self,
        id: WorkerId,
        reason: CloseReason,
        gone: Gone,
        out: &mut Vec<Effect>,
    ) {
        if let Some(session) = self.workers.get(&id).and_then(|worker| worker.session) {
            out.push(Effect::CloseWorker { session, reason });
            self.disconnect(id, gone, out);
        }
    }

    /// Removes a disconnected worker, or disconnects one that has drained.
    pub(super) fn dismiss_if_done(&mut self, id: WorkerId, out: &mut Vec<Effect>) {
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        if !worker.running.is_empty() || worker.hold.is_some() {
            return;
        }
        if worker.session.is_none() {
            self.workers.remove(&id);
            self.timers.clear(Alarm::Worker(id));
        } else if worker.leaving.is_some_and(|leaving| leaving.asked_by_us) {
            self.close(id, CloseReason::Drained, Gone::Closed, out);
        }
    }

    pub(super) fn set_worker_alarm(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        let muted = worker.hold.and_then(|hold| match hold {
            Hold::Muted { until, .. } => Some(until),
            Hold::Ack(_) => None,
        });
        let leaving = worker.leaving.map(|leaving| leaving.until);
        let turn_ends = worker.turn_ends(self.now.mono);
        let (now, presence) = (self.now.mono, self.settings.poll_presence);
        let is_watched = worker.polls() && worker.is_present && worker.session.is_some();
        let present = is_watched.then(|| worker.present_until(presence).unwrap_or(now + presence));
        match [muted, leaving, worker.backoff_until, turn_ends, present]
            .into_iter()
            .flatten()
            .min()
        {
            Some(due) => self.timers.set(Alarm::Worker(id), due),
            None => self.timers.clear(Alarm::Worker(id)),
        }
    }
}
