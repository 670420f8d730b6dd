//! How long prompts are looked at. The time is that of the processor: it does not pass while others use the machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_process::cpu_time::thread_time;

/// For all that one request asks of the filters.
pub const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Processor time of the thread that looks, which stays the same.
#[derive(Debug, Default)]
pub struct TimeLimit {
    until: Option<Duration>,
    is_over: AtomicBool,
}

impl TimeLimit {
    /// From now on, on this thread.
    pub fn of(time: Duration) -> Self {
        Self {
            until: Some(thread_time() + time),
            is_over: AtomicBool::new(false),
        }
    }

    /// Looks at the clock.
    pub fn check(&self) -> bool {
        if self.until.is_some_and(|until| thread_time() > until) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.is_over()
    }

    /// Whether anything was left out since it was over.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
