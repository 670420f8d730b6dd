//! Jobs that may kill their workers. A job whose worker was lost before any output is a *suspect*: a worker runs it
//! apart from all others of its kind until it has output, which distinguishes it from jobs that merely shared the lost
//! socket. A suspect that loses its worker is a bad job, if no other job ran with it; otherwise it runs *strictly*
//! alone the next time. A job that has lost two workers runs apart to its end.
//!
//! Texts and media are kept apart from their own kind alone, since a worker runs them on separate threads and media
//! take minutes: a suspect image stops no text, and no image a suspect text. A completed step of an image, a sound or a
//! video counts as output, and ends its strictness.
//!
//! If every worker has jobs of the kind, some are *set aside*: they get no more of it until such jobs have ended and a
//! suspect is given to them. At most half of a lane's workers, and at least one, are isolated at a time. Afterwards the
//! other jobs have such a worker for at least as long as the suspect had it, so that neither starves with a single
//! worker.

use std::collections::BTreeMap;

use muster_protocol::job::{Failure, FailureKind, JobId, Kind, WorkerId};

use super::Dispatcher;
use super::clock::Mono;
use super::jobs::{Entry, Lease};
use super::lanes::LaneId;
use super::queue::Ticket;
use super::workers::Worker;

/// Losses from which on output does not clear a job any more.
const LOSSES_ISOLATED: u32 = 2;

/// The jobs that a suspect is isolated from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Texts,
    Media,
    All,
}

impl Scope {
    const EACH: [Self; 3] = [Self::Texts, Self::Media, Self::All];

    pub fn covers(self, kind: Kind) -> bool {
        match self {
            Self::Texts => kind.is_relayed(),
            Self::Media => !kind.is_relayed(),
            Self::All => true,
        }
    }
}

/// Whether a worker takes further jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Accepts other jobs, and is not reserved before this time.
    Open { until: Mono },
    /// Reserved for a suspect of this scope.
    SetAside { since: Mono, scope: Scope },
    /// Runs this job, and no others of this scope.
    Alone {
        job: JobId,
        since: Mono,
        scope: Scope,
    },
}

impl Default for Isolation {
    fn default() -> Self {
        Self::Open { until: Mono(0) }
    }
}

/// The worker of this lease was lost.
pub(super) struct Loss<'a> {
    pub lease: &'a Lease,
    /// `None` if the worker was removed.
    pub worker: Option<&'a Worker>,
}

impl Loss<'_> {
    /// Whether the loss counts against the job: polling workers may just stop polling, and leaving ones announced it.
    fn is_sudden(&self) -> bool {
        let is_sudden = |worker: &Worker| !worker.polls() && worker.leaving.is_none();
        self.worker.is_some_and(is_sudden)
    }

    /// Whether its process probably ended. A worker without `resume` loses its jobs with every broken connection.
    fn is_death(&self) -> bool {
        self.worker.is_some_and(|worker| worker.extensions.resume)
    }
}

impl Entry {
    /// The jobs that this one is isolated from while it is a suspect.
    pub(super) fn scope(&self) -> Scope {
        match (self.history.is_strict, self.job.kind) {
            (true, _) => Scope::All,
            (false, kind) if kind.is_relayed() => Scope::Texts,
            (false, _) => Scope::Media,
        }
    }

    /// Records a lost worker, which is counted already. Returns the job's failure if the job was the cause.
    pub(super) fn note_loss(&mut self, loss: &Loss) -> Option<Failure> {
        let history = &mut self.history;
        if !loss.is_sudden() {
            return None;
        }
        let lost_before = history.lost.replace(loss.lease.worker);
        let is_another = lost_before != Some(loss.lease.worker);
        let wrote_nothing = loss.lease.events == 0 && !loss.lease.has_progressed;
        if history.is_suspect && (loss.is_death() || is_another && wrote_nothing) {
            if !loss.lease.was_accompanied {
                let message = "the workers that ran this job were lost, the last one while it ran nothing else";
                return Some(Failure::new(FailureKind::BadJob, message));
            }
            history.is_strict = true;
        }
        history.is_suspect |= wrote_nothing || history.losses >= LOSSES_ISOLATED;
        None
    }
}

impl Dispatcher {
    /// Records a suspect that waits for an idle worker.
    pub(super) fn note_waiting_suspect(&mut self, job: JobId) {
        let entry = self.jobs.get(&job);
        if let Some(entry) = entry.filter(|entry| entry.history.is_suspect) {
            self.suspects.insert(key(&entry.ticket), job);
            self.touched.suspects = true;
        }
    }

    /// Removes a job from the queue.
    pub(super) fn unqueue(&mut self, lane: LaneId, ticket: &Ticket) {
        self.queue.remove(lane, ticket);
        self.touched.suspects |= self.suspects.remove(&key(ticket)).is_some();
    }

    /// Whether the job is a waiting suspect.
    pub(super) fn is_waiting_suspect(&self, ticket: &Ticket) -> bool {
        !self.suspects.is_empty() && self.suspects.contains_key(&key(ticket))
    }

    /// Whether the worker could isolate the job, if it is a suspect.
    pub(super) fn runs_apart(&self, entry: &Entry, worker: WorkerId) -> bool {
        let worker = self.workers.get(&worker);
        !entry.history.is_suspect || worker.is_some_and(|worker| worker.could_take(entry.scope()))
    }

    /// Scopes of which one of these workers could run a suspect now.
    pub(super) fn scopes_taken(&self, workers: impl Iterator<Item = WorkerId>) -> Vec<Scope> {
        let mut scopes = Vec::new();
        let workers = workers.filter_map(|id| self.workers.get(&id));
        for worker in workers.filter(|_| !self.suspects.is_empty()) {
            let fresh = Scope::EACH.into_iter();
            let fresh = fresh.filter(|scope| !scopes.contains(scope) && worker.could_take(*scope));
            scopes.extend(fresh.collect::<Vec<_>>());
        }
        scopes
    }

    /// Whether the job is a waiting suspect of none of these scopes.
    pub(super) fn waits_apart(&self, ticket: &Ticket, scopes: &[Scope]) -> bool {
        let entry = self.jobs.get(&ticket.job);
        self.is_waiting_suspect(ticket)
            && entry.is_none_or(|entry| !scopes.contains(&entry.scope()))
    }

    /// The worker got this job; suspects are isolated.
    pub(super) fn note_lent(&mut self, job: JobId, id: WorkerId) {
        let entry = self.jobs.get(&job);
        let suspect = entry.filter(|entry| entry.history.is_suspect);
        let suspect = suspect.map(Entry::scope);
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let since = match worker.isolation {
            Isolation::SetAside { since, .. } => {
                self.touched.suspects = true;
                since
            }
            Isolation::Open { .. } | Isolation::Alone { .. } => self.now.mono,
        };
        if let Some(scope) = suspect {
            worker.isolation = Isolation::Alone { job, since, scope };
            self.isolated.insert(id);
        }
    }

    /// Clears the suspicion of a job with output or a completed step.
    pub(super) fn clear_suspicion(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        if !entry.history.is_suspect {
            return;
        }
        let lease = entry.lease().map(|lease| lease.worker);
        if entry.history.losses < LOSSES_ISOLATED {
            entry.history.is_suspect = false;
            entry.history.is_strict = false;
            lease.into_iter().for_each(|id| self.end_isolation(id));
        } else if !entry.job.kind.is_relayed() && entry.history.is_strict {
            entry.history.is_strict = false;
            let relaxed = entry.scope();
            lease.into_iter().for_each(|id| self.relax(id, relaxed));
        }
    }

    /// Lets the worker take jobs beside its suspect again, except those of this scope.
    fn relax(&mut self, id: WorkerId, to: Scope) {
        let worker = self.workers.get_mut(&id);
        if let Some(Isolation::Alone { scope, .. }) = worker.map(|worker| &mut worker.isolation) {
            *scope = to;
            self.touched.workers.push(id);
        }
    }

    /// The job has left this worker.
    pub(super) fn note_released(&mut self, job: JobId, id: WorkerId) {
        let worker = self.workers.get(&id);
        let runs_it = |worker: &Worker| matches!(worker.isolation, Isolation::Alone { job: alone, .. } if alone == job);
        if worker.is_some_and(runs_it) {
            self.end_isolation(id);
        }
    }

    /// Reserves the worker for other jobs for as long as it was reserved for a suspect.
    pub(super) fn end_isolation(&mut self, id: WorkerId) {
        let now = self.now.mono;
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let (Isolation::SetAside { since, .. } | Isolation::Alone { since, .. }) = worker.isolation
        else {
            return;
        };
        let until = now + now.since(since);
        worker.isolation = Isolation::Open { until };
        self.isolated.remove(&id);
        self.touched.workers.push(id);
        self.touched.suspects = true;
        self.set_worker_alarm(id);
    }

    /// Sets workers aside for queued suspects, and releases those that no suspect needs.
    pub(super) fn review_isolation(&mut self) {
        self.touched.suspects = false;
        let mut waiting: BTreeMap<LaneId, Vec<JobId>> = BTreeMap::new();
        for job in self.suspects.values() {
            if let Some(entry) = self.jobs.get(job) {
                waiting.entry(entry.lane).or_default().push(*job);
            }
        }
        let isolated: Vec<WorkerId> = self.isolated.iter().copied().collect();
        for id in isolated {
            let is_wanted = |jobs: &Vec<JobId>| jobs.iter().any(|job| self.could_isolate(*job, id));
            if self.is_set_aside(id) && !waiting.values().any(is_wanted) {
                self.end_isolation(id);
            }
        }
        for (lane, jobs) in waiting {
            self.set_aside(lane, &jobs);
        }
    }

    fn set_aside(&mut self, lane: LaneId, jobs: &[JobId]) {
        let online = self.lanes.lane(lane).map_or(0, |lane| lane.online as usize);
        let most = (online / 2).max(1);
        loop {
            let listed = |id: &&WorkerId| {
                let worker = self.workers.get(id);
                worker.is_some_and(|worker| worker.listing(lane).is_some())
            };
            let isolated = self.isolated.iter().filter(listed);
            let isolated: Vec<WorkerId> = isolated.copied().collect();
            let waits = isolated.iter().filter(|id| self.is_set_aside(**id));
            if isolated.len() >= most || waits.count() >= jobs.len() {
                return;
            }
            let entries = jobs.iter().filter_map(|job| self.jobs.get(job));
            let Some(scope) = entries.map(Entry::scope).max() else {
                return;
            };
            let Some(id) = self.least_busy(lane, jobs, scope) else {
                return;
            };
            if let Some(worker) = self.workers.get_mut(&id) {
                let since = self.now.mono;
                worker.isolation = Isolation::SetAside { since, scope };
            }
            self.isolated.insert(id);
            self.touched.workers.push(id);
        }
    }

    /// The worker that is expected to be free of these jobs first, among those whose turn it is.
    fn least_busy(&self, lane: LaneId, jobs: &[JobId], scope: Scope) -> Option<WorkerId> {
        let now = self.now.mono;
        let is_open = |worker: &&Worker| {
            worker.listing(lane).is_some()
                && matches!(worker.isolation, Isolation::Open { until } if until <= now)
                && jobs.iter().any(|job| self.could_isolate(*job, worker.id))
        };
        let open = self.workers.values().filter(is_open);
        let least = open.min_by_key(|worker| (worker.running_of(scope), worker.id));
        least.map(|worker| worker.id)
    }

    /// Whether the worker could get the suspect once it is idle.
    fn could_isolate(&self, job: JobId, id: WorkerId) -> bool {
        let (Some(entry), Some(worker)) = (self.jobs.get(&job), self.workers.get(&id)) else {
            return false;
        };
        let listing = worker.listing(entry.lane);
        let is_ready = listing.is_some_and(|listing| worker.has_ready_model(listing));
        is_ready && worker.backoff_until.is_none() && self.could_run(entry, id)
    }

    fn is_set_aside(&self, id: WorkerId) -> bool {
        self.workers.get(&id).is_some_and(Worker::is_set_aside)
    }

    /// The first suspect that this worker may run now.
    pub(super) fn first_suspect(&self, worker: &Worker) -> Option<(JobId, LaneId)> {
        let may_have = |job: &&JobId| {
            let entry = self.jobs.get(job);
            entry.is_some_and(|entry| {
                let listing = worker.listing(entry.lane);
                let is_open = listing.is_some_and(|listing| worker.is_open(listing));
                is_open && self.may_run(entry, worker.id)
            })
        };
        let job = *self.suspects.values().find(may_have)?;
        Some((job, self.jobs.get(&job)?.lane))
    }
}

impl Worker {
    pub fn is_set_aside(&self) -> bool {
        matches!(self.isolation, Isolation::SetAside { .. })
    }

    /// Whether the worker may get another job of this kind or, set aside, its suspect.
    pub fn is_open_to(&self, kind: Kind) -> bool {
        match self.isolation {
            Isolation::Open { .. } => true,
            Isolation::SetAside { scope, .. } => !scope.covers(kind) || self.running_of(scope) == 0,
            Isolation::Alone { scope, .. } => !scope.covers(kind),
        }
    }

    /// Whether a suspect of this scope would be isolated here.
    fn could_take(&self, scope: Scope) -> bool {
        !matches!(self.isolation, Isolation::Alone { .. }) && self.running_of(scope) == 0
    }

    /// Running jobs of this scope.
    pub fn running_of(&self, scope: Scope) -> usize {
        let kinds = self.running.values();
        kinds.filter(|kind| scope.covers(**kind)).count()
    }

    /// When its time for other jobs ends.
    pub fn turn_ends(&self, now: Mono) -> Option<Mono> {
        match self.isolation {
            Isolation::Open { until } if until > now => Some(until),
            _ => None,
        }
    }
}

fn key(ticket: &Ticket) -> (Mono, u64) {
    (ticket.arrived, ticket.number)
}
