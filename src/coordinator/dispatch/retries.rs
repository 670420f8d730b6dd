//! Failures. Only dispatch retries: before its client has seen any output, a job starts again on another worker,
//! invisibly; after that, another worker continues from the delivered tokens, if they are known and a worker can.
//! Strikes are booked when the job has ended, because a job that fails everywhere is itself to blame.

use std::time::Duration;

use muster_protocol::job::{
    Blame, Capabilities, Event, Failure, FailureKind, Formats, JobId, Kudos, WorkerId,
};

use super::Dispatcher;
use super::connections::Gone;
use super::effect::{CancelReason, CloseReason, Effect, Outcome, Part};
use super::jobs::{Entry, Failing, Lease, State};
use super::suspects::Loss;
use super::timers::Alarm;
use super::workers::Worker;

impl Dispatcher {
    /// The attempt failed on the worker.
    pub(super) fn attempt_failed(&mut self, job: JobId, failure: Failure, out: &mut Vec<Effect>) {
        let Some(lease) = self.release(job) else {
            return;
        };
        if failure.blame == Blame::Client {
            return self.bad_request(job, failure, out);
        }
        let polls = self.polls(lease.worker);
        let known = self.workers.get(&lease.worker);
        let known = known.map_or_else(Formats::default, |worker| worker.profile.formats);
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        entry.history.failures.push(Failing {
            worker: lease.worker,
            at: self.now.mono,
            by_worker: failure.blame == Blame::Worker,
            strikes: failure.blame == Blame::Worker && !polls && counts_as_strike(entry, known),
        });
        match verdict(entry, &failure, self.settings.failures_of(entry.job.kind)) {
            Some(last) => self.settle(job, Outcome::Failed(last), None, out),
            None => self.requeue(job, Some(failure), out),
        }
    }

    /// The same for a `done`, which needs an ack.
    pub(super) fn attempt_failed_with_ack(
        &mut self,
        job: JobId,
        failure: Failure,
        out: &mut Vec<Effect>,
    ) {
        let lease = self.jobs.get(&job).and_then(|entry| entry.lease());
        if let Some(lease) = lease {
            let (session, attempt) = (lease.session, self.told_attempt(lease));
            out.push(Effect::Ack {
                session,
                job,
                attempt,
                reward: Kudos(0),
            });
        }
        self.attempt_failed(job, failure, out);
    }

    /// The worker is full or its owner needs the machine: requeues the job, without a strike.
    pub(super) fn handed_back(
        &mut self,
        job: JobId,
        worker: WorkerId,
        retry_after: Duration,
        out: &mut Vec<Effect>,
    ) {
        let Some(lease) = self.release(job) else {
            return;
        };
        self.back_off(worker, retry_after);
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        // A worker that wrote part of this job has only paused it, and may resume it later.
        let cannot_continue = entry.has_output() && lease.events == 0;
        let is_restartable = entry.job.limits.restartable;
        if cannot_continue {
            entry.history.refused.push(worker);
        }
        if cannot_continue && is_restartable && !self.is_servable(job) {
            self.start_over(job, out);
            return self.requeue(job, None, out);
        }
        let cause = cannot_continue.then(|| {
            Failure::new(
                FailureKind::WorkerLost,
                "no other worker can continue this output",
            )
        });
        self.requeue(job, cause, out);
    }

    /// Takes the job back from a worker that has disconnected.
    pub(super) fn take_back(&mut self, job: JobId, gone: Gone, out: &mut Vec<Effect>) {
        let lease = self.release(job);
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        entry.history.losses += u32::from(gone != Gone::Closed);
        if let Some(lease) = lease.filter(|_| gone == Gone::Lost) {
            let worker = self.workers.get(&lease.worker);
            let lease = &lease;
            if let Some(failure) = entry.note_loss(&Loss { lease, worker }) {
                return self.settle(job, Outcome::Failed(failure), None, out);
            }
        }
        if entry.history.losses > self.settings.loss_limit {
            let failure = Failure::new(
                FailureKind::WorkerLost,
                "too many workers were lost while they ran this job",
            );
            return self.settle(job, Outcome::Failed(failure), None, out);
        }
        self.requeue(job, None, out);
    }

    /// Ends the lease: the slot and the account's share are free from now on.
    pub(super) fn release(&mut self, job: JobId) -> Option<Lease> {
        let entry = self.jobs.get_mut(&job)?;
        if !matches!(entry.state, State::Running(_)) {
            return None;
        }
        let State::Running(lease) = std::mem::replace(&mut entry.state, State::Queued) else {
            return None;
        };
        self.queue.stop(entry.ticket.account, entry.ticket.work);
        if let Some(worker) = self.workers.get_mut(&lease.worker) {
            worker.running.remove(&job);
            let model = &mut worker.models[lease.model];
            model.running = model.running.saturating_sub(1);
            if lease.events > 0 {
                entry.history.parts.push(part(worker, &lease));
            }
        }
        self.touched.workers.push(lease.worker);
        self.note_released(job, lease.worker);
        Some(lease)
    }

    /// The attempt number; `None` for a peer without `multi`.
    pub(super) fn told_attempt(&self, lease: &Lease) -> Option<u32> {
        let multi = self
            .workers
            .get(&lease.worker)
            .is_some_and(|worker| worker.extensions.multi);
        multi.then_some(lease.attempt)
    }

    /// Returns the job to the front of the queue. If no online worker can continue its output, the job fails, unless it
    /// is durable: then it waits for a worker.
    fn requeue(&mut self, job: JobId, cause: Option<Failure>, out: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        if entry.has_output() && entry.job.limits.restartable {
            self.start_over_unless_continued(job, out);
        } else if entry.has_output() && !entry.delivered.can_go_on() {
            return self.end_mid_stream(job, cause, out);
        }
        let lane = self.home(job);
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        entry.lane = lane;
        let (ticket, is_stored) = (entry.ticket, entry.job.durable);
        if let Some(cause) = cause.filter(|_| !is_stored && !self.is_servable(job)) {
            return self.settle(job, Outcome::Failed(cause), None, out);
        }
        self.queue.push_returning(lane, ticket);
        self.note_waiting_suspect(job);
        self.wake_owner(job);
        if is_stored {
            out.push(Effect::Returned { job });
        }
        self.touched.lanes.push(lane);
        self.set_alarm(job);
        self.watch_lane(lane);
    }

    /// Restarts an output that the client has not seen and no online worker can continue from its token ids. The retry limit
    /// applies as for other failures.
    fn start_over_unless_continued(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        let (can_go_on, wanted) = (entry.delivered.has_tokens(), entry.job.clone());
        if can_go_on && self.lane_for(&wanted, Capabilities::CONTINUE).is_ok() {
            return;
        }
        self.start_over(job, out);
    }

    fn start_over(&mut self, job: JobId, out: &mut Vec<Effect>) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.start_over();
        }
        let event = Event::Restarted;
        out.push(Effect::Relay { job, event });
    }

    fn end_mid_stream(&mut self, job: JobId, cause: Option<Failure>, out: &mut Vec<Effect>) {
        let lost = || {
            Failure::new(
                FailureKind::WorkerLost,
                "the worker was lost during its output",
            )
        };
        let failure = cause.unwrap_or_else(lost);
        self.settle(job, Outcome::Failed(failure), None, out);
    }

    /// Whether any connected worker may still run this job.
    fn is_servable(&self, job: JobId) -> bool {
        let Some(entry) = self.jobs.get(&job) else {
            return false;
        };
        let listed = |id: &WorkerId| {
            let worker = self.workers.get(id);
            worker.is_some_and(|worker| worker.listing(entry.lane).is_some())
        };
        let again = |id: &WorkerId| listed(id) && self.could_run(entry, *id);
        self.untried(entry) > 0 || entry.tried().iter().any(again)
    }

    /// The request itself is invalid: its other choices would fail in the same way.
    fn bad_request(&mut self, job: JobId, failure: Failure, out: &mut Vec<Effect>) {
        let siblings = self.jobs.get(&job).map(|entry| entry.siblings.clone());
        self.settle(job, Outcome::Failed(failure.clone()), None, out);
        for &sibling in siblings.iter().flat_map(|siblings| siblings.iter()) {
            if self
                .jobs
                .get(&sibling)
                .is_some_and(|entry| !entry.has_output())
            {
                let ending = Outcome::Failed(failure.clone());
                self.stop(sibling, ending, CancelReason::Superseded, out);
            }
        }
    }

    /// Books strikes once the job has ended, when its failures can be judged.
    pub(super) fn resolve_strikes(&mut self, job: JobId, outcome: &Outcome) {
        if matches!(outcome, Outcome::Failed(failure) if failure.blame == Blame::Client) {
            return;
        }
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let mut struck = Vec::new();
        for failing in std::mem::take(&mut entry.history.failures) {
            let Some(entry) = self.jobs.get_mut(&job) else {
                return;
            };
            if failing.by_worker && !entry.history.dropped.contains(&failing.worker) {
                entry.history.dropped.push(failing.worker);
            }
            if failing.strikes && !struck.contains(&failing.worker) {
                struck.push(failing.worker);
                self.strike(failing);
            }
        }
    }

    fn strike(&mut self, failing: Failing) {
        let worker = self.workers.get(&failing.worker);
        if worker.is_some_and(|worker| worker.succeeded > Some(failing.at)) {
            return;
        }
        let (now, rules) = (self.now.mono, &self.settings.strikes);
        let bar = self.conduct.strike(failing.worker, failing.at, now, rules);
        if let Some(bar) = bar {
            self.touched.barred.push((failing.worker, bar));
        }
        self.watch_conduct(failing.worker);
        self.touched.workers.push(failing.worker);
    }

    pub(super) fn evict(&mut self, worker: WorkerId, bar: Duration, out: &mut Vec<Effect>) {
        let reason = CloseReason::Evicted { retry_after: bar };
        self.close(worker, reason, Gone::Closed, out);
    }

    /// Drops a worker's expired strikes and evictions, and sets the alarm for the next.
    pub(super) fn watch_conduct(&mut self, worker: WorkerId) {
        let (now, rules) = (self.now.mono, &self.settings.strikes);
        match self.conduct.forget(worker, now, rules) {
            Some(next) => self.timers.set(Alarm::Conduct(worker), next),
            None => self.timers.clear(Alarm::Conduct(worker)),
        }
        self.touched.workers.push(worker);
    }
}

pub(super) fn part(worker: &Worker, lease: &Lease) -> Part {
    Part {
        trusted: worker.profile.trusted,
        worker: worker.id,
        owner: worker.owner,
        agent: worker.agent.clone(),
        attempt: lease.attempt,
        model: worker.models[lease.model].name.clone(),
        together: lease.together,
        events: lease.events,
        tokens: lease.tokens,
    }
}

/// The job's final failure, if this one was the last that is allowed.
fn verdict(entry: &Entry, failure: &Failure, limit: usize) -> Option<Failure> {
    if entry.history.failures.len() < limit {
        return None;
    }
    let mut workers: Vec<_> = entry
        .history
        .failures
        .iter()
        .map(|failing| failing.worker)
        .collect();
    workers.sort_unstable();
    workers.dedup();
    if workers.len() >= limit {
        let message = format!(
            "{} different workers failed this job: {}",
            workers.len(),
            failure.message
        );
        return Some(Failure::new(FailureKind::BadJob, message));
    }
    Some(failure.clone())
}

/// Only chat jobs cause strikes, as in the public network, because a media or raw job fails for many reasons. Polling
/// workers that drop too many jobs are limited to their owner's jobs by their record instead, not here.
fn counts_as_strike(entry: &Entry, known: Formats) -> bool {
    let chat = Formats::NEUTRAL.with(Formats::OPENAI_CHAT);
    entry.job.kind.is_relayed() && entry.job.format_for(known).meets(chat)
}
