//! Errors of requests, and delays before retries.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use super::{error::HubError, settings::Patience};

/// A failed request.
#[derive(Debug)]
pub enum Trouble {
    /// May well work the next time.
    Passing(String),
    /// Rate limited, possibly with a delay.
    TooMany { after: Option<Duration> },
    /// The file is not the one we began with.
    Changed,
    /// The server ignores ranges and sends the whole file.
    NoRanges,
    /// Asking again would not help.
    Fatal(HubError),
}

impl From<HubError> for Trouble {
    fn from(error: HubError) -> Self {
        Self::Fatal(error)
    }
}

/// Counts failures in a row.
pub struct Backoff {
    patience: Patience,
    attempts: u32,
    failures: u32,
}

/// The reaction to a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Wait(Duration),
    GiveUp,
    /// The server requested a longer delay than our limit.
    Banned(Duration),
}

impl Backoff {
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            attempts: patience.attempts,
            failures: 0,
        }
    }

    /// For queries: without a network the error should come soon.
    pub fn brief(patience: Patience) -> Self {
        Self {
            attempts: patience.attempts.min(4),
            ..Self::new(patience)
        }
    }

    /// Something came through.
    pub fn forgive(&mut self) {
        self.failures = 0;
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn failed(&mut self, asked: Option<Duration>) -> Verdict {
        self.failures += 1;
        match asked {
            Some(wait) if wait > self.patience.longest_ban => Verdict::Banned(wait),
            _ if self.failures >= self.attempts => Verdict::GiveUp,
            Some(wait) => Verdict::Wait(wait),
            None => Verdict::Wait(self.wait(jitter())),
        }
    }

    /// Doubles with every failure; a part of it is chance, so that many clients do not come back at once.
    fn wait(&self, jitter: f64) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let wait = self.patience.first_wait.saturating_mul(1 << doublings);
        wait.min(self.patience.longest_wait)
            .mul_f64(0.5 + jitter / 2.0)
    }
}

/// From 0 to 1: the standard library seeds its hashers at random.
fn jitter() -> f64 {
    f64::from(RandomState::new().hash_one(0_u8) as u32) / f64::from(u32::MAX)
}

/// `Retry-After` in its usual form, seconds.
pub fn retry_after(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Patience {
            attempts: 100,
            ..Patience::default()
        });
        let mut waits = Vec::new();
        for _ in 0..9 {
            backoff.failures += 1;
            waits.push(backoff.wait(1.0).as_millis());
        }
        assert_eq!(
            waits,
            [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]
        );
        backoff.forgive();
        backoff.failures += 1;
        assert_eq!(backoff.wait(0.0).as_millis(), 250);
    }

    #[test]
    fn a_server_may_say_how_long_but_not_for_ever() {
        let mut backoff = Backoff::new(Patience::default());
        assert_eq!(
            backoff.failed(retry_after(" 7 ")),
            Verdict::Wait(Duration::from_secs(7))
        );
        assert_eq!(
            backoff.failed(retry_after("3600")),
            Verdict::Banned(Duration::from_secs(3600))
        );
        assert_eq!(retry_after("Fri, 31 Dec 1999 23:59:59 GMT"), None);
    }

    #[test]
    fn patience_ends() {
        let mut backoff = Backoff::brief(Patience::default());
        let verdicts: Vec<bool> = (0..4)
            .map(|_| backoff.failed(None) == Verdict::GiveUp)
            .collect();
        assert_eq!(verdicts, [false, false, false, true]);
    }
}
