//! The last steps of a job, in fixed order: the database has it, then the client's end and the worker's ack. A database
//! outage delays both and causes no strike; after the timeout the job ends as undelivered and unpaid. A durable job
//! waits as long as it lives, since giving up would run it again.

use muster_protocol::job::{AccountId, Failure, FailureKind, JobId, Kudos};

use super::Dispatcher;
use super::admission::{is_direct_text, is_media};
use super::clock::Table;
use super::effect::{Effect, Facts, Outcome};
use super::jobs::{Entry, Lease, PendingAck, Settling, State};
use super::retries::part;
use super::timers::Alarm;
use super::workers::Hold;

impl Dispatcher {
    /// The job has ended: starts its settlement.
    pub(super) fn settle(
        &mut self,
        job: JobId,
        outcome: Outcome,
        ack: Option<PendingAck>,
        out: &mut Vec<Effect>,
    ) {
        self.resolve_strikes(job, &outcome);
        let patience = self.now.mono + self.settings.settle_patience;
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let give_up = match entry.job.durable {
            true => entry.expires.max(patience),
            false => patience,
        };
        entry.state = State::Settling(Settling {
            outcome,
            ack,
            tries: 0,
            next_try: None,
            give_up,
        });
        self.ask_store(job, out);
        self.set_alarm(job);
    }

    /// The ack for a worker that sent `done`, pending until the database has answered.
    pub(super) fn awaits_ack(&mut self, job: JobId, lease: &Lease) -> PendingAck {
        self.note_last_part(job, lease);
        let waits = self.hold_for_ack(job, lease);
        let polls = self.polls(lease.worker);
        let durable = self.jobs.get(&job).is_some_and(|it| it.job.durable);
        let patience = match waits {
            true => Some(self.settings.ack_patience),
            // A socket worker gets its ack even while the store is being retried.
            false => (durable && !polls).then_some(self.settings.settle_patience),
        };
        PendingAck {
            worker: lease.worker,
            attempt: lease.attempt,
            seq: lease.seq,
            polled: polls.then_some(lease.session),
            due: patience.map(|patience| self.now.mono + patience),
        }
    }

    /// Adds the worker that ended the job to its parts if it sent no output.
    fn note_last_part(&mut self, job: JobId, lease: &Lease) {
        let Some(worker) = self.workers.get(&lease.worker) else {
            return;
        };
        if let Some(entry) = self.jobs.get_mut(&job)
            && lease.events == 0
        {
            entry.history.parts.push(part(worker, lease));
        }
    }

    /// A peer without `multi` takes its next frame for the ack, so it gets no frame until then.
    fn hold_for_ack(&mut self, job: JobId, lease: &Lease) -> bool {
        let Some(worker) = self.workers.get_mut(&lease.worker) else {
            return false;
        };
        let waits = !worker.extensions.multi && worker.session == Some(lease.session);
        if waits {
            worker.hold = Some(Hold::Ack(job));
        }
        waits
    }

    pub(super) fn settled(&mut self, job: JobId, reward: Kudos, out: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let State::Settling(settling) = &mut entry.state else {
            return;
        };
        let (outcome, ack) = (settling.outcome.clone(), settling.ack.take());
        out.push(Effect::End { job, outcome });
        if let Some(ack) = ack {
            self.ack(job, ack, reward, out);
        }
        self.forget(job, out);
    }

    /// Schedules a retry: settlements are idempotent.
    pub(super) fn settle_failed(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let State::Settling(settling) = &mut entry.state else {
            return;
        };
        settling.next_try = Some(self.now.mono + settling.backoff());
        settling.tries += 1;
        self.set_alarm(job);
    }

    /// Only stored jobs wait for free disk space.
    pub(super) fn store_full(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let entry = self.jobs.get(&job);
        let is_settling = |entry: &&Entry| matches!(entry.state, State::Settling(_));
        match entry.filter(is_settling) {
            Some(entry) if !entry.job.durable => self.end_unsettled(job, out),
            _ => self.settle_failed(job),
        }
    }

    pub(super) fn settling_alarm(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let now = self.now.mono;
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let State::Settling(settling) = &mut entry.state else {
            return;
        };
        if settling.give_up <= now {
            return self.end_unsettled(job, out);
        }
        let overdue = settling
            .ack
            .take_if(|ack| ack.due.is_some_and(|due| due <= now));
        let again = settling.next_try.take_if(|next| *next <= now).is_some();
        if let Some(ack) = overdue {
            self.ack(job, ack, Kudos(0), out);
        }
        if again {
            self.ask_store(job, out);
        }
        self.set_alarm(job);
    }

    /// The database did not answer in time. The output is neither paid nor counted as delivered; a durable job is still
    /// stored, and runs again.
    fn end_unsettled(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        let State::Settling(settling) = &mut entry.state else {
            return;
        };
        // A polling worker gets no ack for an unsettled job, so it submits again.
        if let Some(ack) = settling.ack.take().filter(|ack| ack.polled.is_none()) {
            self.ack(job, ack, Kudos(0), out);
        }
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        let State::Settling(settling) = &entry.state else {
            return;
        };
        if entry.job.durable {
            out.push(Effect::Park { job });
        } else {
            let outcome = match &settling.outcome {
                Outcome::Delivered { .. } => Outcome::Failed(Failure::new(
                    FailureKind::StoreUnavailable,
                    "the result could not be saved",
                )),
                other => other.clone(),
            };
            out.push(Effect::End { job, outcome });
        }
        self.forget(job, out);
    }

    fn ask_store(&self, job: JobId, out: &mut Vec<Effect>) {
        let Some(entry) = self.jobs.get(&job) else {
            return;
        };
        let State::Settling(settling) = &entry.state else {
            return;
        };
        out.push(Effect::Settle(Box::new(Facts {
            job: entry.as_handed_out().clone(),
            outcome: settling.outcome.clone(),
            parts: entry.history.parts.clone(),
            attempts: entry.history.attempts,
            model: entry.history.model.clone(),
            dropped: entry.history.dropped.clone(),
            usage: entry.history.usage,
            timing: entry.timing(self.now.mono),
            output: None,
        })));
    }

    /// Whether this attempt was submitted, and its worker still waits for its reward.
    pub fn owes_ack(&self, job: JobId, attempt: u32) -> bool {
        let state = self.jobs.get(&job).map(|entry| &entry.state);
        let ack = match state {
            Some(State::Settling(settling)) => settling.ack,
            _ => None,
        };
        ack.is_some_and(|ack| ack.attempt == attempt)
    }

    /// Acks over the worker's present socket, which may not be the one of its `done`; a polling worker gets the reply
    /// to its submit.
    fn ack(&mut self, job: JobId, ack: PendingAck, reward: Kudos, out: &mut Vec<Effect>) {
        if let Some(session) = ack.polled {
            out.push(Effect::Ack {
                session,
                job,
                attempt: Some(ack.attempt),
                reward,
            });
            return self.touched.workers.push(ack.worker);
        }
        let Some(worker) = self.workers.get_mut(&ack.worker) else {
            return;
        };
        let Some(session) = worker.session else {
            return;
        };
        let attempt = worker.extensions.multi.then_some(ack.attempt);
        if worker.hold == Some(Hold::Ack(job)) {
            worker.hold = None;
        } else if !worker.extensions.multi {
            return;
        }
        out.push(Effect::Ack {
            session,
            job,
            attempt,
            reward,
        });
        self.touched.workers.push(ack.worker);
    }

    /// Removes all state of the job.
    pub(super) fn forget(&mut self, job: JobId, out: &mut Vec<Effect>) {
        if let Some(entry) = self.jobs.remove(&job) {
            self.demands.remove(&entry.job);
            if is_direct_text(&entry.job) {
                close_one(&mut self.direct_texts, entry.job.account);
            }
            if is_media(&entry.job) {
                close_one(&mut self.media, entry.job.account);
            }
            close_one(&mut self.open, entry.job.account);
        }
        self.timers.clear(Alarm::Job(job));
        if self.draining && self.jobs.is_empty() {
            self.timers.clear(Alarm::Drain);
            out.push(Effect::Drained);
        }
    }
}

fn close_one(counts: &mut Table<AccountId, usize>, account: AccountId) {
    let Some(open) = counts.get_mut(&account) else {
        return;
    };
    *open = open.saturating_sub(1);
    if *open == 0 {
        counts.remove(&account);
    }
}
