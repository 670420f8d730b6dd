//! What a coordinator tells a worker about itself: kudos for jobs, and maintenance. The line writes it, the owner's
//! log reads it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_protocol::job::Kudos;

/// Shared by all sockets of a line. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Feedback(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// In thousandths.
    earned: AtomicI64,
    maintenance: Mutex<Option<String>>,
}

impl Feedback {
    pub fn earn(&self, reward: Kudos) {
        self.0.earned.fetch_add(reward.0, Ordering::Relaxed);
    }

    /// Since the line was opened.
    pub fn earned(&self) -> Kudos {
        Kudos(self.0.earned.load(Ordering::Relaxed))
    }

    /// Why the worker gets no jobs of others there; `None` while it is in service.
    pub fn maintenance(&self) -> Option<String> {
        self.note().clone()
    }

    /// Whether that is news.
    pub fn set_maintenance(&self, note: Option<String>) -> bool {
        let mut now = self.note();
        let is_new = *now != note;
        *now = note;
        is_new
    }

    fn note(&self) -> MutexGuard<'_, Option<String>> {
        let note = self.0.maintenance.lock();
        note.unwrap_or_else(PoisonError::into_inner)
    }
}
