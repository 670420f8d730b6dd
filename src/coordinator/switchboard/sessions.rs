//! The switchboard's table of workers' sockets: their outboxes, names and public ids.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use super::orders::Orders;
use crate::dispatch::SessionId;
use crate::metering::Belief;
use muster_protocol::link::GpuState;

/// A worker's last report of its GPUs: written by its socket, read by lists, unused by dispatch.
#[derive(Debug, Clone, Default)]
pub struct Gpus(Arc<Mutex<Arc<[GpuState]>>>);

impl Gpus {
    pub fn show(&self, gpus: Vec<GpuState>) {
        *self.lock() = gpus.into();
    }

    pub fn read(&self) -> Arc<[GpuState]> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<[GpuState]>> {
        self.0.lock()
    }
}

/// Public information about a worker.
#[derive(Debug, Clone)]
pub struct Card {
    pub name: Arc<str>,
    /// Always the same for one name.
    pub public_id: Uuid,
    pub agent: Arc<str>,
    /// Inputs of its text models: `text`, `image`, `video`.
    pub modalities: Arc<[Arc<str>]>,
    /// As reported; dispatch compares contexts in coarser steps.
    pub context: u32,
    /// Trust in its own token counts.
    pub belief: Belief,
    pub gpus: Gpus,
}

#[derive(Debug, Default)]
pub struct Sessions {
    open: HashMap<SessionId, Session>,
}

#[derive(Debug)]
struct Session {
    card: Card,
    /// `None` for a polling worker, which has no outbox.
    orders: Option<Arc<Orders>>,
}

impl Sessions {
    pub fn add(&mut self, session: SessionId, card: Card, orders: Option<Arc<Orders>>) {
        self.open.insert(session, Session { card, orders });
    }

    pub fn card(&self, session: SessionId) -> Option<&Card> {
        self.open.get(&session).map(|session| &session.card)
    }

    pub fn orders(&self, session: SessionId) -> Option<&Arc<Orders>> {
        self.open.get(&session)?.orders.as_ref()
    }

    pub fn remove(&mut self, session: SessionId) -> Option<Arc<Orders>> {
        self.open.remove(&session)?.orders
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Orders>> {
        let open = self.open.values();
        open.filter_map(|session| session.orders.as_ref())
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }
}
