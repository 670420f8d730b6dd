//! Online workers and their models, as a value that is swapped when it changes. Reading locks only to count a
//! reference, so that lists can be served thousands of times a second.
//!
//! Joins and departures show at once, unless building the overview has become expensive: at most a twentieth of the
//! time is spent on that. Load changes all the time, so it is updated only after a read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::sessions::{Card, Sessions};
use crate::dispatch::{Demands, Dispatcher, OnlineModel, OnlineWorker};
use muster_protocol::job::{
    Capabilities, Clip, Formats, Kind, Kinds, MemoryStay, ModelDetails, Reach, WorkerId,
};
use muster_protocol::link::GpuState;

/// Maximum age of the load under frequent reads.
const LOAD_AGE: Duration = Duration::from_millis(50);
/// Limit of the time for updates of the overview, as a divisor.
const SHARE: u32 = 20;

#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Sorted by name.
    pub models: Vec<ModelOnline>,
    /// Sorted by name.
    pub workers: Vec<Arc<WorkerOnline>>,
    pub queued: usize,
    /// The same by kind.
    pub queued_by_kind: BTreeMap<Kind, usize>,
    /// Running jobs by kind.
    pub running_by_kind: BTreeMap<Kind, usize>,
    /// Unfinished requests, by kind and model.
    pub demands: Demands,
    /// `None` for the empty overview at the start.
    pub made: Option<Instant>,
}

/// A model with an online worker.
#[derive(Debug, Clone)]
pub struct ModelOnline {
    pub name: Arc<str>,
    pub kinds: Kinds,
    pub formats: Formats,
    pub capabilities: Capabilities,
    pub modalities: Vec<Arc<str>>,
    /// The longest context of its workers.
    pub context: u32,
    /// The largest limits of its workers; `None` before the first.
    pub reach: Option<Reach>,
    /// Width and height of images whose request has none.
    pub size: Option<(u32, u32)>,
    /// For speech models.
    pub voices: Arc<[Arc<str>]>,
    /// The default video of a video model.
    pub clip: Option<Clip>,
    /// Details of its files, from the first worker that reports any.
    pub details: Arc<ModelDetails>,
    pub workers: u32,
    /// Concurrent jobs on all workers with the model loaded.
    pub slots: u32,
    pub running: u32,
    /// Further jobs that would be accepted at once.
    pub free: u32,
    /// Duration of a typical reply by the fastest worker, among free ones if there are any.
    pub answer_time: Duration,
    pub queued: usize,
    /// The longest stay of the model in a worker's memory.
    pub stay: MemoryStay,
}

/// A connected worker. Name and public id are public; owner and address are not here.
#[derive(Debug, Clone)]
pub struct WorkerOnline {
    pub id: WorkerId,
    pub name: Arc<str>,
    pub public_id: Uuid,
    pub agent: Arc<str>,
    pub models: Vec<Arc<str>>,
    pub kinds: Kinds,
    pub formats: Formats,
    pub capabilities: Capabilities,
    pub modalities: Arc<[Arc<str>]>,
    pub context: u32,
    pub trusted: bool,
    /// The worker gets its owner's jobs only.
    pub own_only: bool,
    pub slots: usize,
    pub running: usize,
    /// Time of a typical reply.
    pub answer_time: Duration,
    pub gpus: Arc<[GpuState]>,
}

/// The overview and its notifications.
#[derive(Debug, Default)]
pub(super) struct Board {
    shown: RwLock<Arc<Overview>>,
    looked_at: AtomicBool,
    asked: Notify,
    /// Notifies of workers that joined, left or changed their models.
    members: watch::Sender<()>,
}

/// Schedule of updates.
#[derive(Debug)]
pub(super) struct Upkeep {
    made: Instant,
    /// The lesser cost of the last two updates: one of them may have been interrupted.
    cost: Duration,
    last_cost: Duration,
    stale: Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stale {
    Not,
    Load,
    Members,
}

impl Overview {
    pub fn model(&self, name: &str) -> Option<&ModelOnline> {
        let found = self
            .models
            .binary_search_by(|model| model.name.as_ref().cmp(name));
        found.ok().map(|index| &self.models[index])
    }

    fn of(dispatcher: &Dispatcher, sessions: &Sessions) -> Self {
        let mut models = BTreeMap::new();
        let mut workers = Vec::new();
        for worker in dispatcher.online().filter(|worker| !worker.leaving) {
            let Some(card) = sessions.card(worker.session) else {
                continue;
            };
            let mut names = Vec::new();
            for model in worker.models() {
                names.push(model.name.clone());
                // A worker in maintenance serves its owner only, so its models are not listed.
                if worker.own_only {
                    continue;
                }
                let all = models
                    .entry(model.name.clone())
                    .or_insert_with(|| ModelOnline::named(model.name.clone()));
                all.add(&worker, model, card);
            }
            workers.push(Arc::new(WorkerOnline::of(&worker, card, names)));
        }
        workers.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let waiting = dispatcher.waiting();
        let models = models.into_values().map(|mut model: ModelOnline| {
            model.queued = waiting.get(&model.name).copied().unwrap_or(0);
            model
        });
        Self {
            models: models.collect(),
            workers,
            queued: dispatcher.census().queued,
            queued_by_kind: dispatcher.waiting_by_kind(),
            running_by_kind: dispatcher.running_by_kind(),
            demands: dispatcher.demands().clone(),
            made: Some(Instant::now()),
        }
    }
}

impl ModelOnline {
    fn named(name: Arc<str>) -> Self {
        Self {
            name,
            kinds: Kinds::default(),
            formats: Formats::default(),
            capabilities: Capabilities::default(),
            modalities: Vec::new(),
            context: 0,
            reach: None,
            size: None,
            voices: Arc::default(),
            clip: None,
            details: Arc::default(),
            workers: 0,
            slots: 0,
            running: 0,
            free: 0,
            answer_time: Duration::MAX,
            queued: 0,
            stay: MemoryStay::Unloaded,
        }
    }

    /// Whether it serves chats: a text model, but not an encoder.
    pub fn writes_text(&self) -> bool {
        self.kinds.contains(Kind::Text)
    }

    /// Whether one of its workers serves waiting clients.
    pub fn is_interactive(&self) -> bool {
        self.capabilities.contains(Capabilities::INTERACTIVE)
    }

    fn add(&mut self, worker: &OnlineWorker<'_>, model: OnlineModel<'_>, card: &Card) {
        self.kinds = self.kinds.and(model.kinds);
        self.formats = self.formats.with(worker.formats);
        let own = worker.capabilities.missing_from(Capabilities::OF_MODELS);
        self.capabilities = self.capabilities.with(own).with(model.can);
        for modality in card.modalities.iter() {
            if !self.modalities.contains(modality) {
                self.modalities.push(modality.clone());
            }
        }
        let context = match model.reach.text.context {
            // Unknown for this model.
            u32::MAX => card.context,
            own => own,
        };
        self.context = self.context.max(context);
        let reach = self
            .reach
            .map_or(model.reach, |reach| reach.or(model.reach));
        self.reach = Some(reach);
        self.size = self.size.or(model.size);
        self.clip = self.clip.or(model.clip);
        if self.voices.is_empty() {
            self.voices.clone_from(model.voices);
        }
        // Details from workers that load the model's files replace those of upstream models.
        let is_foreign = |details: &ModelDetails| details.upstream.is_some();
        let is_native = !is_foreign(model.details) && is_foreign(&self.details);
        if is_native || *self.details == ModelDetails::default() {
            self.details.clone_from(model.details);
        }
        self.workers += 1;
        self.stay = self.stay.max(model.stay);
        if model.ready {
            self.slots = self.slots.saturating_add(model.slots);
        }
        self.running = self.running.saturating_add(model.running);
        if worker.is_present {
            let (was_free, is_free) = (self.free > 0, model.free > 0);
            self.answer_time = match (was_free, is_free) {
                (true, false) => self.answer_time,
                (false, true) => worker.answer_time,
                _ => self.answer_time.min(worker.answer_time),
            };
        }
        self.free = self.free.saturating_add(model.free);
    }
}

impl WorkerOnline {
    fn of(worker: &OnlineWorker<'_>, card: &Card, models: Vec<Arc<str>>) -> Self {
        Self {
            id: worker.id,
            name: card.name.clone(),
            public_id: card.public_id,
            agent: card.agent.clone(),
            models,
            kinds: worker.kinds,
            formats: worker.formats,
            capabilities: worker.capabilities,
            modalities: card.modalities.clone(),
            context: card.context,
            trusted: worker.trusted,
            own_only: worker.own_only,
            slots: worker.slots,
            running: worker.running,
            answer_time: worker.answer_time,
            gpus: card.gpus.read(),
        }
    }
}

impl Board {
    pub fn read(&self) -> Arc<Overview> {
        if !self.looked_at.swap(true, Ordering::AcqRel) {
            self.asked.notify_one();
        }
        self.shown.read().clone()
    }

    /// The overview, unless it is too old.
    pub fn fresh(&self) -> Option<Arc<Overview>> {
        let shown = self.shown.read();
        let is_fresh = shown.made.is_some_and(|made| made.elapsed() < LOAD_AGE);
        is_fresh.then(|| shown.clone())
    }

    /// Returns at the first read since the overview was built.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    pub fn members(&self) -> watch::Receiver<()> {
        self.members.subscribe()
    }

    fn show(&self, overview: Overview) {
        let mut shown = self.shown.write();
        *shown = Arc::new(overview);
        self.looked_at.store(false, Ordering::Release);
    }
}

impl Upkeep {
    pub fn new() -> Self {
        Self {
            made: Instant::now(),
            cost: Duration::ZERO,
            last_cost: Duration::ZERO,
            stale: Stale::Not,
        }
    }

    pub fn note(&mut self, stale: Stale) {
        self.stale = self.stale.max(stale);
    }

    /// Time of the next update if nothing else happens.
    pub fn due(&self, board: &Board) -> Option<Instant> {
        let age = match self.stale {
            Stale::Not => return None,
            Stale::Load if !board.looked_at.load(Ordering::Acquire) => return None,
            Stale::Load => LOAD_AGE.max(self.cost * SHARE),
            Stale::Members => self.cost * SHARE,
        };
        Some(self.made + age)
    }

    pub fn keep_up(&mut self, board: &Board, dispatcher: &Dispatcher, sessions: &Sessions) {
        if self.due(board).is_some_and(|due| due <= Instant::now()) {
            self.renew(board, dispatcher, sessions);
        }
    }

    /// Updates the overview for a waiting caller, unless that has become expensive.
    pub fn bring_up_to_date(
        &mut self,
        board: &Board,
        dispatcher: &Dispatcher,
        sessions: &Sessions,
    ) {
        if self.made + self.cost * SHARE <= Instant::now() {
            self.renew(board, dispatcher, sessions);
        }
    }

    fn renew(&mut self, board: &Board, dispatcher: &Dispatcher, sessions: &Sessions) {
        let started = Instant::now();
        board.show(Overview::of(dispatcher, sessions));
        if self.stale == Stale::Members {
            board.members.send_replace(());
        }
        self.made = Instant::now();
        self.note_cost(self.made - started);
        self.stale = Stale::Not;
    }

    fn note_cost(&mut self, cost: Duration) {
        self.cost = cost.min(self.last_cost);
        self.last_cost = cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_pass_delays_nothing() {
        let (board, mut upkeep) = (Board::default(), Upkeep::new());
        let wait = |upkeep: &mut Upkeep, cost| {
            upkeep.note_cost(cost);
            upkeep.note(Stale::Members);
            upkeep.due(&board).map(|due| due - upkeep.made)
        };
        let (usual, slow) = (Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(wait(&mut upkeep, slow), Some(Duration::ZERO));
        assert_eq!(wait(&mut upkeep, usual), Some(usual * SHARE));
        assert_eq!(wait(&mut upkeep, slow), Some(usual * SHARE));
        assert_eq!(wait(&mut upkeep, slow), Some(slow * SHARE));
    }
}
