//! What handlers extract their parts from.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::FromRef;

use crate::coordinator::accounts::Accounts;
use crate::coordinator::state::{DoorSettings, Doors};
use crate::coordinator::storage::Store;
use crate::coordinator::switchboard::Switchboard;
use crate::coordinator::workers::Workers;
use crate::tasks::Tasks;

use super::limits::Limits;

#[derive(Debug, Clone)]
pub struct Open {
    doors: Arc<Doors>,
    limits: Arc<Limits>,
    models: Arc<KnownModels>,
}

/// Models that exist: those of the catalog, and those somebody has served since the start. A request for one of
/// them is worth trying again.
#[derive(Debug)]
pub struct KnownModels(RwLock<BTreeSet<Arc<str>>>);

/// Names learnt beyond the catalog's; workers may announce what they like.
const MOST_NAMES: usize = 10_000;

impl Open {
    pub fn new(doors: Doors) -> Self {
        let known = doors.settings.known_models.iter().cloned().collect();
        Self {
            limits: Arc::new(Limits::new(&doors.settings)),
            models: Arc::new(KnownModels(RwLock::new(known))),
            doors: Arc::new(doors),
        }
    }
}

impl KnownModels {
    pub fn contains(&self, name: &str) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.contains(name)
    }

    pub fn learn(&self, name: &Arc<str>) {
        if self.contains(name) {
            return;
        }
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() < MOST_NAMES {
            names.insert(name.clone());
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
    Switchboard = |open| open.doors.switchboard.clone();
    Workers = |open| open.doors.workers.clone();
    Store = |open| open.doors.store.clone();
    Tasks = |open| open.doors.tasks.clone();
    Arc<DoorSettings> = |open| open.doors.settings.clone();
    Arc<Limits> = |open| open.limits.clone();
    Arc<KnownModels> = |open| open.models.clone();
}
