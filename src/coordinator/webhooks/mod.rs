//! Calls the addresses that clients have given, when a result of theirs is there.
//!
//! | file | what it is |
//! | --- | --- |
//! | `listen` | waits for the results of one request |
//! | `told` | a result that is to be told, and how |
//! | `deliver` | one call: its attempts, and what is tried again |
//!
//! Each result is told of at most once, for texts, images and questions alike. A call that finds no place in the queue
//! is dropped, and one that nobody takes is given up: the result is with the request all the same. What was queued when
//! the process ends is not called for again; results that come after that are, as far as their request is there.
//! Cancelled and failed jobs are not told of.

mod deliver;
mod listen;
mod told;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tracing::warn;

use super::egress::Egress;
use super::media::Media;
use super::requests::Request;
use super::storage::Store;
use crate::tasks::Tasks;

use told::Told;

/// Where calls are queued. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Webhooks {
    calls: mpsc::Sender<Told>,
    store: Store,
    tasks: Tasks,
}

/// One thing to say to one address.
#[derive(Debug)]
struct Call {
    address: Arc<str>,
    body: Bytes,
}

/// Results that wait to be told (F-117 of the poll API): what is said of them is written when they are called for.
const QUEUE: usize = 256;
/// Addresses that are called at the same time: a slow one keeps few others waiting.
const AT_ONCE: usize = 16;

impl Webhooks {
    pub fn start(egress: Egress, store: Store, media: Media, tasks: &Tasks) -> Self {
        let (calls, waiting) = mpsc::channel(QUEUE);
        tasks.start(call_on(waiting, egress, media, tasks.clone()));
        Self {
            calls,
            store,
            tasks: tasks.clone(),
        }
    }

    /// Calls this address for each result of a request that comes from now on.
    pub fn follow(&self, request: Arc<Request>, address: Arc<str>) {
        let (webhooks, stopping) = (self.clone(), self.tasks.stopping());
        let known = listen::known(&request);
        self.tasks.start(async move {
            let listening = listen::listen(webhooks, request, address, known);
            stopping.run_until_cancelled(listening).await
        });
    }

    fn tell(&self, told: Told) {
        if self.calls.try_send(told).is_err() {
            warn!("a webhook was dropped: {QUEUE} are waiting already");
        }
    }
}

async fn call_on(mut waiting: mpsc::Receiver<Told>, egress: Egress, media: Media, tasks: Tasks) {
    let (places, stopping) = (Arc::new(Semaphore::new(AT_ONCE)), tasks.stopping());
    let mut next = async || {
        let place = places.clone().acquire_owned().await.ok()?;
        Some((place, waiting.recv().await?))
    };
    while let Some(Some((place, told))) = stopping.run_until_cancelled(next()).await {
        let (egress, media, stopping) = (egress.clone(), media.clone(), stopping.clone());
        tasks.start(async move {
            let _place = place;
            let delivering = async {
                if let Some(call) = told.call(&media).await {
                    deliver::deliver(&egress, &call).await;
                }
            };
            stopping.run_until_cancelled(delivering).await
        });
    }
}
