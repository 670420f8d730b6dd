//! The outbox of a worker's socket, between the switchboard and the task that owns the socket. The writer never waits;
//! a socket that does not take its orders counts as lost.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::dispatch::{CancelReason, CloseReason, Offer, Verdict};
use muster_protocol::job::{JobId, Kudos};

/// Limit of orders per socket. A worker has at most a thousand jobs, with few orders for each at a time.
const MOST_ORDERS: usize = 16_384;

#[derive(Debug)]
pub enum Order {
    Ready {
        resumed: Vec<Verdict>,
    },
    Offer(Box<Offer>),
    Cancel {
        job: JobId,
        attempt: u32,
        why: CancelReason,
    },
    Got {
        job: JobId,
        attempt: u32,
        seq: u64,
    },
    Ack {
        job: JobId,
        attempt: Option<u32>,
        reward: Kudos,
    },
    Drop {
        job: JobId,
        attempt: u32,
    },
    Drain {
        within: Duration,
    },
    /// With its note; `None` ends the maintenance.
    Maintenance {
        note: Option<String>,
    },
    Close(CloseReason),
}

/// Shared by both ends.
#[derive(Debug, Default)]
pub struct Orders {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    orders: VecDeque<Order>,
    reader: Option<Waker>,
    closed: bool,
    /// `Ready` was pushed, which must be the first order.
    is_ready: bool,
    /// Notices that wait for `Ready`.
    notices: Vec<Order>,
}

/// The socket did not read its orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck;

impl Orders {
    pub(super) fn push(&self, order: Order) -> Result<Option<Waker>, Stuck> {
        let mut waiting = self.lock();
        if waiting.orders.len() >= MOST_ORDERS {
            waiting.closed = true;
            return Err(Stuck);
        }
        let is_ready = matches!(order, Order::Ready { .. });
        waiting.orders.push_back(order);
        if is_ready {
            waiting.is_ready = true;
            let notices = std::mem::take(&mut waiting.notices);
            waiting.orders.extend(notices);
        }
        Ok(waiting.reader.take())
    }

    /// An order without a job, sent after `Ready` at the earliest. Dropped if the socket takes nothing.
    pub fn notify(&self, order: Order) {
        let mut waiting = self.lock();
        match waiting.is_ready {
            false => waiting.notices.push(order),
            true if waiting.orders.len() < MOST_ORDERS => waiting.orders.push_back(order),
            true => {}
        }
        if let Some(reader) = waiting.reader.take() {
            reader.wake();
        }
    }

    /// Ends the orders.
    pub(super) fn close(&self) -> Option<Waker> {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.reader.take()
    }

    /// Moves queued orders into `into`. False once the outbox is closed and empty.
    pub fn poll_take(&self, into: &mut VecDeque<Order>, context: &mut Context<'_>) -> Poll<bool> {
        let mut waiting = self.lock();
        if waiting.orders.is_empty() {
            if waiting.closed {
                return Poll::Ready(false);
            }
            waiting.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        into.append(&mut waiting.orders);
        Poll::Ready(true)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}
