//! The modes of the service: what a moderator or an admin switches for everybody. They are on disk, every process that
//! shares the store follows them, and asking costs no SQL.
//!
//! Maintenance takes no new requests of the poll API while workers go on; image requests that wait end as it begins.
//! What the other modes mean is the matter of those who ask.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::accounts::named::named_set;
use super::requests::Requests;
use super::storage::{StorageError, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::Kind;

named_set! {
    /// A set of modes.
    ModeSet {
        /// No new requests are taken.
        MAINTENANCE = 1 "maintenance",
        /// New workers are for those who were invited.
        INVITE_ONLY = 2 "invite_only",
        /// Somebody misuses the service: strangers are let do less, and are told less.
        RAID = 4 "raid",
    }
}

/// The modes as they are now. Clones are the same.
#[derive(Debug, Clone)]
pub struct Modes {
    store: Store,
    now: watch::Receiver<Reading>,
}

/// The modes, and how often any had been changed until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    pub revision: i64,
    pub modes: ModeSet,
}

/// A mode that is to be on or off.
pub type Switch = (ModeSet, bool);

/// When the store could not write down that requests have ended, it is tried again after this.
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

    /// On disk, and what this process goes by, when it returns.
    pub async fn switch(&self, switches: &[Switch]) -> Result<(), StorageError> {
        self.store.switch_modes(switches.to_vec()).await
    }
}

/// Says what was switched, and ends the image requests that wait when maintenance begins.
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
    use super::ModeSet;

    #[test]
    fn modes_are_stored_as_their_names() {
        assert_eq!(ModeSet::parse(&ModeSet::ALL.to_string()), ModeSet::ALL);
        assert_eq!(ModeSet::parse("raid party"), ModeSet::RAID);
    }
}
