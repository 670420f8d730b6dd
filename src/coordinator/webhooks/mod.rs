//! Webhooks: calls a client's URL when a result is ready.
//!
//! | file | contents |
//! | --- | --- |
//! | `listen` | waits for the results of one request |
//! | `told` | a result to report, and its body |
//! | `parties` | shares of the queue |
//! | `deliver` | one call: its attempts, and retries |
//!
//! Each account has a share of the queue and a few concurrent calls, and anonymous requests have them by host, so that
//! slow URLs of one account neither drop nor delay the calls of another.
//!
//! Each result is reported at most once, for texts, images and interrogations alike. A call that finds the queue full
//! is dropped, and a call that keeps failing is given up: the result stays with the request. Queued calls are lost at
//! shutdown; later results are reported if their request was restored. Cancelled and failed jobs are not reported.

mod deliver;
mod listen;
mod parties;
mod told;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use super::egress::Egress;
use super::media::Media;
use super::requests::{Request, ResultListener};
use super::storage::Store;
use super::turns::{Turn, Turns};
use muster_process::tasks::Tasks;

use parties::Party;
use told::Told;

/// The queue of calls. Clones share it.
#[derive(Debug, Clone)]
pub struct Webhooks {
    egress: Egress,
    media: Media,
    store: Store,
    queue: Arc<Semaphore>,
    shares: Turns<Party>,
    places: Arc<Semaphore>,
    turns: Turns<Party>,
    tasks: Tasks,
}

/// Permits for the queue and for each share.
#[derive(Debug)]
struct Waiting {
    _place: OwnedSemaphorePermit,
    _shares: Vec<Turn<Party>>,
}

/// A request to a URL.
#[derive(Debug)]
struct Call {
    address: Arc<str>,
    body: Bytes,
}

/// Queued results (F-117 of the AI Horde API): a body is built when the call is made.
const QUEUE: usize = 1024;
/// Concurrent calls: a slow address delays few others.
const AT_ONCE: usize = 32;

impl Webhooks {
    pub fn start(egress: Egress, store: Store, media: Media, tasks: &Tasks) -> Self {
        Self {
            egress,
            media,
            store,
            queue: Arc::new(Semaphore::new(QUEUE)),
            shares: Turns::for_each(Party::share),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            turns: Turns::for_each(Party::at_once),
            tasks: tasks.clone(),
        }
    }

    fn tell(&self, told: Told) {
        let parties = Party::all_of(told.request.account, &told.address);
        let Some(waiting) = self.room_for(&parties) else {
            warn!("webhook dropped: the queue of {QUEUE} or the share of its account is full");
            return;
        };
        let (webhooks, stopping) = (self.clone(), self.tasks.stopping());
        self.tasks.start(async move {
            let calling = webhooks.call(told, parties, waiting);
            stopping.run_until_cancelled(calling).await
        });
    }

    fn room_for(&self, parties: &[Party]) -> Option<Waiting> {
        let parties = parties.iter().cloned();
        let shares: Option<_> = parties.map(|one| self.shares.turn_now(one)).collect();
        let shares = shares?;
        let place = self.queue.clone().try_acquire_owned().ok()?;
        Some(Waiting {
            _place: place,
            _shares: shares,
        })
    }

    async fn call(&self, told: Told, parties: Vec<Party>, waiting: Waiting) {
        let mut turns = Vec::with_capacity(parties.len());
        for party in parties {
            turns.push(self.turns.turn(party).await);
        }
        let _place = self.places.acquire().await;
        drop(waiting);
        if let Some(call) = told.call(&self.media).await {
            deliver::deliver(&self.egress, &call).await;
        }
    }
}

impl ResultListener for Webhooks {
    fn follow(&self, request: Arc<Request>, address: Arc<str>) {
        let (webhooks, stopping) = (self.clone(), self.tasks.stopping());
        let known = listen::known(&request);
        self.tasks.start(async move {
            let listening = listen::listen(webhooks, request, address, known);
            stopping.run_until_cancelled(listening).await
        });
    }
}
