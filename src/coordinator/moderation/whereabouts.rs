//! Last addresses of workers, for blocking them: saved once a second, all changes in one write.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;
use uuid::Uuid;

use crate::storage::{StorageError, Store, WorkerAddress};
use muster_process::tasks::Tasks;

const SAVE: Duration = Duration::from_secs(1);

/// Addresses by worker name. Clones are the same.
#[derive(Debug, Clone)]
pub struct Whereabouts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    seen: Mutex<Seen>,
    /// Serialises saves, so that a reader waits for a save under way.
    saving: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Seen {
    last: HashMap<Arc<str>, IpAddr>,
    unsaved: HashMap<Arc<str>, IpAddr>,
}

impl Whereabouts {
    pub fn start(store: Store, tasks: &Tasks) -> Self {
        let whereabouts = Self(Arc::new(Inner {
            store,
            seen: Mutex::default(),
            saving: tokio::sync::Mutex::default(),
        }));
        let (saved, stopping) = (whereabouts.clone(), tasks.stopping());
        tasks.start(async move {
            stopping.run_until_cancelled(saved.save_on()).await;
            saved.save_or_warn().await;
        });
        whereabouts
    }

    pub fn note(&self, worker: &Arc<str>, address: IpAddr) {
        let mut seen = self.seen();
        if seen.last.insert(worker.clone(), address) != Some(address) {
            seen.unsaved.insert(worker.clone(), address);
        }
    }

    /// By public id.
    pub async fn of(&self, worker: Uuid) -> Result<WorkerAddress, StorageError> {
        self.save().await?;
        self.0.store.worker_address(worker).await
    }

    async fn save_on(&self) {
        let mut ticks = interval(SAVE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.save_or_warn().await;
        }
    }

    async fn save_or_warn(&self) {
        if let Err(error) = self.save().await {
            warn!("saving worker addresses failed, retrying: {error}");
        }
    }

    async fn save(&self) -> Result<(), StorageError> {
        let _saving = self.0.saving.lock().await;
        let unsaved = std::mem::take(&mut self.seen().unsaved);
        if unsaved.is_empty() {
            return Ok(());
        }
        let rows = unsaved.iter();
        let rows = rows.map(|(worker, address)| (worker.clone(), address.to_string()));
        let saved = self.0.store.note_worker_addresses(rows.collect()).await;
        if saved.is_err() {
            let mut seen = self.seen();
            for (worker, address) in unsaved {
                // An address seen meanwhile is newer.
                seen.unsaved.entry(worker).or_insert(address);
            }
        }
        saved
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock()
    }
}
