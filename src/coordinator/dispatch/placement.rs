//! Offers of waiting jobs to workers. A new job is matched with the best free worker of its lane, a worker with a free
//! slot with the first job of all its lanes. A lane never holds both a free worker and a job that this worker may run,
//! so
//! neither side searches.

use std::sync::Arc;

use muster_protocol::job::{JobId, WorkerId};

use super::Dispatcher;
use super::clock::Mono;
use super::effect::{Effect, Offer};
use super::fairness::Rank;
use super::jobs::{Entry, Lease, Phase, State};
use super::lanes::{LaneId, Place};
use super::lifetimes::patience;
use super::timers::Alarm;
use super::workers::{Choice, Worker};

/// Limit of returning jobs of a lane that are checked for one worker.
const RETURNING_LOOK: usize = 64;
/// Limit of refusals by a worker to continue another's output: it may have been full, or unable to.
const MOST_REFUSALS: usize = 3;
/// A worker with the prompt's beginning in its cache is preferred at up to this much longer a wait, plus half of it.
const AFFINITY_MILLIS: u64 = 500;

impl Dispatcher {
    /// Offers the waiting jobs of a lane to its free workers.
    pub(super) fn fill_lane(&mut self, lane: LaneId, out: &mut Vec<Effect>) {
        self.place_returning(lane, out);
        while let Some((_, ticket)) = self.queue.head(lane) {
            let Some(worker) = self.best_worker(lane, ticket.job) else {
                return;
            };
            if !self.offer(ticket.job, worker, lane, out) {
                return;
            }
        }
    }

    /// Offers to a worker with free slots the jobs that have waited longest, of all lanes it serves.
    pub(super) fn feed_worker(&mut self, id: WorkerId, out: &mut Vec<Effect>) {
        self.refresh(id);
        while let Some((job, lane)) = self.best_job(id) {
            if !self.offer(job, id, lane, out) {
                break;
            }
        }
        self.dismiss_if_done(id, out);
    }

    /// Updates the places of the worker in its lanes.
    pub(super) fn refresh(&mut self, id: WorkerId) {
        let strikes = self.conduct.strikes(id);
        if let Some(worker) = self.workers.get_mut(&id) {
            self.lanes.refresh(worker, strikes);
        }
    }

    /// Whether this worker may get the job now; suspects are isolated.
    pub(super) fn may_run(&self, entry: &Entry, worker: WorkerId) -> bool {
        self.could_run(entry, worker) && self.runs_apart(entry, worker)
    }

    /// Whether the job may go to this worker: not if the worker failed or refused it while others are untried, and only
    /// up to a limit of attempts.
    pub(super) fn could_run(&self, entry: &Entry, worker: WorkerId) -> bool {
        // No client holds a connection for a durable job, so a single worker may retry it as often as several would.
        let most = match entry.job.durable {
            true => self.settings.failures_of(entry.job.kind),
            false => 2,
        };
        match (entry.failures_of(worker), entry.refusals_of(worker)) {
            (0, 0) => true,
            (failed, 0..MOST_REFUSALS) if failed < most => self.untried(entry) == 0,
            _ => false,
        }
    }

    /// Connected workers of the job's lane that have not tried it.
    pub(super) fn untried(&self, entry: &Entry) -> u32 {
        let online = self.lanes.lane(entry.lane).map_or(0, |lane| lane.online);
        let listed = |id: &WorkerId| {
            let worker = self.workers.get(id);
            worker.is_some_and(|worker| worker.listing(entry.lane).is_some())
        };
        let tried = entry.tried().iter().filter(|id| listed(id)).count();
        online.saturating_sub(u32::try_from(tried).unwrap_or(u32::MAX))
    }

    fn place_returning(&mut self, lane: LaneId, out: &mut Vec<Effect>) {
        let free = self.lanes.lane(lane).into_iter();
        let free = free.flat_map(|lane| lane.free.iter());
        let scopes = self.scopes_taken(free.map(|place| place.worker));
        let waiting: Vec<JobId> = self
            .queue
            .returning(lane)
            .filter(|(_, it)| !self.waits_apart(it, &scopes))
            .take(RETURNING_LOOK)
            .map(|(_, it)| it.job)
            .collect();
        for job in waiting {
            let Some(entry) = self.jobs.get(&job) else {
                continue;
            };
            let free = self
                .lanes
                .lane(lane)
                .into_iter()
                .flat_map(|lane| lane.free.iter())
                .filter(|place| self.runs_apart(entry, place.worker));
            // One more than the tried workers, so that an untried one is among them.
            let mut places = free.take(entry.tried().len() + 1);
            let found = places.find(|place| self.may_run(entry, place.worker));
            let found = found.map(|place| place.worker);
            if let Some(worker) = found {
                self.offer(job, worker, lane, out);
            }
        }
    }

    /// The free worker with the least expected wait, or one with the prompt's beginning in its cache if it is nearly as
    /// good.
    fn best_worker(&self, lane: LaneId, job: JobId) -> Option<WorkerId> {
        let best = *self.lanes.lane(lane)?.free.first()?;
        let prefixes = self
            .jobs
            .get(&job)
            .map_or(&[][..], |entry| &entry.job.prefixes);
        let warm = prefixes.iter().rev().find_map(|&prefix| {
            let worker = self.workers.get(&self.affinity.worker(prefix)?)?;
            let place = worker.listing(lane)?.place?;
            is_nearly_as_good(place, best).then_some(place.worker)
        });
        Some(warm.unwrap_or(best.worker))
    }

    /// The job with the earliest rank that this worker may run now.
    pub(super) fn best_job(&self, id: WorkerId) -> Option<(JobId, LaneId)> {
        let worker = self.workers.get(&id)?;
        if worker.is_set_aside()
            && let Some(suspect) = self.first_suspect(worker)
        {
            return Some(suspect);
        }
        let preferred = self.preferred_job(worker, |_| true);
        if preferred.is_some() || worker.terms.own_only {
            return preferred;
        }
        let listings = worker.listings.iter();
        let open = listings.filter(|listing| worker.is_open(listing));
        let heads = open.filter_map(|listing| self.first_for(id, listing.lane));
        heads.min().map(|(_, job, lane)| (job, lane))
    }

    fn first_for(&self, worker: WorkerId, lane: LaneId) -> Option<(Rank, JobId, LaneId)> {
        if self.queue.is_empty(lane) {
            return None;
        }
        let scopes = self.scopes_taken(std::iter::once(worker));
        let returning = self.queue.returning(lane);
        let mut returning = returning
            .filter(|(_, ticket)| !self.waits_apart(ticket, &scopes))
            .take(RETURNING_LOOK);
        let may_run = |job: &JobId| {
            self.jobs
                .get(job)
                .is_some_and(|entry| self.may_run(entry, worker))
        };
        let returned = returning.find(|(_, ticket)| may_run(&ticket.job));
        let head = [returned, self.queue.head(lane)].into_iter().flatten();
        head.map(|(rank, ticket)| (rank, ticket.job, lane)).min()
    }

    /// Offers the job to a worker of its lane. False if the worker has no free slot after all, and during a pause.
    pub(super) fn offer(
        &mut self,
        id: JobId,
        worker_id: WorkerId,
        lane: LaneId,
        out: &mut Vec<Effect>,
    ) -> bool {
        let worker = self.workers.get(&worker_id);
        let need = self.lanes.lane(lane).map(|lane| &lane.need);
        let choice = self.jobs.get(&id).map_or(Choice::First, Entry::choice);
        let model = worker
            .filter(|worker| worker.has_room())
            .zip(need)
            .filter(|(worker, need)| worker.is_open_to(need.kind))
            .and_then(|(worker, need)| worker.model_for(need, choice));
        model.is_some_and(|model| self.lend(id, worker_id, lane, model, out))
    }

    /// Matches jobs that waited during the pause with all workers that have free slots.
    pub(super) fn resume_placing(&mut self) {
        self.is_paused = false;
        self.touched.workers.extend(self.workers.keys());
        self.touched.suspects = true;
    }

    /// Leases the job: takes it from the queue and offers it to this model of the worker. False during a pause, too.
    pub(super) fn lend(
        &mut self,
        id: JobId,
        worker_id: WorkerId,
        lane: LaneId,
        model: usize,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.is_paused {
            return false;
        }
        self.renew_taken(id, worker_id);
        let now = self.now.mono;
        let Some(entry) = self.jobs.get_mut(&id) else {
            return false;
        };
        let Some(worker) = self.workers.get_mut(&worker_id) else {
            return false;
        };
        self.turns += 1;
        let Some(mut offer) = lease(entry, worker, model, self.turns, now) else {
            return false;
        };
        if worker.polls() {
            offer.patience.get_or_insert(self.settings.poll_patience);
        }
        for &prefix in &entry.job.prefixes {
            self.affinity.remember(prefix, worker_id);
        }
        let ticket = entry.ticket;
        self.unqueue(lane, &ticket);
        self.queue.start(ticket.account, ticket.work, now);
        self.note_lent(id, worker_id);
        out.push(Effect::Offer(offer));
        self.note_begun(id, lane);
        self.refresh(worker_id);
        self.set_alarm(id);
        true
    }

    /// Sets the job's timer to the next change of its state.
    pub(super) fn set_alarm(&mut self, id: JobId) {
        let Some(entry) = self.jobs.get(&id) else {
            return;
        };
        let due = match &entry.state {
            State::Queued => entry.gives_up(),
            State::Settling(settling) => settling.due(),
            State::Running(lease) => match lease.phase {
                Phase::Live => {
                    let (SilenceCheck::First(look) | SilenceCheck::Second(look)) =
                        self.look_for_silence(entry, lease);
                    let due = entry.expires.min(look);
                    self.kept_until(entry, lease)
                        .map_or(due, |until| due.min(until))
                }
                Phase::Orphaned { look, until } => entry.expires.min(look).min(until),
                Phase::Cancelling { until, .. } => until,
            },
        };
        self.timers.set(Alarm::Job(id), due);
    }

    /// The time of the next silence check.
    pub(super) fn look_for_silence(&self, entry: &Entry, lease: &Lease) -> SilenceCheck {
        let end = self.silent_from(entry, lease);
        let lead = self.settings.second_look.min(end.since(lease.heard) / 2);
        let first = end.before(lead);
        match lease.doubted {
            Some(at) if at >= first => SilenceCheck::Second(at + lead),
            _ => SilenceCheck::First(first),
        }
    }

    /// When the job times out without another frame. For a worker without heartbeats any frame counts, since it has
    /// only this job; a polling worker sends nothing until it submits.
    pub(super) fn silent_from(&self, entry: &Entry, lease: &Lease) -> Mono {
        match self.workers.get(&lease.worker) {
            Some(worker) if worker.polls() => {
                lease.heard + patience(entry, worker).unwrap_or(self.settings.poll_patience)
            }
            Some(worker) if worker.extensions.lease => lease.heard + self.settings.beat_window,
            Some(worker) => {
                lease.heard.max(worker.heard) + self.settings.silence_window(entry.job.kind)
            }
            None => lease.heard,
        }
    }
}

/// A job counts as silent only after two checks.
#[derive(Debug, Clone, Copy)]
pub(super) enum SilenceCheck {
    First(Mono),
    Second(Mono),
}

fn is_nearly_as_good(place: Place, best: Place) -> bool {
    place.wait_millis <= best.wait_millis + best.wait_millis / 2 + AFFINITY_MILLIS
}

/// Creates the lease in the job and the worker, and the offer.
fn lease(
    entry: &mut Entry,
    worker: &mut Worker,
    model: usize,
    turn: u64,
    now: Mono,
) -> Option<Offer> {
    let session = worker.session?;
    entry.history.attempts += 1;
    entry.history.first_offer.get_or_insert(now);
    entry.history.model = Some(worker.models[model].name.clone());
    entry.bound = entry.job.bound(&worker.defaults(model)).map(Arc::new);
    let attempt = entry.earlier + entry.history.attempts;
    entry.state = State::Running(Lease {
        attempt,
        worker: worker.id,
        session,
        model,
        together: 1,
        offered: now,
        heard: now,
        first_output: None,
        prompt_tokens: 0,
        seq: 0,
        events: 0,
        has_progressed: false,
        was_accompanied: false,
        tokens: 0,
        doubted: None,
        phase: Phase::Live,
    });
    worker.running.insert(entry.job.id, entry.job.kind);
    worker.models[model].running += 1;
    worker.turn = turn;
    worker.asked = worker.asked.map(|asked| asked.saturating_sub(1));
    Some(Offer {
        session,
        job: entry.as_handed_out().clone(),
        attempt,
        model: worker.models[model].name.clone(),
        upstream: worker.models[model].upstream(),
        format: entry.job.format_for(worker.profile.formats),
        prefill: entry.prefill(),
        patience: patience(entry, worker),
        remaining: entry.expires.since(now),
    })
}
