//! Kudos that are kept for a request until it has ended. They are on disk: what an earlier process kept is released
//! when its request has ended here, or is nowhere any more.

use tracing::{debug, warn};

use super::{NewRequest, NotAccepted, Requests};
use crate::coordinator::clock::wall_clock;
use crate::coordinator::storage::{Hold, StorageError};
use crate::protocol::job::{RequestId, UnixMillis};

impl Requests {
    /// Keeps what a request asks for, before it is queued.
    pub(super) async fn keep(&self, new: &NewRequest) -> Result<(), NotAccepted> {
        let Some(amount) = new.hold else {
            return Ok(());
        };
        let hold = Hold {
            request: new.id,
            account: new.account,
            amount,
            at: wall_clock(),
        };
        if !self.0.store.hold(hold).await? {
            return Err(NotAccepted::NotEnough);
        }
        self.write().paid_before.insert(new.id);
        Ok(())
    }

    /// Gives back what was kept for a request, if anything was.
    pub(super) async fn release(&self, id: RequestId) {
        if !self.write().paid_before.remove(&id) {
            return;
        }
        if let Err(error) = self.0.store.release(id).await {
            // It goes with the request at the latest.
            debug!("the kudos of a request stay kept for now: {error}");
        }
    }

    /// Gives back what was kept for requests that are on disk no more.
    pub(super) async fn release_lost(&self, before: UnixMillis) {
        match self.0.store.release_lost(before).await {
            Ok(0) => {}
            Ok(lost) => {
                debug!("{lost} requests have gone without giving back what was kept for them")
            }
            Err(error) => warn!("kudos of requests that are gone stay kept for now: {error}"),
        }
    }

    /// What an earlier process has kept.
    pub(super) async fn remember_holds(&self) -> Result<(), StorageError> {
        let holding = self.0.store.holding().await?;
        self.write().paid_before.extend(holding);
        Ok(())
    }
}
