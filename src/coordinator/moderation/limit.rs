//! Time limits of moderation, in processor time: time for other processes does not count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_process::cpu_time::thread_time;

/// For all filters of one request.
pub const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Processor time of one thread, which must not change.
#[derive(Debug, Default)]
pub struct TimeLimit {
    until: Option<Duration>,
    is_over: AtomicBool,
}

impl TimeLimit {
    /// Starts now, on this thread.
    pub fn of(time: Duration) -> Self {
        Self {
            until: Some(thread_time() + time),
            is_over: AtomicBool::new(false),
        }
    }

    /// Whether the time is over.
    pub fn check(&self) -> bool {
        if self.until.is_some_and(|until| thread_time() > until) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.is_over()
    }

    /// Whether a check found the time over, so that reads were skipped.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
