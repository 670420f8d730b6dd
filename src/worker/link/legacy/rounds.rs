//! The schedule of pops: immediately after a job, with growing delays without jobs, and with long delays after refusals
//! or connection errors.

use std::time::Duration;

use crate::link::session::Backoff;

/// The result of a pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    Jobs,
    Nothing,
    /// The worker is in maintenance there: it may get jobs of its owner, and few.
    Maintenance,
    /// Rate limited, possibly with a waiting time.
    TooOften(Option<Duration>),
    /// No reply, or an invalid one.
    NoAnswer,
}

/// The first wait without jobs, and the longest.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(4);
const IN_MAINTENANCE: Duration = Duration::from_secs(15);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Rounds {
    idle: Duration,
    backoff: Backoff,
}

impl Rounds {
    pub fn new(seed: u64) -> Self {
        Self {
            idle: SHORT,
            backoff: Backoff::new(seed),
        }
    }

    /// How long to wait before the next question.
    pub fn after(&mut self, came: Came) -> Duration {
        match came {
            Came::TooOften(None) | Came::NoAnswer => return self.backoff.wait(),
            Came::TooOften(Some(wait)) => return wait.clamp(SHORT, LONGEST),
            Came::Jobs | Came::Nothing | Came::Maintenance => self.backoff.reset(),
        }
        match came {
            Came::Jobs => {
                self.idle = SHORT;
                Duration::ZERO
            }
            Came::Maintenance => IN_MAINTENANCE,
            _ => {
                let wait = self.idle;
                self.idle = (wait * 3 / 2).min(LONG);
                wait
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Came, LONG, LONGEST, Rounds, SHORT};

    #[test]
    fn jobs_are_followed_by_a_question_at_once_and_silence_by_longer_waits() {
        let mut rounds = Rounds::new(1);
        let waits: Vec<Duration> = (0..8).map(|_| rounds.after(Came::Nothing)).collect();
        assert_eq!((waits[0], waits[7]), (SHORT, LONG));
        assert!(waits.is_sorted());
        assert_eq!(rounds.after(Came::Jobs), Duration::ZERO);
        assert_eq!(rounds.after(Came::Nothing), SHORT);
    }

    #[test]
    fn a_coordinator_that_is_gone_or_busy_is_left_alone_for_longer_and_longer() {
        let mut rounds = Rounds::new(1);
        let first = rounds.after(Came::NoAnswer);
        let later: Vec<Duration> = (0..6).map(|_| rounds.after(Came::NoAnswer)).collect();
        assert!(first < Duration::from_secs(3) && later[5] >= Duration::from_secs(20));
        let told = |seconds| Came::TooOften(Some(Duration::from_secs(seconds)));
        assert_eq!(rounds.after(told(7)), Duration::from_secs(7));
        assert_eq!(rounds.after(told(0)), SHORT);
        assert_eq!(rounds.after(told(1 << 40)), LONGEST);
        rounds.after(Came::Nothing);
        assert!(rounds.after(Came::NoAnswer) < Duration::from_secs(3));
    }
}
