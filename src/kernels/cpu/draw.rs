//! Weights for sampling a token, and their sum.

use super::level::{Level, at_every_level};
use super::math::exp;

/// Numbers processed together.
const LANES: usize = 16;
/// Length of a chunk of weights whose f32 sum is as exact as the weights are.
const SUMMED: usize = 4096;

/// Fills `weights` with `exp((logit - best) * scale)`, one per logit; logits below `least` get 0. Every level returns
/// the same bits.
pub fn weigh(logits: &[f32], best: f32, scale: f32, least: f32, weights: &mut Vec<f32>) {
    weights.resize(logits.len(), 0.0);
    weigh_slice(Level::best(), logits, best, scale, least, weights);
}

at_every_level! {
    fn weigh_slice(logits: &[f32], best: f32, scale: f32, least: f32, weights: &mut [f32]) = weigh_slice_as;
}

/// Uses no FMA at any level, so that a seed samples the same tokens on every machine.
#[inline(always)]
fn weigh_slice_as<const FAST: bool>(
    logits: &[f32],
    best: f32,
    scale: f32,
    least: f32,
    weights: &mut [f32],
) {
    for (weight, logit) in weights.iter_mut().zip(logits) {
        let found = exp((logit - best) * scale);
        *weight = if found < least { 0.0 } else { found };
    }
}

/// The largest of some numbers; minus infinity of none.
pub fn largest(numbers: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (groups, rest) = numbers.as_chunks::<LANES>();
    for group in groups {
        for (lane, number) in lanes.iter_mut().zip(group) {
            *lane = larger(*lane, *number);
        }
    }
    lanes
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, larger)
}

/// The logarithm of the sum of all powers of e: logits less it are logarithms of probabilities.
pub fn log_sum_exp(logits: &[f32]) -> f32 {
    let best = largest(logits);
    if best == f32::NEG_INFINITY {
        return best;
    }
    let mut total = 0.0;
    for part in logits.chunks(SUMMED) {
        let mut sums = [0.0; LANES];
        add_powers(Level::best(), part, best, &mut sums);
        total += f64::from(sums.iter().sum::<f32>());
    }
    best + total.ln() as f32
}

at_every_level! {
    fn add_powers(logits: &[f32], best: f32, sums: &mut [f32; LANES]) = add_powers_as;
}

#[inline(always)]
fn add_powers_as<const FAST: bool>(logits: &[f32], best: f32, sums: &mut [f32; LANES]) {
    let (groups, rest) = logits.as_chunks::<LANES>();
    for group in groups {
        for (sum, logit) in sums.iter_mut().zip(group) {
            *sum += exp(logit - best);
        }
    }
    for (sum, logit) in sums.iter_mut().zip(rest) {
        *sum += exp(logit - best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_logits_add_up() {
        let mut logits: Vec<f32> = (0..5003)
            .map(|id| (id % 997) as f32 * -0.11 + 3.7)
            .collect();
        logits[4999] = f32::NEG_INFINITY;
        logits[5001] = 9.5;
        let wanted = logits
            .iter()
            .map(|&logit| f64::from(logit).exp())
            .sum::<f64>()
            .ln();
        assert!((f64::from(log_sum_exp(&logits)) - wanted).abs() < 2e-6);
        assert_eq!(largest(&logits), 9.5);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 3]), f32::NEG_INFINITY);
        assert_eq!(largest(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn weights_are_the_same_bits_at_every_level() {
        let logits: Vec<f32> = (0..5003)
            .map(|id| (id % 997) as f32 * -0.11 + 3.7)
            .collect();
        let weights = |level| {
            let mut weights = vec![0.0; logits.len()];
            weigh_slice(level, &logits, 3.7, 1.43, 1e-20, &mut weights);
            weights.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let plain = weights(Level::Portable);
        assert!(plain.contains(&0) && plain.contains(&1.0_f32.to_bits()));
        for level in Level::available() {
            assert!(weights(level) == plain, "{level:?}");
        }
    }
}
