//! All tasks of the process, and the signal that stops them.
//!
//! Tasks start only here: a bare `tokio::spawn` would be a task that is never joined.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts tasks, stops them, and waits for them. Clones share the same tasks.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    stopping: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    pub fn start<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tracker.spawn(task)
    }

    /// The signal to stop, for a task to select on.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Tasks of a part of the process: stopped together with these, or earlier by their own [`stop`](Self::stop), which
    /// waits only for the part.
    #[must_use]
    pub fn part(&self) -> Self {
        Self {
            stopping: self.stopping.child_token(),
            tracker: TaskTracker::default(),
        }
    }

    /// Tells every task to stop and waits for them; whether all did within the grace period.
    pub async fn stop(&self, grace: Duration) -> bool {
        self.stopping.cancel();
        self.tracker.close();
        timeout(grace, self.tracker.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stopping_waits_for_tasks_that_listen() {
        let tasks = Tasks::default();
        let stopping = tasks.stopping();
        let task = tasks.start(async move {
            stopping.cancelled().await;
            7
        });
        assert!(tasks.stop(Duration::from_secs(1)).await);
        assert_eq!(task.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_stops_alone_or_with_the_whole() {
        let whole = Tasks::default();
        let (one, other) = (whole.part(), whole.part());
        assert!(one.stop(Duration::from_secs(1)).await);
        assert!(!other.stopping().is_cancelled() && !whole.stopping().is_cancelled());
        assert!(whole.stop(Duration::from_secs(1)).await);
        assert!(other.stopping().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_gives_up_on_tasks_that_do_not_listen() {
        let tasks = Tasks::default();
        tasks.start(std::future::pending::<()>());
        assert!(!tasks.stop(Duration::from_secs(1)).await);
    }
}
