//! Service modes, switched by moderators and administrators. Modes are stored, every process that shares the database
//! follows them, and reading them needs no query.
//!
//! Maintenance refuses new requests of the AI Horde API while workers go on; waiting image requests end when it begins.
//! The other modes are enforced by their readers.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::requests::Requests;
use super::storage::{StorageError, Store};
use super::values::modes::{ModeSet, Reading, Switch};
use muster_process::tasks::Tasks;
use muster_protocol::job::Kind;

/// The present modes. Clones share them.
#[derive(Debug, Clone)]
pub struct Modes {
    store: Store,
    now: watch::Receiver<Reading>,
}

/// Pause before another try to end requests in the store.
const TRY_AGAIN: Duration = Duration::from_secs(2);

impl Modes {
    pub fn start(store: Store, requests: Requests, tasks: &Tasks) -> Self {
        let now = store.modes();
        let (followed, stopping) = (now.clone(), tasks.stopping());
        tasks.start(async move {
            let following = follow(followed, requests);
            stopping.run_until_cancelled(following).await
        });
        Self { store, now }
    }

    pub fn are_on(&self, modes: ModeSet) -> bool {
        self.now().contains(modes)
    }

    pub fn now(&self) -> ModeSet {
        self.now.borrow().modes
    }

    /// Stores the modes. Returns once this process follows them.
    pub async fn switch(&self, switches: &[Switch]) -> Result<(), StorageError> {
        self.store.switch_modes(switches.to_vec()).await
    }
}

/// Logs switched modes, and ends waiting image requests when maintenance begins.
async fn follow(mut now: watch::Receiver<Reading>, requests: Requests) {
    let mut known = ModeSet::default();
    loop {
        let modes = now.borrow_and_update().modes;
        if modes != known {
            info!("service modes: {modes:?}");
        }
        let begins = |mode| modes.contains(mode) && !known.contains(mode);
        if begins(ModeSet::MAINTENANCE) {
            end_waiting(&requests, &now).await;
        }
        known = modes;
        if now.changed().await.is_err() {
            return;
        }
    }
}

async fn end_waiting(requests: &Requests, now: &watch::Receiver<Reading>) {
    while now.borrow().modes.contains(ModeSet::MAINTENANCE) {
        let Err(error) = requests.end_waiting(Kind::Image).await else {
            return;
        };
        warn!("ending queued image requests for maintenance failed, retrying: {error}");
        sleep(TRY_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use crate::values::modes::ModeSet;

    #[test]
    fn modes_are_stored_as_their_names() {
        assert_eq!(ModeSet::parse(&ModeSet::ALL.to_string()), ModeSet::ALL);
        assert_eq!(ModeSet::parse("raid party"), ModeSet::RAID);
    }
}
