//! Kudos holds of requests. Holds are stored: an earlier process's hold is released when its request has ended here or
//! was deleted.

use tracing::{debug, warn};

use super::{Request, Requests};
use crate::clock::wall_clock;
use crate::storage::{Hold, Purse, StorageError};
use muster_protocol::job::{Kudos, RequestId, SharedKeyId, UnixMillis};

/// The hold of a request that is not accepted yet; released on drop unless the request is accepted.
#[derive(Debug)]
pub struct Kept {
    requests: Requests,
    request: RequestId,
    accepted: bool,
}

impl Requests {
    /// Holds kudos for a request before it is accepted. `None` if the balance is too low.
    pub async fn keep(
        &self,
        request: RequestId,
        of: Purse,
        amount: Kudos,
    ) -> Result<Option<Kept>, StorageError> {
        let hold = Hold {
            request,
            of,
            amount,
            at: wall_clock(),
        };
        let is_kept = self.0.store.hold(hold).await?;
        Ok(is_kept.then(|| self.kept(request)))
    }

    /// Holds the rest of a shared key's budget, at most `most`. `None` if the budget is exhausted.
    pub async fn keep_rest(
        &self,
        request: RequestId,
        of: SharedKeyId,
        most: Kudos,
    ) -> Result<Option<Kept>, StorageError> {
        let kept = self.0.store.hold_rest(of, request, most, wall_clock());
        Ok(kept.await?.then(|| self.kept(request)))
    }

    fn kept(&self, request: RequestId) -> Kept {
        self.write().keep_kudos([request]);
        Kept {
            requests: self.clone(),
            request,
            accepted: false,
        }
    }

    /// The request has ended.
    pub(super) async fn finish(&self, request: &Request) {
        let kept = {
            let mut shelves = self.write();
            shelves.finish(request);
            shelves.release_kudos(request.id)
        };
        if kept {
            self.give_back(request.id).await;
        }
    }

    /// Releases the share of an ended and settled job. The last job's share is released with the request.
    pub(super) fn lessen(&self, request: &Request) {
        let open = request.open_jobs();
        if open == 0 || !self.read().keeps_kudos(request.id) {
            return;
        }
        let (requests, id) = (self.clone(), request.id);
        self.0.tasks.start(async move {
            if let Err(error) = requests.0.store.release_share(id, open + 1).await {
                debug!("releasing the kudos hold of a job failed, retrying later: {error}");
            }
        });
    }

    /// Releases the hold of a request, if there is one.
    async fn release(&self, id: RequestId) {
        let kept = self.write().release_kudos(id);
        if kept {
            self.give_back(id).await;
        }
    }

    async fn give_back(&self, id: RequestId) {
        if let Err(error) = self.0.store.release(id).await {
            // Expiry of the request releases it at the latest.
            debug!("releasing the kudos hold of a request failed, retrying later: {error}");
        }
    }

    /// Releases holds of deleted requests.
    pub(super) async fn release_lost(&self, before: UnixMillis) {
        match self.0.store.release_lost(before).await {
            Ok(0) => {}
            Ok(lost) => {
                debug!("released the kudos holds of {lost} deleted requests")
            }
            Err(error) => warn!(
                "releasing the kudos holds of deleted requests failed, retrying later: {error}"
            ),
        }
    }

    /// Loads the holds of earlier processes.
    pub(super) async fn remember_holds(&self) -> Result<(), StorageError> {
        let holding = self.0.store.holding().await?;
        self.write().keep_kudos(holding);
        Ok(())
    }
}

impl Kept {
    /// The request is stored: its hold is released when it has ended.
    pub(super) fn accepted(mut self) {
        self.accepted = true;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.accepted {
            return;
        }
        let (requests, request) = (self.requests.clone(), self.request);
        let tasks = requests.0.tasks.clone();
        tasks.start(async move { requests.release(request).await });
    }
}
