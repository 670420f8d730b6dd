//! Jobs ended by the coordinator: cancelled, read too slowly, expired, silent, or cut off by shutdown. The worker's
//! slot is free within a second, whatever the worker does.

use std::time::Duration;

use muster_protocol::job::{AccountId, Failure, FailureKind, JobId, Usage, WorkerId};

use super::Dispatcher;
use super::connections::Gone;
use super::effect::{CancelReason, CloseReason, Effect, Outcome};
use super::jobs::{Entry, Lease, Phase, State};
use super::placement::SilenceCheck;
use super::timers::Alarm;
use super::workers::{Hold, Worker};

/// The finding of a running job's alarm.
enum Finding {
    Expired,
    /// No frame about the job and no sign of life of its worker for too long.
    WorkerSilent,
    /// The worker is alive, but sends nothing about this job.
    JobSilent,
    /// The worker still reports on the job, but has held its lease for the longest allowed time.
    KeptTooLong,
    GraceOver,
    /// The worker has not reconnected yet.
    Orphaned,
    CancelOverdue,
    /// Silent at the first check. A second check follows: after a pause of this process or its machine, frames may
    /// still
    /// be unread.
    Doubtful,
    TooEarly,
}

impl Dispatcher {
    /// `None` if the account has no such job. The inner value is the outcome, if it is decided and being settled.
    pub fn decided(&self, job: JobId, account: AccountId) -> Option<Option<&Outcome>> {
        let entry = self.jobs.get(&job);
        let entry = entry.filter(|entry| entry.job.account == account)?;
        Some(match &entry.state {
            State::Settling(settling) => Some(&settling.outcome),
            State::Running(Lease {
                phase: Phase::Cancelling { ending, .. },
                ..
            }) => Some(ending),
            State::Queued | State::Running(_) => None,
        })
    }

    pub(super) fn cancel(&mut self, job: JobId, out: &mut Vec<Effect>) {
        self.stop(job, Outcome::Cancelled, CancelReason::Client, out);
    }

    /// Unfinished jobs of this account.
    pub fn jobs_of(&self, account: AccountId) -> usize {
        self.open.get(&account).copied().unwrap_or(0)
    }

    pub(super) fn end_account(
        &mut self,
        account: AccountId,
        failure: &Failure,
        out: &mut Vec<Effect>,
    ) {
        let its = |entry: &&Entry| entry.job.account == account;
        let mut jobs: Vec<JobId> = self.jobs.values().filter(its).map(|it| it.job.id).collect();
        // A deterministic order.
        jobs.sort_unstable();
        for job in jobs {
            let ending = Outcome::Failed(failure.clone());
            self.stop(job, ending, CancelReason::Timeout, out);
        }
    }

    pub(super) fn drop_slow_client(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let failure = Failure::new(
            FailureKind::SlowClient,
            "the client read the output too slowly",
        );
        self.stop(job, Outcome::Failed(failure), CancelReason::Client, out);
    }

    /// Ends a job in any state on the coordinator's side. No effect once its settlement has begun.
    pub(super) fn stop(
        &mut self,
        job: JobId,
        ending: Outcome,
        why: CancelReason,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        match &entry.state {
            State::Settling(_) => {}
            State::Queued => {
                let (lane, ticket) = (entry.lane, entry.ticket);
                self.unqueue(lane, &ticket);
                self.settle(job, ending, None, out);
            }
            State::Running(lease) => match lease.phase {
                Phase::Cancelling { .. } => {}
                Phase::Orphaned { .. } => {
                    self.release(job);
                    self.settle(job, ending, None, out);
                }
                Phase::Live => self.stop_running(job, ending, why, out),
            },
        }
    }

    fn stop_running(
        &mut self,
        job: JobId,
        ending: Outcome,
        why: CancelReason,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        let Some(lease) = entry.lease() else { return };
        let worker = self.workers.get(&lease.worker);
        let listens = worker.is_some_and(|it| it.extensions.cancel || it.polls())
            || entry.job.kind.is_relayed();
        if !listens {
            let patience = self.settings.silence_window(entry.job.kind);
            self.abandon(job, patience);
            return self.settle(job, ending, None, out);
        }
        let until = match why {
            // A polling worker cannot be told to cancel, so its result is accepted and paid until the timeout.
            CancelReason::Client if self.polls(lease.worker) => {
                self.silent_from(entry, lease).min(entry.expires)
            }
            _ => self.now.mono + self.settings.cancel_patience,
        };
        self.cancel_on_worker(job, why, out);
        if let Some(lease) = self.jobs.get_mut(&job).and_then(|entry| entry.lease_mut()) {
            lease.phase = Phase::Cancelling { until, ending };
        }
        self.set_alarm(job);
    }

    pub(super) fn cancel_on_worker(
        &mut self,
        job: JobId,
        why: CancelReason,
        out: &mut Vec<Effect>,
    ) {
        if let Some(lease) = self.jobs.get(&job).and_then(|entry| entry.lease()) {
            let (session, attempt) = (lease.session, lease.attempt);
            out.push(Effect::CancelOnWorker {
                session,
                job,
                attempt,
                why,
            });
        }
    }

    pub(super) fn is_cancelling(&self, job: JobId) -> bool {
        let lease = self.jobs.get(&job).and_then(|entry| entry.lease());
        lease.is_some_and(|lease| matches!(lease.phase, Phase::Cancelling { .. }))
    }

    /// The worker has stopped: by a `done`, which needs an ack, or otherwise.
    pub(super) fn cancel_confirmed(
        &mut self,
        job: JobId,
        done: Option<Usage>,
        out: &mut Vec<Effect>,
    ) {
        let Some(lease) = self.release(job) else {
            return;
        };
        let ack = done.map(|_| self.awaits_ack(job, &lease));
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.history.usage = done.or(entry.history.usage);
        }
        if let Phase::Cancelling { ending, .. } = lease.phase {
            self.settle(job, ending, ack, out);
        }
    }

    /// The worker did not stop in time. With `multi` it can take other jobs all the same; without, it would confuse
    /// them with this one, so it gets none until it sends a frame or its socket closes.
    fn cancel_overdue(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let Some(lease) = self.abandon(job, self.settings.mute_patience) else {
            return;
        };
        if let Phase::Cancelling { ending, .. } = lease.phase {
            self.settle(job, ending, None, out);
        }
    }

    fn abandon(&mut self, job: JobId, patience: Duration) -> Option<super::jobs::Lease> {
        let lease = self.release(job)?;
        self.mute(lease.worker, job, patience);
        Some(lease)
    }

    /// Holds back jobs from a worker without `multi`, which may still run this job and would confuse it with another.
    pub(super) fn mute(&mut self, id: WorkerId, job: JobId, patience: Duration) {
        let until = self.now.mono + patience;
        if let Some(worker) = self.workers.get_mut(&id)
            && !worker.extensions.multi
        {
            worker.hold = Some(Hold::Muted { job, until });
            self.set_worker_alarm(id);
        }
    }

    pub(super) fn job_alarm(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        match entry.state {
            State::Settling(_) => return self.settling_alarm(job, out),
            State::Queued if entry.expires <= self.now.mono => {
                return self.stop(job, Outcome::Expired, CancelReason::Timeout, out);
            }
            State::Queued if entry.gives_up() <= self.now.mono => {
                let message = "no worker of this model was free in time";
                let failure = Failure::new(FailureKind::NoWorker, message);
                let ending = Outcome::Failed(failure);
                return self.stop(job, ending, CancelReason::Timeout, out);
            }
            State::Queued => return self.set_alarm(job),
            State::Running(_) => {}
        }
        match self.look_at(job) {
            Finding::Expired => {
                self.note_dropped(job);
                self.stop(job, Outcome::Expired, CancelReason::Timeout, out);
            }
            Finding::WorkerSilent => self.close_silent(job, out),
            Finding::JobSilent => {
                self.stalled(job, "the worker sent nothing more for this job", out)
            }
            Finding::KeptTooLong => {
                let why = "the worker held this job beyond its lifetime";
                self.stalled(job, why, out);
            }
            Finding::GraceOver => self.take_back(job, Gone::Lost, out),
            Finding::Orphaned => self.look_after_orphan(job, out),
            Finding::CancelOverdue => self.cancel_overdue(job, out),
            Finding::Doubtful => {
                if let Some(lease) = self.jobs.get_mut(&job).and_then(|entry| entry.lease_mut()) {
                    lease.doubted = Some(self.now.mono);
                }
                self.set_alarm(job);
            }
            Finding::TooEarly => self.set_alarm(job),
        }
    }

    fn stalled(&mut self, job: JobId, why: &'static str, out: &mut Vec<Effect>) {
        self.cancel_on_worker(job, CancelReason::Superseded, out);
        self.attempt_failed(job, Failure::new(FailureKind::Stalled, why), out);
    }

    fn look_at(&self, job: JobId) -> Finding {
        let now = self.now.mono;
        let Some(entry) = self.jobs.get(&job) else {
            return Finding::TooEarly;
        };
        let Some(lease) = entry.lease() else {
            return Finding::TooEarly;
        };
        match lease.phase {
            Phase::Cancelling { until, .. } if until <= now => return Finding::CancelOverdue,
            Phase::Cancelling { .. } => return Finding::TooEarly,
            _ if entry.expires <= now => return Finding::Expired,
            Phase::Orphaned { until, .. } if until <= now => return Finding::GraceOver,
            Phase::Orphaned { look, .. } if look <= now => return Finding::Orphaned,
            Phase::Orphaned { .. } => return Finding::TooEarly,
            Phase::Live => {}
        }
        if self
            .kept_until(entry, lease)
            .is_some_and(|until| until <= now)
        {
            return Finding::KeptTooLong;
        }
        match self.look_for_silence(entry, lease) {
            SilenceCheck::First(at) | SilenceCheck::Second(at) if at > now => {
                return Finding::TooEarly;
            }
            SilenceCheck::First(_) => return Finding::Doubtful,
            // A late second check counts as a first one.
            SilenceCheck::Second(at) if now.since(at) > self.settings.second_look => {
                return Finding::Doubtful;
            }
            SilenceCheck::Second(_) => {}
        }
        let worker = self.workers.get(&lease.worker);
        let talks = |worker: &Worker| {
            let beats = worker.extensions.lease && worker.heard + self.settings.beat_window > now;
            beats || worker.polls()
        };
        match worker.is_some_and(talks) {
            true => Finding::JobSilent,
            false => Finding::WorkerSilent,
        }
    }

    fn close_silent(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let lease = self.jobs.get(&job).and_then(|entry| entry.lease());
        if let Some(worker) = lease.map(|lease| lease.worker) {
            self.close(worker, CloseReason::Silent, Gone::Lost, out);
        }
    }

    /// Starts a drain: no new jobs. Queued durable jobs stay stored; others may end until `within` has passed.
    pub(super) fn drain(&mut self, within: Duration, out: &mut Vec<Effect>) {
        if self.jobs.is_empty() {
            out.push(Effect::Drained);
        } else {
            self.timers.set(Alarm::Drain, self.now.mono + within);
        }
        self.draining = true;
        let waits = |entry: &Entry| entry.job.durable && matches!(entry.state, State::Queued);
        let waiting = self.jobs.iter().filter(|(_, entry)| waits(entry));
        let mut waiting: Vec<JobId> = waiting.map(|(job, _)| *job).collect();
        waiting.sort_unstable();
        waiting.into_iter().for_each(|job| self.park(job, out));
    }

    /// The drain timed out: durable jobs stay stored, the clients of others get an error that asks for a retry.
    pub(super) fn end_drain(&mut self, out: &mut Vec<Effect>) {
        let mut left: Vec<JobId> = self.jobs.keys().copied().collect();
        left.sort_unstable();
        for job in left {
            if self.jobs.get(&job).is_some_and(|entry| entry.job.durable) {
                self.park(job, out);
            } else {
                let failure = Failure::new(
                    FailureKind::ShuttingDown,
                    "the coordinator is shutting down",
                );
                self.stop(job, Outcome::Failed(failure), CancelReason::Superseded, out);
            }
        }
    }

    /// Leaves the jobs to another coordinator, which gets them from the database or from their clients' nodes. Jobs that
    /// have ended, by their worker or by a cancel, are settled here.
    pub(super) fn hand_over(&mut self, out: &mut Vec<Effect>) {
        self.draining = true;
        if self.jobs.is_empty() {
            return out.push(Effect::Drained);
        }
        let mut open: Vec<JobId> = self.jobs.keys().copied().collect();
        open.sort_unstable();
        for job in open {
            let state = self.jobs.get(&job).map(|entry| &entry.state);
            match state {
                None | Some(State::Settling(_)) => {}
                Some(State::Running(lease)) if matches!(lease.phase, Phase::Cancelling { .. }) => {
                    self.cancel_confirmed(job, None, out);
                }
                Some(State::Queued | State::Running(_)) => self.park(job, out),
            }
        }
    }

    /// Removes a job from memory without ending it.
    pub(super) fn park(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        match &entry.state {
            State::Queued => {
                let (lane, ticket) = (entry.lane, entry.ticket);
                self.unqueue(lane, &ticket);
            }
            State::Running(_) => {
                self.cancel_on_worker(job, CancelReason::Superseded, out);
                self.abandon(job, self.settings.mute_patience);
            }
            State::Settling(_) => {}
        }
        out.push(Effect::Park { job });
        self.forget(job, out);
    }
}
