//! Matching of jobs and workers. A *lane* is one requested combination of needs: the jobs in it are interchangeable to
//! workers, and the workers of it are sorted by expected wait, so that matching never searches.
//!
//! Models know their workers and their lanes; a worker knows the lanes it is listed in. Lanes arise with the first job
//! that needs them and are removed when unused for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use muster_protocol::job::{
    AccountId, Capabilities, Formats, Job, Kind, MediaNeeds, Needs, Privacy, Reach, Targets,
    WorkerId,
};

use super::clock::{Mono, Table};
use super::pace::Pace;
use super::refusal::Missing;
use super::workers::{Listing, Profile, Worker};

/// Limit of names in a refusal.
const MOST_NAMES: usize = 100;

/// Numbered from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u64);

/// Requirements of a job for its worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Accepted models, in order of preference; any model if empty.
    pub models: Vec<Arc<str>>,
    pub kind: Kind,
    pub formats: Formats,
    pub requires: Capabilities,
    pub needs: Needs,
    pub trusted: bool,
    pub owner: Option<AccountId>,
    pub targets: Targets,
}

/// Order of a free worker in a lane: the least expected wait first, equals in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub wait_millis: u64,
    pub turn: u64,
    pub worker: WorkerId,
}

#[derive(Debug)]
pub struct Lane {
    pub need: Need,
    /// Connected workers that could serve it, busy ones included.
    pub online: u32,
    pub free: BTreeSet<Place>,
    /// Since when jobs wait here without an online worker.
    pub unserved_since: Option<Mono>,
    pub used: Mono,
    /// Speed of the jobs done in this lane.
    pub pace: Pace,
    /// When a running job is expected to end.
    pub busy_until: Mono,
}

#[derive(Debug, Default)]
pub struct Lanes {
    lanes: Table<LaneId, Lane>,
    by_need: BTreeMap<Need, LaneId>,
    models: BTreeMap<Arc<str>, Model>,
    created: u64,
    /// Workers added to a lane since the last call, to be refreshed.
    unplaced: Vec<WorkerId>,
}

#[derive(Debug, Default)]
struct Model {
    workers: BTreeSet<WorkerId>,
    profiles: BTreeMap<Profile, u32>,
    contexts: BTreeMap<u32, u32>,
    lanes: Vec<LaneId>,
}

/// Contexts are rounded down in steps of a sixteenth of an octave: otherwise a fleet in which every worker has another
/// amount of free memory would become as many profiles.
pub fn coarse_context(tokens: u32) -> u32 {
    let spare_bits = (32 - tokens.leading_zeros()).saturating_sub(5);
    tokens >> spare_bits << spare_bits
}

#[cfg(test)]
impl LaneId {
    pub const FIRST: Self = Self(1);
    pub const SECOND: Self = Self(2);
}

/// Index of all workers, and of all lanes that accept any model. No model has this name.
static ANY: LazyLock<Vec<Arc<str>>> = LazyLock::new(|| vec![Arc::from("")]);

impl Need {
    /// The lane is indexed under these names.
    fn keys(&self) -> &[Arc<str>] {
        match self.models.is_empty() {
            true => &ANY,
            false => &self.models,
        }
    }

    pub fn of(job: &Job, also: Capabilities) -> Self {
        Self {
            models: job.model.0.clone(),
            kind: job.kind,
            formats: job.limits.formats,
            requires: job
                .limits
                .requires
                .with(also)
                .with_if(!job.durable, Capabilities::INTERACTIVE),
            needs: match job.limits.needs {
                // With several models, each model's own limit decides: `Capabilities::MANY_STEPS`.
                Needs::Media(media) if job.model.0.len() > 1 => {
                    Needs::Media(MediaNeeds { steps: 0, ..media })
                }
                Needs::Text(_) if job.kind.is_relayed() => {
                    let context = job.limits.prompt_tokens.saturating_add(1);
                    job.limits.needs.with_context(context)
                }
                needs => needs,
            },
            trusted: job.privacy == Privacy::Trusted,
            owner: (job.privacy == Privacy::OwnWorkers).then_some(job.account),
            targets: job.limits.targets,
        }
    }
}

impl Lanes {
    /// The lane of this need, or the missing requirement. A single lookup for a common need.
    pub fn admit(
        &mut self,
        need: Need,
        workers: &mut Table<WorkerId, Worker>,
        now: Mono,
    ) -> Result<LaneId, Missing> {
        let wanted = need.needs.context();
        let admitted = self.admit_rounded(need, workers, now);
        admitted.map_err(|missing| match missing {
            // The error names the requested context, not the rounded one.
            Missing::Context { longest, .. } => Missing::Context { wanted, longest },
            missing => missing,
        })
    }

    fn admit_rounded(
        &mut self,
        need: Need,
        workers: &mut Table<WorkerId, Worker>,
        now: Mono,
    ) -> Result<LaneId, Missing> {
        let need = self.with_usual_context(need)?;
        if let Some(&id) = self.by_need.get(&need) {
            return match self.lanes.get_mut(&id) {
                Some(lane) if lane.online > 0 => {
                    lane.used = now;
                    Ok(id)
                }
                _ => Err(self.explain(&need).err().unwrap_or(Missing::Trust)),
            };
        }
        self.explain(&need)?;
        self.check_owner(&need, workers)?;
        Ok(self.create(need, workers, now))
    }

    /// The lane of this need even without a worker: for jobs that were accepted while one was online.
    pub fn keep(
        &mut self,
        mut need: Need,
        workers: &mut Table<WorkerId, Worker>,
        now: Mono,
    ) -> LaneId {
        let context = need.needs.context();
        if context > 0 {
            let rounded = context.checked_next_power_of_two().unwrap_or(u32::MAX);
            need.needs = need.needs.with_context(rounded);
        }
        let known = self.by_need.get(&need).copied();
        known.unwrap_or_else(|| self.create(need, workers, now))
    }

    /// Whether no model of this need has a worker.
    pub fn is_deserted(&self, need: &Need) -> bool {
        let mut models = need.keys().iter().filter_map(|name| self.models.get(name));
        models.all(|model| model.workers.is_empty())
    }

    pub fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (LaneId, &Lane)> {
        self.lanes.iter().map(|(id, lane)| (*id, lane))
    }

    pub fn lane_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(&id)
    }

    /// Names of served models, up to `MOST_NAMES`.
    pub fn online_models(&self) -> Vec<Arc<str>> {
        let served = self
            .models
            .iter()
            .filter(|(name, model)| !name.is_empty() && !model.workers.is_empty());
        served
            .map(|(name, _)| name.clone())
            .take(MOST_NAMES)
            .collect()
    }

    /// Adds a worker to all lanes that it can serve.
    pub fn attach(&mut self, worker: &mut Worker) {
        let mut named = BTreeSet::new();
        for (name, profile) in profiles(worker) {
            let model = self.models.entry(name).or_default();
            model.workers.insert(worker.id);
            *model.profiles.entry(profile).or_default() += 1;
            *model
                .contexts
                .entry(profile.reach.text.context)
                .or_default() += 1;
            named.extend(&model.lanes);
        }
        for id in named {
            if let Some(lane) = self.lanes.get_mut(&id) {
                enlist(worker, id, lane);
            }
        }
        self.unplaced.push(worker.id);
    }

    /// A worker that was added to a lane and has no place there yet.
    pub fn next_unplaced(&mut self) -> Option<WorkerId> {
        self.unplaced.pop()
    }

    /// Removes a worker from all its lanes, and returns these.
    pub fn detach(&mut self, worker: &mut Worker) -> Vec<LaneId> {
        for (name, profile) in profiles(worker) {
            if let Some(model) = self.models.get_mut(&name)
                && model.workers.remove(&worker.id)
            {
                lower(&mut model.profiles, profile);
                lower(&mut model.contexts, profile.reach.text.context);
            }
            self.forget_model(&name);
        }
        let mut left = Vec::new();
        for listing in worker.listings.drain(..) {
            let Some(lane) = self.lanes.get_mut(&listing.lane) else {
                continue;
            };
            lane.online = lane.online.saturating_sub(1);
            if let Some(place) = listing.place {
                lane.free.remove(&place);
            }
            left.push(listing.lane);
        }
        left
    }

    /// Updates a worker's position in all its lanes, after any change of it. Polling workers have none, since jobs are
    /// not pushed to them.
    pub fn refresh(&mut self, worker: &mut Worker, strikes: usize) {
        if worker.polls() {
            return;
        }
        let has_room = worker.has_room();
        let mut wait = None;
        for index in 0..worker.listings.len() {
            let listing = &worker.listings[index];
            let is_open = has_room && worker.is_open_to(listing.kind);
            let open = is_open && worker.model_with_room(listing).is_some();
            let before = listing.place;
            let after = open.then(|| Place {
                wait_millis: *wait.get_or_insert_with(|| millis(worker, strikes)),
                turn: worker.turn,
                worker: worker.id,
            });
            if before == after {
                continue;
            }
            let Some(lane) = self.lanes.get_mut(&listing.lane) else {
                continue;
            };
            before.map(|place| lane.free.remove(&place));
            after.map(|place| lane.free.insert(place));
            worker.listings[index].place = after;
        }
    }

    /// Removes an unused lane.
    pub fn remove(&mut self, id: LaneId, workers: &mut Table<WorkerId, Worker>) {
        let Some(lane) = self.lanes.remove(&id) else {
            return;
        };
        self.by_need.remove(&lane.need);
        for name in lane.need.keys() {
            let Some(model) = self.models.get_mut(name) else {
                continue;
            };
            model.lanes.retain(|&other| other != id);
            for worker in &model.workers {
                if let Some(worker) = workers.get_mut(worker) {
                    worker.listings.retain(|listing| listing.lane != id);
                }
            }
            self.forget_model(name);
        }
    }

    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    pub fn models(&self) -> usize {
        self.models.len() - usize::from(self.models.contains_key(""))
    }

    /// Rounds the context up to the next one of a worker, so that prompts of all lengths share a few lanes.
    fn with_usual_context(&self, mut need: Need) -> Result<Need, Missing> {
        let context = need.needs.context();
        if context == 0 {
            return Ok(need);
        }
        let models = need.keys().iter().filter_map(|name| self.models.get(name));
        let served = models.filter(|model| !model.workers.is_empty());
        let above = served.filter_map(|model| model.contexts.range(context..).next());
        let Some(usual) = above.map(|(&context, _)| context).min() else {
            self.explain(&need)?;
            return Err(Missing::Model(need.models));
        };
        need.needs = need.needs.with_context(usual);
        Ok(need)
    }

    /// The missing requirement: the first test that even the most able profiles fail.
    fn explain(&self, need: &Need) -> Result<(), Missing> {
        let models = need.keys().iter().filter_map(|name| self.models.get(name));
        let profiles: Vec<&Profile> = models.flat_map(|model| model.profiles.keys()).collect();
        if profiles.is_empty() {
            return Err(Missing::Model(need.models.clone()));
        }
        let is_interactive = |it: &Profile| {
            let wanted = need.requires.of(Capabilities::INTERACTIVE);
            it.capabilities.contains(wanted)
        };
        let profiles =
            keep(profiles, is_interactive).ok_or_else(|| Missing::Absent(need.models.clone()))?;
        let left =
            keep(profiles, |it| it.kinds.contains(need.kind)).ok_or(Missing::Kind(need.kind))?;
        let left =
            keep(left, |it| it.formats.meets(need.formats)).ok_or(Missing::Format(need.formats))?;
        let best = left
            .iter()
            .map(|it| need.requires.missing_from(it.capabilities));
        let missing = best
            .min_by_key(|missing| missing.names().count())
            .unwrap_or_default();
        let left = keep(left, |it| it.capabilities.contains(need.requires))
            .ok_or(Missing::Capability(missing))?;
        let most = left.iter().map(|it| it.reach).reduce(Reach::or);
        let most = most.unwrap_or(Reach::ENDLESS);
        let (wanted, longest) = (need.needs.context(), most.text.context);
        let left = keep(left, |it| it.reach.text.context >= wanted)
            .ok_or(Missing::Context { wanted, longest })?;
        let left = keep(left, |it| it.reach.covers(need.needs)).ok_or(Missing::Reach {
            wanted: need.needs,
            most,
        })?;
        keep(left, |it| it.trusted || !need.trusted).ok_or(Missing::Trust)?;
        Ok(())
    }

    fn check_owner(&self, need: &Need, workers: &Table<WorkerId, Worker>) -> Result<(), Missing> {
        let models = need.keys().iter().filter_map(|name| self.models.get(name));
        let mut able = models
            .flat_map(|model| &model.workers)
            .filter_map(|id| workers.get(id));
        let anybody = need.owner.is_none() && need.targets.is_everybody();
        let found = anybody || able.any(|worker| worker.can_serve(need));
        if found { Ok(()) } else { Err(Missing::Trust) }
    }

    fn create(&mut self, need: Need, workers: &mut Table<WorkerId, Worker>, now: Mono) -> LaneId {
        self.created += 1;
        let id = LaneId(self.created);
        let mut lane = Lane {
            need: need.clone(),
            online: 0,
            free: BTreeSet::new(),
            unserved_since: None,
            used: now,
            pace: Pace::default(),
            busy_until: now,
        };
        let mut named = BTreeSet::new();
        for name in need.keys() {
            let model = self.models.entry(name.clone()).or_default();
            // A need may name a model twice.
            if model.lanes.last() != Some(&id) {
                model.lanes.push(id);
            }
            named.extend(&model.workers);
        }
        for worker in named {
            if let Some(worker) = workers.get_mut(&worker) {
                enlist(worker, id, &mut lane);
                self.unplaced.push(worker.id);
            }
        }
        self.by_need.insert(need, id);
        self.lanes.insert(id, lane);
        id
    }

    fn forget_model(&mut self, name: &Arc<str>) {
        let unused = |model: &Model| model.workers.is_empty() && model.lanes.is_empty();
        if self.models.get(name).is_some_and(unused) {
            self.models.remove(name);
        }
    }
}

/// The names under which a worker is listed, each with its profile.
fn profiles(worker: &Worker) -> Vec<(Arc<str>, Profile)> {
    let offered = worker.models.iter().filter(|model| model.offered);
    let named = offered.map(|model| (model.name.clone(), worker.profile.of_model(model)));
    let mut profiles: Vec<_> = named.collect();
    let writing = profiles.iter().map(|(_, profile)| profile);
    let writing = writing.filter(|it| it.kinds.contains(Kind::Text));
    let mut any = worker.profile;
    // Only texts have contexts: a transcription model, whose context is far larger, would accept no texts.
    if let Some(context) = writing.map(|it| it.reach.text.context).max() {
        any.reach.text.context = context;
    }
    profiles.extend(ANY.iter().map(|name| (name.clone(), any)));
    profiles
}

/// Adds the worker to the lane if it can serve it, without a place: refreshing gives it one.
fn enlist(worker: &mut Worker, id: LaneId, lane: &mut Lane) {
    if !worker.can_serve(&lane.need) {
        return;
    }
    let can_do = |index: &usize| {
        let model = &worker.models[*index];
        model.offered && model.can_do(&lane.need)
    };
    let position = |name: &Arc<str>| worker.models.iter().position(|model| model.name == *name);
    let models: Vec<usize> = match lane.need.models.is_empty() {
        true => (0..worker.models.len()).filter(can_do).collect(),
        false => {
            let named = lane.need.models.iter().filter_map(position);
            named.filter(can_do).collect()
        }
    };
    if models.is_empty() && !worker.models.is_empty() {
        return;
    }
    worker.listings.push(Listing {
        lane: id,
        kind: lane.need.kind,
        models,
        place: None,
    });
    lane.online += 1;
    lane.unserved_since = None;
}

fn millis(worker: &Worker, strikes: usize) -> u64 {
    u64::try_from(worker.expected_wait(strikes).as_millis()).unwrap_or(u64::MAX)
}

fn keep(profiles: Vec<&Profile>, test: impl Fn(&Profile) -> bool) -> Option<Vec<&Profile>> {
    let kept: Vec<_> = profiles
        .into_iter()
        .filter(|profile| test(profile))
        .collect();
    (!kept.is_empty()).then_some(kept)
}

fn lower<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
