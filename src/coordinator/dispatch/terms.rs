//! Priority at a worker: jobs of its owner and of preferred accounts, in the order of the queue, and then all others. A
//! worker in maintenance gets its owner's jobs only: it is in no lane, counts in no outlook, and is checked when a job
//! of its owner is queued.
//!
//! Other accounts may wait as long as its owner keeps a worker busy: it is the owner's machine. Their jobs go to other
//! workers.

use muster_protocol::job::{JobId, WorkerId};

use super::Dispatcher;
use super::input::{SessionId, Terms};
use super::jobs::Entry;
use super::lanes::{LaneId, Need};
use super::workers::{Choice, Worker};

impl Dispatcher {
    pub(super) fn set_terms(&mut self, id: WorkerId, terms: Terms) {
        match terms == Terms::default() {
            true => self.terms.remove(&id),
            false => self.terms.insert(id, terms),
        };
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if worker.session.is_none() {
            worker.terms = terms;
            return;
        }
        let left = self.lanes.detach(worker);
        self.touched.left.extend(left);
        self.settle_in(id);
    }

    /// Sets the terms of a new connection, and adds the worker to its lanes.
    pub(super) fn settle_in(&mut self, id: WorkerId) {
        let terms = self.terms.get(&id).copied().unwrap_or_default();
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.terms = Terms {
            own_only: terms.own_only || worker.own_only,
            ..terms
        };
        worker.note_standing();
        match worker.terms.own_only {
            true => {
                self.own_only.insert((worker.owner, id));
            }
            false => {
                self.own_only.remove(&(worker.owner, id));
                self.lanes.attach(worker);
            }
        }
        self.touched.workers.push(id);
        self.touched.suspects |= !self.suspects.is_empty();
    }

    /// For a newly waiting job: workers that are limited to its account's jobs are matched again.
    pub(super) fn wake_owner(&mut self, job: JobId) {
        let Some(account) = self.jobs.get(&job).map(|entry| entry.ticket.account) else {
            return;
        };
        let first = (account, WorkerId(i64::MIN));
        let last = (account, WorkerId(i64::MAX));
        let own = self.own_only.range(first..=last).map(|(_, worker)| *worker);
        self.touched.workers.extend(own);
    }

    /// The terms of this session's worker.
    pub fn terms(&self, session: SessionId) -> Terms {
        let worker = self.sessions.get(&session);
        let worker = worker.and_then(|id| self.workers.get(id));
        worker.map(|worker| worker.terms).unwrap_or_default()
    }

    /// The earliest job of the worker's owner, or of accounts it prefers, that the worker may run now.
    pub(super) fn preferred_job(
        &self,
        worker: &Worker,
        takes: impl Fn(&Entry) -> bool,
    ) -> Option<(JobId, LaneId)> {
        if !worker.has_room() {
            return None;
        }
        let most = if worker.terms.own_only { 1 } else { usize::MAX };
        let accounts = worker.prefers.iter().take(most);
        let waiting = accounts.flat_map(|account| self.queue.of_account(*account));
        let fits = waiting.filter(|(lane, _, ticket)| {
            let need = self.lanes.lane(*lane).map(|lane| &lane.need);
            let serves = |need: &Need| {
                worker.is_open_to(need.kind)
                    && worker.can_serve(need)
                    && worker.model_for(need, Choice::First).is_some()
            };
            let entry = self.jobs.get(&ticket.job);
            let may_run = |entry: &Entry| takes(entry) && self.may_run(entry, worker.id);
            need.is_some_and(serves) && entry.is_some_and(may_run)
        });
        let first = fits.min_by_key(|(_, rank, ticket)| (*rank, ticket.order, ticket.number));
        first.map(|(lane, _, ticket)| (ticket.job, lane))
    }
}
