//! The duration of a step as a function of its tokens, learned from measured steps without prompts. Pure: the caller
//! measures.
//!
//! Noise only makes steps longer, so the cost is assumed to be monotonic. Sizes without measurements are interpolated;
//! past the largest, further tokens are assumed to be cheap, which the next step corrects.

use std::collections::{BTreeMap, VecDeque};

/// Samples of one size; their lower median counts.
const SAMPLES: usize = 3;
/// A size without a measurement in this many steps is deleted, so that it is tried again.
const FORGOTTEN: u64 = 256;
/// Maximum age, in steps, of a measurement near the size of a step without drafts: after that, a step runs without
/// drafts.
const FRESH: u64 = 128;
/// A size past the largest measured one is taken to cost this share of the largest's tokens.
const UNKNOWN_SHARE: f64 = 1.0 / 8.0;

#[derive(Debug, Default)]
pub struct StepCosts {
    steps: u64,
    sizes: BTreeMap<usize, SizeSamples>,
}

#[derive(Debug, Default)]
struct SizeSamples {
    seconds: VecDeque<f64>,
    /// The step that measured it last.
    at: u64,
}

/// The costs as they are known now.
#[derive(Debug)]
pub struct CostCurve {
    /// Tokens and seconds, both ascending; never empty.
    points: Vec<(usize, f64)>,
}

impl StepCosts {
    pub fn record(&mut self, tokens: usize, seconds: f64) {
        self.steps += 1;
        let size = self.sizes.entry(tokens).or_default();
        size.at = self.steps;
        if size.seconds.len() == SAMPLES {
            size.seconds.pop_front();
        }
        size.seconds.push_back(seconds);
        let steps = self.steps;
        self.sizes.retain(|_, size| steps - size.at < FORGOTTEN);
    }

    /// The costs, if a size near that of the step without proposals was measured lately.
    pub fn curve(&self, plain_tokens: usize) -> Option<CostCurve> {
        let is_fresh = |size: &SizeSamples| self.steps - size.at < FRESH;
        let quarter = plain_tokens / 4;
        let mut near = self
            .sizes
            .range(plain_tokens - quarter..=plain_tokens + quarter);
        near.any(|(_, size)| is_fresh(size)).then(|| {
            let mut least = f64::INFINITY;
            let mut points: Vec<_> = self
                .sizes
                .iter()
                .rev()
                .map(|(&tokens, size)| {
                    least = least.min(size.median());
                    (tokens, least)
                })
                .collect();
            points.reverse();
            CostCurve { points }
        })
    }
}

impl SizeSamples {
    fn median(&self) -> f64 {
        let mut seconds: Vec<f64> = self.seconds.iter().copied().collect();
        seconds.sort_by(f64::total_cmp);
        let middle = seconds.len().saturating_sub(1) / 2;
        seconds.get(middle).copied().unwrap_or(f64::INFINITY)
    }
}

impl CostCurve {
    /// The most tokens with a useful estimate: the cost of many tokens cannot be predicted from few.
    pub fn most_tokens(&self) -> usize {
        self.points.last().map_or(0, |(tokens, _)| 2 * tokens)
    }

    pub fn seconds(&self, tokens: usize) -> f64 {
        let above = self.points.partition_point(|(size, _)| *size < tokens);
        match (self.points[..above].last(), self.points.get(above)) {
            (None, Some((_, seconds))) => *seconds,
            (Some(below), Some(above)) => {
                let share = (tokens - below.0) as f64 / (above.0 - below.0) as f64;
                below.1 + (above.1 - below.1) * share
            }
            (Some((largest, seconds)), None) => {
                let more = (tokens - largest) as f64 / *largest as f64;
                seconds * (1.0 + UNKNOWN_SHARE * more)
            }
            (None, None) => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FORGOTTEN, FRESH, StepCosts};

    fn measured(samples: &[(usize, f64)]) -> StepCosts {
        let mut costs = StepCosts::default();
        for &(tokens, seconds) in samples {
            costs.record(tokens, seconds);
        }
        costs
    }

    #[test]
    fn unmeasured_sizes_lie_between_their_neighbours() {
        let costs = measured(&[(1, 10.0), (5, 30.0)]);
        let curve = costs.curve(1).unwrap();
        let found: Vec<f64> = [1, 2, 4, 5, 10].map(|n| curve.seconds(n)).to_vec();
        assert_eq!(found, [10.0, 15.0, 25.0, 30.0, 33.75]);
        assert_eq!(curve.most_tokens(), 10);
    }

    #[test]
    fn a_slow_step_is_no_reason_to_avoid_its_size() {
        let costs = measured(&[(1, 10.0), (2, 90.0), (4, 14.0)]);
        assert_eq!(costs.curve(1).unwrap().seconds(2), 14.0);
        let costs = measured(&[(1, 10.0), (1, 90.0), (1, 11.0)]);
        assert_eq!(costs.curve(1).unwrap().seconds(1), 11.0);
    }

    #[test]
    fn the_step_without_proposals_is_measured_now_and_then() {
        let mut costs = measured(&[(1, 10.0)]);
        for step in 0..FRESH {
            assert!(costs.curve(1).is_some(), "{step}");
            costs.record(4, 12.0);
        }
        assert!(costs.curve(1).is_none());
        costs.record(1, 10.0);
        assert!(costs.curve(1).is_some());
        assert!(costs.curve(3).is_none(), "three streams are none and four");
        assert!(costs.curve(5).is_some(), "five streams cost about as four");
    }

    #[test]
    fn a_size_that_seemed_dear_is_tried_again() {
        let mut costs = measured(&[(1, 10.0), (2, 90.0)]);
        for _ in 0..FORGOTTEN {
            costs.record(1, 10.0);
        }
        assert!(costs.curve(1).unwrap().seconds(2) < 12.0);
    }
}
