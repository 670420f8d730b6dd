//! Filters and timeouts, as stored. Both are loaded again when a revision counter rises, in whichever process, and
//! swapped as a whole: running checks keep the old values until done.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

use super::Inner;
use super::filters::Filters;
use super::timeouts::Timeouts;
use crate::clock::wall_clock;
use crate::storage::{StorageError, Store, Topic};
use muster_process::tasks::Tasks;

const TRY_AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Followed {
    filters: RwLock<Arc<Filters>>,
    timeouts: RwLock<Arc<Timeouts>>,
    /// Notifies of changed timeouts.
    others: watch::Sender<()>,
    /// Serialises readings, so that an older one never replaces a newer one.
    reading: Mutex<()>,
}

impl Followed {
    pub async fn read(store: &Store) -> Result<Self, StorageError> {
        let followed = Self {
            filters: RwLock::default(),
            timeouts: RwLock::default(),
            others: watch::Sender::default(),
            reading: Mutex::default(),
        };
        followed.catch_up(store).await?;
        Ok(followed)
    }

    pub fn filters(&self) -> Arc<Filters> {
        self.filters.read().clone()
    }

    pub fn timeouts(&self) -> Arc<Timeouts> {
        self.timeouts.read().clone()
    }

    pub fn timeouts_changed(&self) -> watch::Receiver<()> {
        self.others.subscribe()
    }

    /// Applies all stored changes.
    pub async fn catch_up(&self, store: &Store) -> Result<(), StorageError> {
        let _reading = self.reading.lock().await;
        self.take_in(Timeouts::of(&store.timeouts(wall_clock()).await?));
        let (rows, before) = (store.filters().await?, self.filters());
        let compiled = spawn_blocking(move || Filters::compile(&rows, &before)).await;
        let compiled = compiled
            .map_err(|_| StorageError::Broken("compiling the filters failed".to_owned()))?;
        *self.filters.write() = Arc::new(compiled);
        Ok(())
    }

    /// Ignores unchanged timeouts, since a notification makes every worker's socket check again.
    fn take_in(&self, timeouts: Timeouts) {
        if *self.timeouts() == timeouts {
            return;
        }
        *self.timeouts.write() = Arc::new(timeouts);
        self.others.send_replace(());
    }
}

/// Follows the store until all handles are dropped.
pub fn start(inner: &Arc<Inner>, tasks: &Tasks) {
    let watched = [Topic::Filters, Topic::Timeouts].map(|topic| inner.store.revision(topic));
    let (inner, stopping) = (Arc::downgrade(inner), tasks.stopping());
    tasks.start(async move {
        stopping.run_until_cancelled(follow(inner, watched)).await;
    });
}

async fn follow(inner: Weak<Inner>, watched: [watch::Receiver<i64>; 2]) {
    let [mut filters, mut timeouts] = watched;
    loop {
        let changed = tokio::select! {
            changed = filters.changed() => changed,
            changed = timeouts.changed() => changed,
        };
        let (Some(inner), Ok(())) = (inner.upgrade(), changed) else {
            return;
        };
        catch_up(&inner).await;
    }
}

/// Retries until it succeeds, with one warning.
async fn catch_up(inner: &Inner) {
    let mut warned = false;
    while let Err(error) = inner.followed.catch_up(&inner.store).await {
        if !warned {
            warn!("reading changed filters and timeouts failed, retrying: {error}");
        }
        warned = true;
        sleep(TRY_AGAIN).await;
    }
}
