//! Counters for metrics: written by the switchboard alone, readable at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::dispatch::{Census, Outcome, Timing};
use muster_protocol::job::FailureKind;

/// Upper bounds of the buckets of [`Histogram`], in milliseconds.
pub const BUCKETS: [u64; 14] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 15_000, 60_000, 300_000,
];

/// A snapshot of all metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    // Present values.
    pub queued: u64,
    pub running: u64,
    pub workers: u64,
    pub sessions: u64,
    // Since the start.
    pub accepted: u64,
    pub refused: u64,
    pub delivered: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub expired: u64,
    pub slow_clients: u64,
    /// Unfinished jobs at shutdown.
    pub cut_off: u64,
    /// Events relayed to clients, and the tokens in them.
    pub events: u64,
    pub tokens: u64,
    pub settlement_failures: u64,
    /// Sockets closed after too many failures, or by a silence timeout.
    pub evictions: u64,
    pub silences: u64,
    pub first_output: Histogram,
    pub total: Histogram,
    pub settlement: Histogram,
}

/// Counts per bucket, not cumulative; the last bucket is unbounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    pub counts: [u64; BUCKETS.len() + 1],
    pub sum: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub queued: Counter,
    pub running: Counter,
    pub workers: Counter,
    pub sessions: Counter,
    pub accepted: Counter,
    pub refused: Counter,
    pub delivered: Counter,
    pub failed: Counter,
    pub cancelled: Counter,
    pub expired: Counter,
    pub slow_clients: Counter,
    pub cut_off: Counter,
    pub events: Counter,
    pub tokens: Counter,
    pub settlement_failures: Counter,
    pub evictions: Counter,
    pub silences: Counter,
    pub first_output: Times,
    pub total: Times,
    pub settlement: Times,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

#[derive(Debug, Default)]
pub(super) struct Times {
    counts: [Counter; BUCKETS.len() + 1],
    micros: Counter,
}

impl Counter {
    /// Returns the value before.
    pub fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed)
    }

    pub fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Times {
    pub fn add(&self, time: Duration) {
        let millis = time.as_millis();
        let bucket = BUCKETS.partition_point(|bound| u128::from(*bound) < millis);
        self.counts[bucket].add(1);
        self.micros
            .add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    fn read(&self) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|bucket| self.counts[bucket].read()),
            sum: Duration::from_micros(self.micros.read()),
        }
    }
}

impl Counters {
    pub fn take_census(&self, census: Census, sessions: usize) {
        self.queued.set(census.queued);
        self.running.set(census.jobs.saturating_sub(census.queued));
        self.workers.set(census.workers);
        self.sessions.set(sessions);
    }

    pub fn ended(&self, outcome: &Outcome, timing: Timing) {
        match outcome {
            Outcome::Delivered { .. } => self.delivered.add(1),
            Outcome::Cancelled => self.cancelled.add(1),
            Outcome::Expired => self.expired.add(1),
            Outcome::Failed(failure) if failure.kind == FailureKind::SlowClient => {
                self.slow_clients.add(1);
                self.failed.add(1)
            }
            Outcome::Failed(failure) if failure.kind == FailureKind::ShuttingDown => {
                self.cut_off.add(1);
                self.failed.add(1)
            }
            Outcome::Failed(_) => self.failed.add(1),
        };
        if let Some(first) = timing.first_output {
            self.first_output.add(first);
        }
        self.total.add(timing.total);
    }

    pub fn read(&self) -> Figures {
        Figures {
            queued: self.queued.read(),
            running: self.running.read(),
            workers: self.workers.read(),
            sessions: self.sessions.read(),
            accepted: self.accepted.read(),
            refused: self.refused.read(),
            delivered: self.delivered.read(),
            failed: self.failed.read(),
            cancelled: self.cancelled.read(),
            expired: self.expired.read(),
            slow_clients: self.slow_clients.read(),
            cut_off: self.cut_off.read(),
            events: self.events.read(),
            tokens: self.tokens.read(),
            settlement_failures: self.settlement_failures.read(),
            evictions: self.evictions.read(),
            silences: self.silences.read(),
            first_output: self.first_output.read(),
            total: self.total.read(),
            settlement: self.settlement.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BUCKETS, Times};

    #[test]
    fn a_time_falls_into_the_bucket_that_bounds_it() {
        let times = Times::default();
        for millis in [0, 1, 2, 400_000] {
            times.add(Duration::from_millis(millis));
        }
        let read = times.read();
        assert_eq!(read.counts[..2], [2, 1]);
        assert_eq!(read.counts[BUCKETS.len()], 1);
        assert_eq!(read.sum, Duration::from_millis(400_003));
    }
}
