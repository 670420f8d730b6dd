//! Polling workers, which have no socket. Such a worker is online while it polls often enough (its shell reports when
//! it stops), has free slots only during a pop, and is next heard when it submits. No message can reach it in between,
//! so a cancelled job runs on until the next submit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_protocol::job::{Capabilities, JobId, Kind, Needs, Reach, RequestId, WorkerId};

use super::Dispatcher;
use super::effect::{Effect, Offer};
use super::input::{Registration, SessionId};
use super::jobs::{Entry, State};
use super::lanes::{LaneId, Need};
use super::lifetimes::patience;
use super::wants::{Unwanted, Wants};
use super::workers::{Profile, Worker};

/// Limit of jobs of a lane that are checked for one worker: some of each account.
const LOOK: usize = 1024;
/// Most lanes counted for an empty pop; with more, the worker gets an estimate. Clients create lanes by their requests,
/// and the dispatcher blocks while it counts.
pub(super) const LANES: usize = 500;

/// Limit of jobs per thread of a worker: a full batch in progress, and one fetched ahead.
pub const MOST_OUT: usize = 2 * 20;

/// Why a worker skips waiting jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    Models,
    /// The worker's owner disabled one capability.
    Denied(Capabilities),
    /// The jobs need a faster worker.
    Speed,
    /// The jobs need a capability or format that the worker lacks.
    Ability,
    Window,
    Output,
    Pixels,
    Steps,
    Untrusted,
    /// The requests target other workers.
    Workers,
    /// Words that the worker refuses.
    Words,
    /// The account may lack the kudos.
    Kudos,
}

/// Queued requests that the worker cannot take, by reason; interrogations count by form. Jobs that this worker failed
/// before are left out.
pub type Skipped = BTreeMap<Skip, usize>;

impl Dispatcher {
    /// Offers the next job for this worker and its siblings, all of one request.
    pub(super) fn pop(&mut self, session: SessionId, wants: &Wants, out: &mut Vec<Effect>) {
        if let Some(&id) = self.sessions.get(&session) {
            match wants.only.is_empty() {
                true => {
                    self.ask(id, wants.most.min(self.left(id)));
                    self.give_all(id, wants, out);
                }
                false => {
                    self.ask(id, wants.most);
                    self.claim(id, wants, out);
                }
            }
            self.ask(id, 0);
        }
    }

    /// A worker submits a job that an earlier process leased to it: the requeued job is leased to the worker again, as
    /// if just offered, whatever models it offers now.
    fn claim(&mut self, id: WorkerId, wants: &Wants, out: &mut Vec<Effect>) {
        let Some((job, entry)) = self.claimable(&wants.only) else {
            return;
        };
        let (account, kind) = (entry.ticket.account, entry.job.kind);
        let (lane, wanted) = (entry.lane, entry.job.model.0.clone());
        let may_bring = |worker: &Worker| {
            worker.has_room()
                && worker.is_open_to(kind)
                && (!wants.own_only || worker.owner == account)
        };
        let Some(worker) = self.workers.get_mut(&id).filter(|it| may_bring(it)) else {
            return;
        };
        let model = worker.model_among(&wanted);
        self.lend(job, id, lane, model, out);
        // The time of the offer is unknown, so the duration is unknown, too.
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.history.first_offer = None;
        }
    }

    /// The first of these jobs that may still be leased by an earlier process.
    pub fn waiting_among(&self, jobs: &[JobId]) -> Option<(JobId, Kind)> {
        let (job, entry) = self.claimable(jobs)?;
        Some((job, entry.job.kind))
    }

    fn claimable(&self, jobs: &[JobId]) -> Option<(JobId, &Entry)> {
        let waits =
            |entry: &Entry| entry.may_be_out_already() && matches!(entry.state, State::Queued);
        let mut here = jobs.iter().filter_map(|job| self.jobs.get_key_value(job));
        let found = here.find(|(_, entry)| waits(entry));
        found.map(|(job, entry)| (*job, entry))
    }

    /// Applies the worker's new models and limits; its running jobs go on.
    pub(super) fn change(&mut self, registration: &Registration) {
        let Some(worker) = self.workers.get_mut(&registration.worker) else {
            return;
        };
        if worker.session != Some(registration.session) {
            return;
        }
        let left = self.lanes.detach(worker);
        self.touched.left.extend(left);
        worker.change(registration);
        worker.heard = self.now.mono;
        self.settle_in(registration.worker);
    }

    /// Queued jobs that the worker cannot take, counted by the first missing requirement. Images are counted by every
    /// missing one, as their workers' owners know it.
    pub fn skipped(&self, session: SessionId, wants: &Wants) -> Skipped {
        let mut skipped = Skipped::new();
        let id = self.sessions.get(&session);
        let Some(worker) = id.and_then(|id| self.workers.get(id)) else {
            return skipped;
        };
        let listed: BTreeSet<LaneId> = worker.listings.iter().map(|it| it.lane).collect();
        let lanes = self.queue.lanes();
        let (all, looked_at) = (lanes.len(), lanes.len().min(LANES));
        let some = lanes.take(LANES);
        for (id, lane) in some.filter_map(|id| Some((id, self.lanes.lane(id)?))) {
            if !worker.profile.kinds.contains(lane.need.kind) {
                continue;
            }
            if listed.contains(&id) {
                self.count_unwanted(id, wants, &mut skipped);
                continue;
            }
            let all = lane.need.kind == Kind::Image;
            let reasons = skips(worker, &lane.need);
            let waiting = match lane.need.kind {
                Kind::Form => self.queue.waiting(id),
                _ => self.queue.requests_waiting(id),
            };
            for reason in reasons.into_iter().take(if all { usize::MAX } else { 1 }) {
                *skipped.entry(reason).or_default() += waiting;
            }
        }
        for count in skipped.values_mut() {
            *count = *count * all / looked_at.max(1);
        }
        skipped
    }

    /// Counts jobs that the worker could run and refuses.
    fn count_unwanted(&self, lane: LaneId, wants: &Wants, skipped: &mut Skipped) {
        if wants.takes_all() {
            return;
        }
        let mut counted = BTreeSet::new();
        for (_, ticket) in self.queue.in_turn(lane).take(LOOK) {
            if !counted.insert(ticket.request) {
                continue;
            }
            let entry = self.jobs.get(&ticket.job);
            let reason = match entry.and_then(|entry| wants.unwanted(entry)) {
                Some(Unwanted::Words) => Skip::Words,
                Some(Unwanted::Kudos) => Skip::Kudos,
                None => continue,
            };
            *skipped.entry(reason).or_default() += 1;
        }
    }

    /// The next job for an untrusted worker, as it would be offered. The job stays queued, and the worker's result is
    /// discarded.
    pub fn decoy(&self, session: SessionId, shown: &BTreeSet<RequestId>) -> Option<Offer> {
        let worker = self.workers.get(self.sessions.get(&session)?)?;
        let open = self
            .lanes
            .iter()
            .filter(|(id, lane)| !self.queue.is_empty(*id) && worker.can_serve(&lane.need));
        let first = open.filter_map(|(id, lane)| {
            let mut turn = self.queue.in_turn(id).take(LOOK);
            let (rank, ticket) = turn.find(|(_, ticket)| !shown.contains(&ticket.request))?;
            let choice = self.jobs.get(&ticket.job)?.choice();
            let model = worker.model_for(&lane.need, choice)?;
            Some((rank, ticket.job, model))
        });
        let (_, job, model) = first.min()?;
        let entry = self.jobs.get(&job)?;
        let bound = entry.job.bound(&worker.defaults(model)).map(Arc::new);
        Some(Offer {
            session,
            job: bound.unwrap_or_else(|| entry.job.clone()),
            attempt: 1,
            model: worker.models[model].name.clone(),
            upstream: None,
            format: entry.job.format_for(worker.profile.formats),
            prefill: None,
            patience: patience(entry, worker),
            remaining: entry.expires.since(self.now.mono),
        })
    }

    pub(super) fn polls(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(Worker::polls)
    }

    /// How many more jobs the worker may hold. Claims of finished jobs do not count against this.
    fn left(&self, id: WorkerId) -> u32 {
        let left = |worker: &Worker| {
            let most = worker.slots.saturating_mul(MOST_OUT);
            most.saturating_sub(worker.running.len())
        };
        let left = self.workers.get(&id).map_or(0, left);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn ask(&mut self, id: WorkerId, most: u32) {
        if let Some(worker) = self.workers.get_mut(&id)
            && worker.polls()
        {
            worker.asked = Some(most);
            worker.heard = self.now.mono;
            if !worker.is_present {
                self.set_presence(id, true);
            }
        }
        self.refresh(id);
    }

    /// The worker starts or stops serving clients that wait for their reply.
    fn set_presence(&mut self, id: WorkerId, is_present: bool) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.is_present = is_present;
        if worker.session.is_some() && worker.leaving.is_none() {
            let left = self.lanes.detach(worker);
            self.touched.left.extend(left);
            self.settle_in(id);
        }
        self.set_worker_alarm(id);
    }

    /// Marks a polling worker as absent when it has not polled for a while.
    pub(super) fn look_for(&mut self, id: WorkerId) {
        let (now, presence) = (self.now.mono, self.settings.poll_presence);
        let is_absent = |worker: &Worker| {
            let until = worker.present_until(presence);
            worker.polls() && worker.is_present && until.is_some_and(|until| until <= now)
        };
        if self.workers.get(&id).is_some_and(is_absent) {
            self.set_presence(id, false);
        }
    }

    /// Offers jobs of one request, or of several to a worker that batches them.
    fn give_all(&mut self, id: WorkerId, wants: &Wants, out: &mut Vec<Effect>) {
        let mut left = wants.most;
        while left > 0 {
            let given = self.give(id, left, wants, out);
            left = match wants.scattered && given > 0 {
                true => left.saturating_sub(given),
                false => 0,
            };
        }
    }

    /// Offers jobs of one request, and returns their number.
    fn give(&mut self, id: WorkerId, most: u32, wants: &Wants, out: &mut Vec<Effect>) -> u32 {
        while let Some(worker) = self.lanes.next_unplaced() {
            self.refresh(worker);
        }
        let next = match wants.takes_all() {
            true => self.best_job(id),
            false => self.best_wanted(id, wants),
        };
        let Some((job, lane)) = next else {
            return 0;
        };
        let entry = self.jobs.get(&job);
        let (siblings, batch) = entry
            .map(|entry| (entry.siblings.clone(), wants.batch(entry.job.limits.bulk)))
            .unwrap_or_default();
        if !self.offer(job, id, lane, out) {
            return 0;
        }
        let mut given = vec![job];
        for &sibling in siblings.iter() {
            let waits_beside = self.jobs.get(&sibling).is_some_and(|entry| {
                entry.lane == lane
                    && matches!(entry.state, State::Queued)
                    && self.may_run(entry, id)
            });
            let has_room = given.len() < batch.min(most) as usize;
            if has_room && waits_beside && self.offer(sibling, id, lane, out) {
                given.push(sibling);
            }
        }
        self.note_batch(&given)
    }

    /// Marks jobs popped together, which run as one batch and take as long as one. Returns their number.
    fn note_batch(&mut self, given: &[JobId]) -> u32 {
        let together = u32::try_from(given.len()).unwrap_or(u32::MAX);
        for job in given {
            if let Some(lease) = self.jobs.get_mut(job).and_then(Entry::lease_mut) {
                lease.together = together;
            }
        }
        together
    }

    /// The wanted job with the earliest rank.
    fn best_wanted(&self, id: WorkerId, wants: &Wants) -> Option<(JobId, LaneId)> {
        let takes = |entry: &Entry| wants.unwanted(entry).is_none() && self.may_run(entry, id);
        let worker = self.workers.get(&id)?;
        // Jobs of preferred accounts need no kudos.
        let words = Wants {
            paid: false,
            ..wants.clone()
        };
        let own_only = wants.own_only || worker.terms.own_only;
        let takes_first = |entry: &Entry| {
            let is_own = !own_only || entry.ticket.account == worker.owner;
            is_own && words.unwanted(entry).is_none()
        };
        let preferred = self.preferred_job(worker, takes_first);
        if preferred.is_some() || own_only {
            return preferred;
        }
        let listings = worker.listings.iter();
        let open = listings.filter(|listing| worker.is_open(listing));
        let first = open.filter_map(|listing| {
            let mut turn = self.queue.in_turn(listing.lane).take(LOOK);
            let wanted = turn.find(|(_, ticket)| self.jobs.get(&ticket.job).is_some_and(takes));
            wanted.map(|(rank, ticket)| (rank, ticket.job, listing.lane))
        });
        first.min().map(|(_, job, lane)| (job, lane))
    }
}

/// All reasons why the worker cannot run jobs of this need.
fn skips(worker: &Worker, need: &Need) -> Vec<Skip> {
    let it: &Profile = &worker.profile;
    let serves = |name: &Arc<str>| {
        worker
            .models
            .iter()
            .any(|model| model.offered && model.name == *name)
    };
    let named = !need.models.is_empty();
    let lacks_model = match need.kind {
        // For images one missing model counts, even if another of the request's models would do.
        Kind::Image => named && !need.models.iter().all(serves),
        _ => named && !need.models.iter().any(serves),
    };
    let missing = need.requires.missing_from(it.capabilities);
    let denied = missing.of(Capabilities::ALLOWANCES);
    let slow = missing.of(Capabilities::FAST.with(Capabilities::TIMELY));
    let many = missing.of(Capabilities::MANY_STEPS);
    let unable = missing != denied.with(slow).with(many) || !it.formats.meets(need.formats);
    let found = [
        (lacks_model, Skip::Models),
        (unable, Skip::Ability),
        (slow != Capabilities::default(), Skip::Speed),
        (exceeds(need.needs, it.reach, Skip::Window), Skip::Window),
        (exceeds(need.needs, it.reach, Skip::Output), Skip::Output),
        (exceeds(need.needs, it.reach, Skip::Pixels), Skip::Pixels),
        (
            many != Capabilities::default() || exceeds(need.needs, it.reach, Skip::Steps),
            Skip::Steps,
        ),
        (need.trusted && !it.trusted, Skip::Untrusted),
        (
            need.owner.is_some_and(|owner| owner != worker.owner)
                || !need.targets.allows(worker.id),
            Skip::Workers,
        ),
    ];
    let mut skips: Vec<Skip> = denied.each().map(Skip::Denied).collect();
    let others = found.into_iter().filter(|(found, _)| *found);
    skips.extend(others.map(|(_, skip)| skip));
    skips.sort_unstable();
    skips
}

/// Whether a job exceeds the worker's limit that this reason is about.
fn exceeds(needs: Needs, most: Reach, reason: Skip) -> bool {
    match (needs, reason) {
        (Needs::Text(text), Skip::Window) => {
            text.window.max(text.context) > most.text.window.min(most.text.context)
        }
        (Needs::Text(text), Skip::Output) => text.output > most.text.output,
        (Needs::Media(media), Skip::Pixels) => media.pixels > most.media.pixels,
        (Needs::Media(media), Skip::Steps) => media.steps > most.media.steps,
        _ => false,
    }
}
