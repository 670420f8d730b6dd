//! Time until a refused request may be retried, by measured speed.

use std::time::Duration;

use muster_protocol::job::Kind;

use super::Dispatcher;
use super::fairness::Work;

/// Limits of the time until a retry.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);

impl Dispatcher {
    /// Expected time until `count` more jobs of a kind have ended, of those that run concurrently.
    pub(super) fn until_ended(&self, kind: Kind, count: usize, running: usize) -> Duration {
        let typical = self.paces.of(kind).time_for(Work(1000));
        until_ended(typical, count, running)
    }

    pub(super) fn running(&self) -> usize {
        self.jobs.len().saturating_sub(self.queue.len())
    }
}

/// Concurrent jobs are each at any point of their time: on average their ends divide it evenly.
fn until_ended(typical: Duration, count: usize, running: usize) -> Duration {
    let share = count as f64 / (running + 1) as f64;
    let wait = typical.as_secs_f64() * share;
    Duration::try_from_secs_f64(wait)
        .unwrap_or(LONGEST)
        .clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LONGEST, SHORTEST, until_ended};

    #[test]
    fn ends_divide_the_time_of_a_job_evenly() {
        let minute = Duration::from_secs(60);
        assert_eq!(until_ended(minute, 1, 1), minute / 2);
        assert_eq!(until_ended(minute, 2, 5), minute / 3);
        assert_eq!(until_ended(minute, 3, 0), minute * 3);
        assert_eq!(until_ended(minute, 1, 10_000), SHORTEST);
        assert_eq!(until_ended(minute, usize::MAX, 0), LONGEST);
    }
}
