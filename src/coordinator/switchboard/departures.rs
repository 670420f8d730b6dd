//! Departures: dropped client streams, ended sockets, and pops whose worker hung up. Destructors note them, since they
//! cannot wait; there are never more of them than streams, sockets and offers under way.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::dispatch::{Frame, Input, Said, SessionId};
use muster_protocol::job::JobId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    Client(JobId),
    Worker(SessionId),
    /// An offer for a worker that hung up during its pop.
    Offer {
        session: SessionId,
        job: JobId,
        attempt: u32,
    },
}

#[derive(Debug, Default)]
pub struct Departures {
    noted: Mutex<Vec<Departure>>,
    added: Notify,
}

impl Departures {
    pub fn note(&self, departure: Departure) {
        self.lock().push(departure);
        self.added.notify_one();
    }

    pub fn take(&self) -> Vec<Departure> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns when departures may have been added.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Departure>> {
        self.noted.lock()
    }
}

impl From<Departure> for Input {
    fn from(departure: Departure) -> Self {
        match departure {
            Departure::Client(job) => Self::Cancel { job },
            Departure::Worker(session) => Self::Lost { session },
            Departure::Offer {
                session,
                job,
                attempt,
            } => Self::Frame(Frame {
                session,
                job,
                attempt: Some(attempt),
                seq: None,
                said: Said::Busy {
                    retry_after: Duration::ZERO,
                },
            }),
        }
    }
}
