//! The router state, from which handlers extract their parts.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::FromRef;
use parking_lot::RwLock;

use crate::accounts::Accounts;
use crate::condition::Condition;
use crate::erasure::Erasures;
use crate::local_models::LocalModelsSlot;
use crate::media::Media;
use crate::messages::Messages;
use crate::moderation::Moderation;
use crate::modes::Modes;
use crate::names::Names;
use crate::passkeys::Passkeys;
use crate::people::{Giving, People};
use crate::pictures::{Results, Sources};
use crate::pollers::Pollers;
use crate::progress::ProgressBoard;
use crate::requests::Requests;
use crate::responses::Responses;
use crate::rigs::Rigs;
use crate::sharing::Sharing;
use crate::state::{DoorSettings, Doors};
use crate::stats::Stats;
use crate::storage::Store;
use crate::styles::Styles;
use crate::switchboard::Switchboard;
use crate::teams::Teams;
use crate::workers::Workers;
use muster_process::tasks::Tasks;

use super::idempotency::{Replays, ReplyStore};
use super::limits::Limits;
use super::rates::Rates;
use super::room::Memory;

#[derive(Debug, Clone)]
pub struct Open {
    doors: Arc<Doors>,
    limits: Arc<Limits>,
    rates: Arc<Rates>,
    replays: Arc<Replays>,
    models: Arc<KnownModels>,
    progress: ProgressBoard,
    memory: Memory,
}

/// Known models: listed by the coordinator, or served by a worker since the start. A request for one of them is worth
/// retrying.
#[derive(Debug)]
pub struct KnownModels {
    names: Names,
    learnt: RwLock<BTreeSet<Arc<str>>>,
}

/// Bound of learnt names, because workers may announce any name.
const MOST_NAMES: usize = 10_000;

impl Open {
    pub fn new(doors: Doors) -> Self {
        let memory = doors.workers.memory().clone();
        let (settings, tasks) = (doors.settings.clone(), doors.tasks.clone());
        let replies = ReplyStore {
            store: doors.store.clone(),
            accounts: doors.accounts.clone(),
        };
        Self {
            limits: Arc::new(Limits::new(doors.settings.clone())),
            rates: Arc::new(Rates::new(doors.settings.clone())),
            replays: Arc::new(Replays::new(settings, tasks, memory.clone(), Some(replies))),
            progress: ProgressBoard::default(),
            memory,
            models: Arc::new(KnownModels {
                names: doors.settings.current().names.clone(),
                learnt: RwLock::default(),
            }),
            doors: Arc::new(doors),
        }
    }
}

impl KnownModels {
    /// The id of the model with this name.
    pub fn id(&self, name: &str) -> Arc<str> {
        self.names.id(name)
    }

    /// Other names of the model with this id.
    pub fn other_names(&self, id: &str) -> Vec<Arc<str>> {
        let mut names = self.names.others(id).to_vec();
        names.extend(self.names.copies_of(id));
        names
    }

    /// All names of models.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The names that the price of a model may be listed under: its own, and for an adapter `MODEL:NAME` those of its model.
    pub fn priced_names(&self, id: &str) -> Vec<Arc<str>> {
        let base = id.rsplit_once(':').map(|(base, _)| self.id(base));
        let ids = [Some(id.into()), base];
        let ids = ids.into_iter().flatten();
        ids.flat_map(|id| {
            let others = self.other_names(&id);
            [id].into_iter().chain(others)
        })
        .collect()
    }

    pub fn contains(&self, name: &str) -> bool {
        let learnt = || self.learnt.read();
        self.names.listed(name).is_some() || learnt().contains(name)
    }

    pub fn learn(&self, id: &Arc<str>) {
        if self.contains(id) {
            return;
        }
        let mut learnt = self.learnt.write();
        if learnt.len() < MOST_NAMES {
            learnt.insert(id.clone());
        }
    }
}

macro_rules! parts {
    ($($part:ty = |$open:ident| $value:expr;)+) => {$(
        impl FromRef<Open> for $part {
            fn from_ref($open: &Open) -> Self {
                $value
            }
        }
    )+};
}

parts! {
    Accounts = |open| open.doors.accounts.clone();
    LocalModelsSlot = |open| open.doors.local_models.clone();
    Switchboard = |open| open.doors.switchboard.clone();
    Workers = |open| open.doors.workers.clone();
    Pollers = |open| open.doors.pollers.clone();
    Requests = |open| open.doors.requests.clone();
    Responses = |open| open.doors.responses.clone();
    Erasures = |open| open.doors.erasures.clone();
    People = |open| open.doors.people.clone();
    Media = |open| open.doors.media.clone();
    Moderation = |open| open.doors.moderation.clone();
    Modes = |open| open.doors.modes.clone();
    Stats = |open| open.doors.stats.clone();
    Rigs = |open| open.doors.rigs.clone();
    Messages = |open| open.doors.messages.clone();
    Passkeys = |open| open.doors.passkeys.clone();
    Results = |open| open.doors.results.clone();
    Sources = |open| open.doors.sources.clone();
    Store = |open| open.doors.store.clone();
    Styles = |open| Styles::new(open.doors.store.clone());
    Teams = |open| Teams::new(open.doors.store.clone(), open.doors.rigs.clone());
    Giving = |open| Giving::new(open.doors.store.clone(), open.doors.accounts.clone());
    Sharing = |open| Sharing::new(open.doors.store.clone(), open.doors.accounts.seal().clone());
    Tasks = |open| open.doors.tasks.clone();
    Arc<DoorSettings> = |open| open.doors.settings.current();
    Condition = |open| open.doors.condition.clone();
    Arc<Limits> = |open| open.limits.clone();
    Arc<Rates> = |open| open.rates.clone();
    Arc<Replays> = |open| open.replays.clone();
    Arc<KnownModels> = |open| open.models.clone();
    ProgressBoard = |open| open.progress.clone();
    Memory = |open| open.memory.clone();
}
