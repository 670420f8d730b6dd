//! The share of time in which models compute, so that the machine keeps to a power.

/// The least proportion: jobs can still finish.
const LEAST: f64 = 0.05;
/// How much a new reading counts in the mean.
const WEIGHT: f64 = 0.5;
/// Below this part of the limit more is computed again.
const SLACK: f64 = 0.95;
const RISE: f64 = 0.03;
/// The share falls to no less than this part of itself at once: readings come late.
const STEEPEST_FALL: f64 = 0.7;

/// A share that follows the power, second by second.
#[derive(Debug)]
pub struct DutyCycle {
    share: f64,
    mean: Option<f64>,
}

impl Default for DutyCycle {
    fn default() -> Self {
        Self {
            share: 1.0,
            mean: None,
        }
    }
}

impl DutyCycle {
    /// The share after a second with this power.
    pub fn next(&mut self, watts: f64, most: f64) -> f64 {
        let before = self.mean.unwrap_or(watts);
        let mean = before + (watts - before) * WEIGHT;
        self.mean = Some(mean);
        if mean > most {
            // A rise that was noticed late is not answered twice: the last reading counts as well.
            let over = mean.min(watts).max(most);
            self.share = (self.share * (most / over).max(STEEPEST_FALL)).max(LEAST);
        } else if mean < most * SLACK {
            self.share = (self.share + RISE).min(1.0);
        }
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::DutyCycle;

    /// Simulates minutes of a machine with these powers at idle and under load. Returns the mean power of the last
    /// minute, and the number of seconds above the limit before.
    fn minutes(rest: f64, full: f64, most: f64) -> (f64, usize) {
        let mut duty = DutyCycle::default();
        let mut share = 1.0;
        let mut powers = Vec::new();
        for second in 0..300 {
            // Readings swing, as cycles and seconds do not end together.
            let swing = if second % 2 == 0 { 1.05 } else { 0.95 };
            let watts = rest + (full - rest) * share;
            powers.push(watts);
            share = duty.next(watts * swing, most);
        }
        let last = &powers[240..];
        let over = powers.iter().take(60).filter(|watts| **watts > most * 1.05);
        (last.iter().sum::<f64>() / last.len() as f64, over.count())
    }

    #[test]
    fn the_power_comes_below_the_limit_within_seconds_and_close_to_it() {
        for (rest, full, most) in [
            (50.0, 350.0, 200.0),
            (20.0, 350.0, 100.0),
            (100.0, 600.0, 500.0),
            (80.0, 300.0, 150.0),
        ] {
            let (mean, over) = minutes(rest, full, most);
            assert!(mean <= most * 1.02, "{rest} {full} {most}: {mean}");
            assert!(mean >= most * 0.8, "{rest} {full} {most}: {mean}");
            assert!(over <= 15, "{rest} {full} {most}: {over} s");
        }
    }

    #[test]
    fn a_machine_below_its_limit_computes_all_the_time() {
        assert!((minutes(50.0, 180.0, 200.0).0 - 180.0).abs() < 1.0);
    }

    #[test]
    fn a_limit_below_the_power_at_rest_leaves_the_least_share() {
        let mut duty = DutyCycle::default();
        let last = (0..60).map(|_| duty.next(120.0, 100.0)).last();
        assert_eq!(last, Some(super::LEAST));
    }
}
