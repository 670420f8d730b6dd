//! Rates and averages of one model's counts.

use super::Made;
use muster_protocol::job::Kind;

/// Shorter totals are no measure of a speed.
const LEAST_SECONDS: f64 = 0.1;

impl Made {
    /// Work per second of one job; `None` without work.
    pub fn speed(&self) -> Option<f64> {
        let seconds = self.busy_millis as f64 / 1000.0;
        (self.done > 0 && seconds >= LEAST_SECONDS).then(|| self.done as f64 / seconds)
    }

    /// Seconds from the acceptance of a delivered job to its first output.
    pub fn first_output_seconds(&self) -> Option<f64> {
        mean(self.first_millis, self.firsts)
    }

    /// Seconds from the acceptance of a delivered job to its end.
    pub fn total_seconds(&self) -> Option<f64> {
        mean(self.total_millis, self.delivered)
    }

    /// Failed jobs as a share of failed and delivered ones.
    pub fn failed_rate(&self) -> Option<f64> {
        let ended = self.delivered + self.failed;
        (ended > 0).then(|| self.failed as f64 / ended as f64)
    }

    /// Output units: tokens of texts, number of outputs otherwise.
    pub fn units(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Text => self.done,
            _ => self.delivered,
        }
    }

    pub fn kudos(&self) -> f64 {
        self.reward as f64 / 1000.0
    }
}

fn mean(millis: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| millis as f64 / 1000.0 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::Made;
    use muster_protocol::job::Kind;

    #[test]
    fn means_and_rates_are_none_without_jobs() {
        let none = Made::default();
        assert_eq!(none.speed(), None);
        assert_eq!(none.first_output_seconds(), None);
        assert_eq!(none.total_seconds(), None);
        assert_eq!(none.failed_rate(), None);
    }

    #[test]
    fn means_are_over_delivered_jobs_and_failures_over_ended_ones() {
        let made = Made {
            done: 50,
            busy_millis: 2000,
            delivered: 4,
            failed: 1,
            firsts: 2,
            first_millis: 500,
            total_millis: 8000,
            reward: 2500,
            ..Made::default()
        };
        assert_eq!(made.speed(), Some(25.0));
        assert_eq!(made.first_output_seconds(), Some(0.25));
        assert_eq!(made.total_seconds(), Some(2.0));
        assert_eq!(made.failed_rate(), Some(0.2));
        assert_eq!((made.units(Kind::Text), made.units(Kind::Image)), (50, 4));
        assert!((made.kudos() - 2.5).abs() < 1e-9);
    }
}
