//! Calls the addresses that clients have given, when a result of theirs is there.
//!
//! | file | what it is |
//! | --- | --- |
//! | `listen` | waits for the results of one request |
//! | `deliver` | one call: its attempts, and what is tried again |
//!
//! Each result is told of at most once, for texts, images and questions alike. A call that finds no place in the queue
//! is dropped, and one that nobody takes is given up: the result is with the request all the same. What was queued when
//! the process ends is not called for again; results that come after that are, as far as their request is there.
//! Cancelled and failed jobs are not told of.

mod deliver;
mod listen;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tracing::warn;

use super::egress::Egress;
use super::media::Media;
use super::requests::Request;
use super::storage::Store;
use crate::tasks::Tasks;

/// Where calls are queued. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Webhooks {
    calls: mpsc::Sender<Call>,
    store: Store,
    /// Where images are.
    media: Media,
    tasks: Tasks,
}

/// One thing to say to one address.
#[derive(Debug)]
struct Call {
    address: Arc<str>,
    body: Bytes,
}

/// Calls that wait (F-117 of the poll API).
const QUEUE: usize = 256;
/// Addresses that are called at the same time: a slow one keeps few others waiting.
const AT_ONCE: usize = 16;

impl Webhooks {
    pub fn start(egress: Egress, store: Store, media: Media, tasks: &Tasks) -> Self {
        let (calls, waiting) = mpsc::channel(QUEUE);
        tasks.start(call_on(waiting, egress, tasks.clone()));
        Self {
            calls,
            store,
            media,
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

    /// Whether there was a place in the queue.
    fn tell(&self, address: &Arc<str>, body: &impl Serialize) -> bool {
        let Ok(body) = serde_json::to_vec(body) else {
            return false;
        };
        let call = Call {
            address: address.clone(),
            body: body.into(),
        };
        let told = self.calls.try_send(call).is_ok();
        if !told {
            warn!("a webhook was dropped: {QUEUE} are waiting already");
        }
        told
    }
}

async fn call_on(mut waiting: mpsc::Receiver<Call>, egress: Egress, tasks: Tasks) {
    let (places, stopping) = (Arc::new(Semaphore::new(AT_ONCE)), tasks.stopping());
    let mut next = async || {
        let place = places.clone().acquire_owned().await.ok()?;
        Some((place, waiting.recv().await?))
    };
    while let Some(Some((place, call))) = stopping.run_until_cancelled(next()).await {
        let (egress, stopping) = (egress.clone(), stopping.clone());
        tasks.start(async move {
            let _place = place;
            let delivering = deliver::deliver(&egress, &call);
            stopping.run_until_cancelled(delivering).await
        });
    }
}
