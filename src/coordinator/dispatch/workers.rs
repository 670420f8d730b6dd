//! A connected worker as placement sees it: its capabilities, its running jobs, and how long a job would take there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_protocol::job::{
    AccountId, Capabilities, Formats, JobId, Kind, Kinds, MemoryStay, ModelDefaults, Reach,
    WorkerId,
};

use super::clock::Mono;
use super::input::{Extensions, ModelReport, Offering, Registration, SessionId, Terms};
use super::lanes::{LaneId, Need, Place, coarse_context};
use super::suspects::Isolation;

/// Upper bound of a worker's slots, whatever it claims.
const MOST_SLOTS: u32 = 1024;
/// Limit of models per worker; further ones are ignored.
const MOST_MODELS: usize = 512;
/// The usual wait of a job for a polling worker.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Limit of preferred accounts besides the owner's; further ones get no priority.
const MOST_PREFERRED: usize = 50;

#[derive(Debug)]
pub struct Worker {
    pub id: WorkerId,
    pub owner: AccountId,
    /// `None` while disconnected, with jobs that it may resume.
    pub session: Option<SessionId>,
    pub extensions: Extensions,
    pub profile: Profile,
    /// User agent of a polling worker.
    pub agent: Option<Arc<str>>,
    /// Accounts with priority here, its owner's included.
    pub prefers: Vec<AccountId>,
    /// Whether its owner takes no jobs of other accounts.
    pub own_only: bool,
    pub terms: Terms,
    pub models: Vec<WorkerModel>,
    pub slots: usize,
    /// Running jobs with their kinds.
    pub running: BTreeMap<JobId, Kind>,
    /// Jobs that a polling worker still takes in the current pop; `None` for socket workers, which have slots.
    pub asked: Option<u32>,
    /// Time of the last sign of life.
    pub heard: Mono,
    /// Whether a polling worker serves waiting clients; always true for socket workers.
    pub is_present: bool,
    pub hold: Option<Hold>,
    pub backoff_until: Option<Mono>,
    pub leaving: Option<Leaving>,
    pub isolation: Isolation,
    pub speed: Speed,
    /// Time of the last successful job.
    pub succeeded: Option<Mono>,
    /// The lanes it serves, with its place in each while it has a free slot.
    pub listings: Vec<Listing>,
    /// Increases with every offer, so that equal workers take turns.
    pub turn: u64,
}

/// Capabilities of a worker apart from its models: workers with equal profiles are interchangeable to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Profile {
    pub kinds: Kinds,
    pub formats: Formats,
    pub capabilities: Capabilities,
    pub reach: Reach,
    pub trusted: bool,
}

#[derive(Debug)]
pub struct WorkerModel {
    pub name: Arc<str>,
    /// Whether the model is offered now; a withdrawn one is kept while a job of it runs.
    pub offered: bool,
    pub slots: u32,
    pub running: u32,
    pub ready: bool,
    pub waiting: u32,
    pub stay: MemoryStay,
    pub paused_until: Option<i64>,
    pub offering: Offering,
}

/// Which of several models runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The first of the request's list.
    First,
    /// A random one, the same for the same number.
    Drawn(u64),
}

#[derive(Debug)]
pub struct Listing {
    pub lane: LaneId,
    pub kind: Kind,
    /// Indices of its models that the lane accepts, in the order of the request.
    pub models: Vec<usize>,
    /// For socket workers with a free slot.
    pub place: Option<Place>,
}

/// Why a worker without `multi` gets no jobs although it runs none of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The worker takes its next frame for the ack of this job.
    Ack(JobId),
    /// The worker may still run this cancelled job, and would confuse it with another.
    Muted { job: JobId, until: Mono },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    pub until: Mono,
    /// The coordinator asked, so it closes; a worker that asked closes by itself.
    pub asked_by_us: bool,
}

/// Tokens per second of one job, measured here; before that, as reported or guessed.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    prefill: f64,
    decode: f64,
    measured: bool,
}

impl Worker {
    pub fn new(registration: &Registration, now: Mono) -> Self {
        Self {
            id: registration.worker,
            owner: registration.owner,
            session: Some(registration.session),
            extensions: registration.extensions,
            profile: Profile::of(registration),
            agent: registration.agent.clone(),
            prefers: preferred(registration),
            own_only: registration.own_only,
            terms: Terms::default(),
            models: served_models(registration),
            slots: slots(registration),
            running: BTreeMap::new(),
            asked: registration.polls.then_some(0),
            heard: now,
            is_present: true,
            hold: None,
            backoff_until: None,
            leaving: None,
            isolation: Isolation::default(),
            speed: Speed::default(),
            succeeded: None,
            listings: Vec::new(),
            turn: 0,
        }
    }

    /// Call only while the worker is detached from all lanes, since lanes list workers by capability.
    pub fn note_standing(&mut self) {
        const NOTED: Capabilities = Capabilities::FAST.with(Capabilities::INTERACTIVE);
        let others = self.profile.capabilities.missing_from(NOTED);
        self.profile.capabilities = others
            .with_if(self.terms.fast, Capabilities::FAST)
            .with_if(self.is_present, Capabilities::INTERACTIVE);
    }

    /// Until when a polling worker counts as present without another poll; `None` while it has jobs.
    pub fn present_until(&self, presence: Duration) -> Option<Mono> {
        self.running.is_empty().then(|| self.heard + presence)
    }

    pub fn can_serve(&self, need: &Need) -> bool {
        self.profile.meets(need)
            && need.owner.is_none_or(|owner| owner == self.owner)
            && need.targets.allows(self.id)
    }

    /// Whether the worker accepts a further job.
    pub fn has_room(&self) -> bool {
        self.session.is_some()
            && self.hold.is_none()
            && self.backoff_until.is_none()
            && self.leaving.is_none()
            && match self.asked {
                Some(asked) => asked > 0,
                None => self.running.len() < self.slots,
            }
    }

    /// Whether the worker would accept a further job now, or at its next pop.
    pub fn would_take(&self) -> bool {
        match self.polls() {
            true => self.session.is_some() && self.is_present && self.running.len() < self.slots,
            false => {
                let kinds = [Kind::Text, Kind::Image];
                self.has_room() && kinds.into_iter().any(|kind| self.is_open_to(kind))
            }
        }
    }

    /// Time of a typical answer without other jobs.
    pub fn answer_time(&self) -> Duration {
        let writing = Duration::from_secs_f64(self.speed.typical_job_secs());
        match self.polls() {
            true => writing + POLL_INTERVAL,
            false => writing,
        }
    }

    /// The first model of the listing with a free slot.
    pub fn model_with_room(&self, listing: &Listing) -> Option<usize> {
        listing
            .models
            .iter()
            .copied()
            .find(|&index| self.models[index].has_room())
    }

    /// Whether it serves a model of the listing, even if busy.
    pub fn has_ready_model(&self, listing: &Listing) -> bool {
        let mut models = listing.models.iter().map(|&index| &self.models[index]);
        models.any(|model| model.offered && model.ready && model.slots > 0)
    }

    /// Whether it may get a job of this lane now. Polling workers have free slots only during a pop, and no place.
    pub fn is_open(&self, listing: &Listing) -> bool {
        match self.polls() {
            true => {
                let is_open = self.has_room() && self.is_open_to(listing.kind);
                is_open && self.model_with_room(listing).is_some()
            }
            false => listing.place.is_some(),
        }
    }

    /// The first of these models that the worker serves. If there is none, the first name is added for the one job that
    /// it has done.
    pub fn model_among(&mut self, wanted: &[Arc<str>]) -> usize {
        let known = wanted
            .iter()
            .find_map(|name| self.models.iter().position(|model| model.name == *name));
        known.unwrap_or_else(|| {
            self.models.push(WorkerModel {
                name: wanted.first().cloned().unwrap_or_default(),
                offered: false,
                slots: 1,
                running: 0,
                ready: true,
                waiting: 0,
                stay: MemoryStay::default(),
                paused_until: None,
                offering: Offering::of(Kinds::default(), Reach::ENDLESS),
            });
            self.models.len() - 1
        })
    }

    /// The index of an earlier connection's model. A model that is no longer served is kept for its running job.
    pub fn place_of(&mut self, earlier: &WorkerModel) -> usize {
        let mut models = self.models.iter();
        let known = models.position(|model| model.name == earlier.name);
        known.unwrap_or_else(|| {
            self.models.push(WorkerModel {
                name: earlier.name.clone(),
                offered: false,
                running: 0,
                waiting: 0,
                offering: earlier.offering.clone(),
                ..*earlier
            });
            self.models.len() - 1
        })
    }

    /// The index of a model with a free slot for this need.
    pub fn model_for(&self, need: &Need, choice: Choice) -> Option<usize> {
        let open = |index: &usize| {
            let model = &self.models[*index];
            model.has_room() && model.can_do(need)
        };
        let named = |name: &Arc<str>| self.models.iter().position(|model| model.name == *name);
        match need.models.is_empty() {
            true => choice.among((0..self.models.len()).filter(open)),
            false => choice.among(need.models.iter().filter_map(named).filter(open)),
        }
    }

    /// The models that serve this need, including busy ones.
    pub fn models_for(&self, need: &Need) -> impl Iterator<Item = &WorkerModel> {
        let is_wanted =
            |model: &WorkerModel| need.models.is_empty() || need.models.contains(&model.name);
        let offered = self.models.iter().filter(|model| model.offered);
        offered.filter(move |model| is_wanted(model) && model.can_do(need))
    }

    /// Defaults of this model for settings that the job leaves out.
    pub fn defaults(&self, model: usize) -> ModelDefaults {
        let offering = &self.models[model].offering;
        ModelDefaults {
            size: offering.size,
            clip: offering.clip,
            speaks: !offering.voices.is_empty(),
            reach: offering.reach,
        }
    }

    /// Whether the worker polls, so that no message can reach it in between.
    pub fn polls(&self) -> bool {
        self.asked.is_some()
    }

    /// Applies a new registration. Models keep their indexes, because leases refer to them.
    pub fn change(&mut self, registration: &Registration) {
        self.profile = Profile::of(registration);
        self.agent = registration.agent.clone();
        self.prefers = preferred(registration);
        self.own_only = registration.own_only;
        self.slots = slots(registration);
        if self.running.is_empty() {
            self.models.clear();
        }
        for model in &mut self.models {
            model.offered = false;
        }
        for fresh in served_models(registration) {
            match self.models.iter_mut().find(|it| it.name == fresh.name) {
                Some(model) => {
                    model.offered = true;
                    model.offering = fresh.offering;
                }
                None => self.models.push(fresh),
            }
        }
    }

    pub fn listing(&self, lane: LaneId) -> Option<&Listing> {
        self.listings.iter().find(|listing| listing.lane == lane)
    }

    /// Expected time of a typical job at the current load, with strikes: placement takes the least.
    pub fn expected_wait(&self, strikes: usize) -> Duration {
        let load = self.running.len() as f64 / self.slots as f64;
        let waiting: u32 = self.models.iter().map(|model| model.waiting).sum();
        let crowd = 1.0 + load + f64::from(waiting) / self.slots as f64;
        let seconds = self.speed.typical_job_secs() * crowd + 2.0 * strikes as f64;
        Duration::from_millis((seconds * 1000.0) as u64)
    }

    pub fn apply(&mut self, report: &ModelReport) {
        let Some(model) = self
            .models
            .iter_mut()
            .find(|model| model.name == report.name)
        else {
            return;
        };
        model.ready = report.ready;
        model.stay = report.stay;
        model.paused_until = report.paused_until;
        model.waiting = report.waiting.min(MOST_SLOTS);
        if let Some(slots) = report.slots {
            model.slots = slots.min(MOST_SLOTS);
        }
        self.speed
            .reported(report.prefill_per_second, report.decode_per_second);
    }
}

fn slots(registration: &Registration) -> usize {
    match registration.extensions.multi {
        true => registration.slots.clamp(1, MOST_SLOTS) as usize,
        false => 1,
    }
}

fn preferred(registration: &Registration) -> Vec<AccountId> {
    let others = registration.prefers.iter().take(MOST_PREFERRED);
    std::iter::once(&registration.owner)
        .chain(others)
        .copied()
        .collect()
}

fn served_models(registration: &Registration) -> Vec<WorkerModel> {
    let mut seen = BTreeSet::new();
    let fresh = registration
        .models
        .iter()
        .filter(|model| seen.insert(model.name.clone()));
    let models = fresh.take(MOST_MODELS).map(|model| WorkerModel {
        name: model.name.clone(),
        offered: true,
        slots: if registration.extensions.multi {
            model.slots
        } else {
            1
        },
        running: 0,
        ready: true,
        waiting: 0,
        stay: MemoryStay::default(),
        paused_until: None,
        offering: Offering {
            can: registration.can_of(&model.offering),
            ..model.offering.clone()
        },
    });
    models.collect()
}

impl Registration {
    fn can_of(&self, offering: &Offering) -> Capabilities {
        let own = offering.can.of(Capabilities::OF_MODELS);
        let others = self.capabilities.of(Capabilities::OF_MODELS);
        match offering.says_more {
            true => own,
            false => own.with(others),
        }
    }
}

impl Choice {
    fn among(self, mut open: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        let Self::Drawn(number) = self else {
            return open.next();
        };
        let drawn = number.checked_rem(open.clone().count() as u64)?;
        open.nth(drawn as usize)
    }
}

impl WorkerModel {
    /// The upstream program that serves it.
    pub fn upstream(&self) -> Option<Arc<str>> {
        self.offering.details.upstream.as_deref().map(Arc::from)
    }

    /// Whether this model meets the requirements in which models differ.
    pub fn can_do(&self, need: &Need) -> bool {
        let offering = &self.offering;
        let wanted = need.requires.of(Capabilities::OF_MODELS);
        offering.kinds.contains(need.kind)
            && offering.can.contains(wanted)
            && offering.reach.covers(need.needs)
    }

    fn has_room(&self) -> bool {
        self.offered && self.ready && self.running < self.slots
    }
}

impl Profile {
    fn of(registration: &Registration) -> Self {
        let models = || registration.models.iter().map(|model| &model.offering);
        let can = models().map(|offering| offering.can.of(Capabilities::OF_MODELS));
        let mut capabilities = can.fold(registration.capabilities, Capabilities::with);
        let most = models().map(|offering| offering.reach).reduce(Reach::or);
        if registration.extensions.resume {
            capabilities = capabilities.with(Capabilities::CONTINUE);
        }
        if !registration.polls {
            // Only polling workers can state that they are slow, or limit their steps.
            capabilities = capabilities
                .with(Capabilities::TIMELY)
                .with(Capabilities::MANY_STEPS);
        }
        Self {
            kinds: models()
                .map(|offering| offering.kinds)
                .reduce(Kinds::and)
                .unwrap_or(registration.kinds),
            formats: registration.formats,
            capabilities,
            reach: coarse(most.unwrap_or(registration.reach)),
            trusted: registration.trusted,
        }
    }

    /// The same for one of its models.
    pub fn of_model(self, model: &WorkerModel) -> Self {
        let others = self.capabilities.missing_from(Capabilities::OF_MODELS);
        Self {
            kinds: model.offering.kinds,
            capabilities: others.with(model.offering.can),
            reach: coarse(model.offering.reach),
            ..self
        }
    }

    pub fn meets(&self, need: &Need) -> bool {
        self.kinds.contains(need.kind)
            && self.formats.meets(need.formats)
            && self.capabilities.contains(need.requires)
            && self.reach.covers(need.needs)
            && (self.trusted || !need.trusted)
    }
}

/// Contexts are listed in coarse steps.
fn coarse(reach: Reach) -> Reach {
    reach.with_context(coarse_context(reach.text.context))
}

impl Default for Speed {
    fn default() -> Self {
        Self {
            prefill: 1000.0,
            decode: 30.0,
            measured: false,
        }
    }
}

/// Speed measurements of one job.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Tokens read until the first output, and the time for them.
    pub prompt: u32,
    pub to_first: Duration,
    /// Tokens written after it, the time for them, and the number of pieces.
    pub written: u64,
    pub writing: Duration,
    pub pieces: u64,
}

/// Output in fewer pieces, or in less time, counts as sent at once.
const LEAST_PIECES: u64 = 3;
const LEAST_WRITING: Duration = Duration::from_millis(50);

impl Speed {
    /// Measures a successful job.
    pub fn measure(&mut self, sample: Sample) {
        let came_at_once = sample.pieces < LEAST_PIECES || sample.writing < LEAST_WRITING;
        let writing = match came_at_once {
            // The output was complete when it arrived.
            true => sample.to_first + sample.writing,
            false => sample.writing,
        };
        if sample.prompt >= 16 && !came_at_once {
            let prompt = f64::from(sample.prompt);
            self.prefill = mix(self.prefill, prompt / sample.to_first.as_secs_f64());
        }
        if sample.written >= 8 && writing >= LEAST_WRITING {
            let written = sample.written as f64;
            self.decode = mix(self.decode, written / writing.as_secs_f64());
        }
        self.measured = true;
    }

    fn reported(&mut self, prefill: Option<f64>, decode: Option<f64>) {
        if self.measured {
            return;
        }
        self.prefill = prefill
            .filter(|&speed| is_sane(speed))
            .unwrap_or(self.prefill);
        self.decode = decode
            .filter(|&speed| is_sane(speed))
            .unwrap_or(self.decode);
    }

    /// For 1,000 tokens read and 256 written.
    fn typical_job_secs(&self) -> f64 {
        1000.0 / self.prefill + 256.0 / self.decode
    }
}

fn is_sane(speed: f64) -> bool {
    (0.01..1e7).contains(&speed)
}

fn mix(before: f64, sample: f64) -> f64 {
    if is_sane(sample) {
        0.75 * before + 0.25 * sample
    } else {
        before
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sample, Speed};

    fn measured(to_first: u64, writing: u64, pieces: u64) -> Speed {
        let mut speed = Speed::default();
        for _ in 0..40 {
            speed.measure(Sample {
                prompt: 100,
                to_first: Duration::from_millis(to_first),
                written: 100,
                writing: Duration::from_millis(writing),
                pieces,
            });
        }
        speed
    }

    #[test]
    fn output_that_comes_at_once_was_written_before_it_came() {
        let streamed = measured(1000, 2000, 100);
        assert!((49.0..51.0).contains(&streamed.decode), "{streamed:?}");
        assert!((99.0..101.0).contains(&streamed.prefill), "{streamed:?}");
        for (writing, pieces) in [(1, 1), (1, 100), (100, 1)] {
            let at_once = measured(2000, writing, pieces);
            assert!((47.0..51.0).contains(&at_once.decode), "{at_once:?}");
            assert_eq!(at_once.prefill, Speed::default().prefill);
        }
        let in_no_time = measured(1, 1, 1);
        assert_eq!(in_no_time.decode, Speed::default().decode);
    }
}
