//! Who has left: clients that dropped their stream, sockets whose task has ended, workers that asked for jobs and did
//! not wait for them. They are noted by destructors, which cannot wait, and there are never more of them than streams,
//! sockets and jobs on their way.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::dispatch::{Frame, Input, Said, SessionId};
use muster_protocol::job::JobId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    Client(JobId),
    Worker(SessionId),
    /// It was meant for a worker that did not wait.
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

    /// Returns when there may be some.
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
