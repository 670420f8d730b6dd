//! Durations of jobs, measured, for display. No decision depends on this.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::job::Kind;

use super::fairness::Work;

/// Default duration of a typical job, before any was measured.
const TYPICAL: Duration = Duration::from_secs(10);
/// Weight of the newest job in the moving average.
const NEWEST: f64 = 0.25;

/// Speed of jobs with equal needs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pace {
    /// Seconds of a typical job; `None` before the first one.
    typical: Option<f64>,
}

/// Speeds by kind, for lanes without measurements.
#[derive(Debug, Default)]
pub struct Paces(BTreeMap<Kind, Pace>);

impl Pace {
    /// Records the duration of this much work on one worker.
    pub fn learn(&mut self, work: Work, took: Duration) {
        let newest = took.as_secs_f64() * 1000.0 / work.0.max(1) as f64;
        let before = self.typical.unwrap_or(newest);
        self.typical = Some(before + NEWEST * (newest - before));
    }

    /// Expected duration of this much work on one worker.
    pub fn time_for(self, work: Work) -> Duration {
        let typical = self.typical.map_or(TYPICAL, Duration::from_secs_f64);
        typical.mul_f64(work.0 as f64 / 1000.0)
    }

    pub fn or(self, other: Self) -> Self {
        Self {
            typical: self.typical.or(other.typical),
        }
    }
}

impl Paces {
    pub fn learn(&mut self, kind: Kind, work: Work, took: Duration) {
        self.0.entry(kind).or_default().learn(work, took);
    }

    pub fn of(&self, kind: Kind) -> Pace {
        self.0.get(&kind).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Pace, TYPICAL};
    use crate::dispatch::fairness::Work;

    #[test]
    fn a_pace_follows_what_jobs_take_by_their_size() {
        let mut pace = Pace::default();
        assert_eq!(pace.time_for(Work(500)), TYPICAL / 2);
        pace.learn(Work(2000), Duration::from_secs(8));
        assert_eq!(pace.time_for(Work(1000)), Duration::from_secs(4));
        pace.learn(Work(1000), Duration::from_secs(8));
        assert_eq!(pace.time_for(Work(3000)), Duration::from_secs(15));
    }
}
