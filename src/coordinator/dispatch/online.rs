//! Connected workers and their load, for display and metrics. Walks over all of them; no decision depends on this.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_protocol::job::{
    Capabilities, Clip, Formats, Kind, Kinds, MemoryStay, ModelDetails, Reach, WorkerId,
};

use super::input::SessionId;
use super::workers::{Worker, WorkerModel};
use super::{Demands, Dispatcher};

/// The state of a connected worker.
#[derive(Debug)]
pub struct OnlineWorker<'a> {
    pub id: WorkerId,
    pub session: SessionId,
    pub kinds: Kinds,
    pub formats: Formats,
    pub capabilities: Capabilities,
    pub context: u32,
    pub trusted: bool,
    pub slots: usize,
    pub running: usize,
    /// Whether the worker would take another job at once.
    pub has_room: bool,
    /// Whether the worker serves clients that wait for their reply.
    pub is_present: bool,
    /// Time of a typical answer there.
    pub answer_time: Duration,
    /// Whether the worker is draining.
    pub leaving: bool,
    /// The worker gets its owner's jobs only.
    pub own_only: bool,
    models: &'a [WorkerModel],
}

#[derive(Debug, Clone, Copy)]
pub struct OnlineModel<'a> {
    pub name: &'a Arc<str>,
    /// Loaded, or of unknown state.
    pub ready: bool,
    pub slots: u32,
    pub running: u32,
    /// Further jobs of this model that the worker would accept at once.
    pub free: u32,
    pub kinds: Kinds,
    /// Of the model, within [`Capabilities::OF_MODELS`].
    pub can: Capabilities,
    /// The limits of the model.
    pub reach: Reach,
    /// Width and height of images whose request has none.
    pub size: Option<(u32, u32)>,
    pub voices: &'a Arc<[Arc<str>]>,
    pub clip: Option<Clip>,
    pub details: &'a Arc<ModelDetails>,
    pub stay: MemoryStay,
}

impl Dispatcher {
    /// Connected workers, in no order.
    pub fn online(&self) -> impl Iterator<Item = OnlineWorker<'_>> {
        self.workers.values().filter_map(OnlineWorker::of)
    }

    pub fn is_here(&self, worker: WorkerId) -> bool {
        let worker = self.workers.get(&worker);
        worker.is_some_and(|worker| worker.session.is_some())
    }

    /// Unfinished requests, by model.
    pub fn demands(&self) -> &Demands {
        &self.demands
    }

    pub fn waiting_by_kind(&self) -> BTreeMap<Kind, usize> {
        let mut waiting = BTreeMap::new();
        for (id, lane) in self.lanes.iter() {
            *waiting.entry(lane.need.kind.listed_as()).or_default() += self.queue.waiting(id);
        }
        waiting
    }

    /// Running jobs.
    pub fn running_by_kind(&self) -> BTreeMap<Kind, usize> {
        let mut running = BTreeMap::new();
        let jobs = self
            .workers
            .values()
            .flat_map(|worker| worker.running.keys());
        for entry in jobs.filter_map(|job| self.jobs.get(job)) {
            *running.entry(entry.job.kind.listed_as()).or_default() += 1;
        }
        running
    }

    /// Waiting jobs by their requests' first model.
    pub fn waiting(&self) -> BTreeMap<Arc<str>, usize> {
        let mut waiting = BTreeMap::new();
        for (id, lane) in self.lanes.iter() {
            let count = self.queue.waiting(id);
            if let (Some(name), true) = (lane.need.models.first(), count > 0) {
                *waiting.entry(name.clone()).or_default() += count;
            }
        }
        waiting
    }
}

impl<'a> OnlineWorker<'a> {
    fn of(worker: &'a Worker) -> Option<Self> {
        Some(Self {
            id: worker.id,
            session: worker.session?,
            kinds: worker.profile.kinds,
            formats: worker.profile.formats,
            capabilities: worker.profile.capabilities,
            context: worker.profile.reach.text.context,
            trusted: worker.profile.trusted,
            slots: worker.slots,
            running: worker.running.len(),
            has_room: worker.would_take(),
            is_present: worker.is_present,
            answer_time: worker.answer_time(),
            leaving: worker.leaving.is_some(),
            own_only: worker.terms.own_only,
            models: &worker.models,
        })
    }

    pub fn models(&self) -> impl Iterator<Item = OnlineModel<'a>> {
        let slots = u32::try_from(self.slots).unwrap_or(u32::MAX);
        let room = u32::try_from(self.slots.saturating_sub(self.running)).unwrap_or(u32::MAX);
        let offered = self.models.iter().filter(|model| model.offered);
        offered.map(move |model| OnlineModel {
            name: &model.name,
            ready: model.ready,
            slots: model.slots.min(slots),
            running: model.running,
            kinds: model.offering.kinds,
            can: model.offering.can,
            reach: model.offering.reach,
            size: model.offering.size,
            voices: &model.offering.voices,
            clip: model.offering.clip,
            details: &model.offering.details,
            stay: model.stay,
            free: match self.has_room && model.ready {
                true => room.min(model.slots.saturating_sub(model.running)),
                false => 0,
            },
        })
    }
}
