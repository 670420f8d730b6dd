//! Weights to draw a token by.

use super::level::{Level, at_every_level};
use super::math::exp;

/// Fills `weights` with `exp((logit - best) * scale)`, one for each logit; what is below `least` becomes 0. The same bits
/// at every level.
pub fn weigh(logits: &[f32], best: f32, scale: f32, least: f32, weights: &mut Vec<f32>) {
    weights.resize(logits.len(), 0.0);
    weigh_slice(Level::best(), logits, best, scale, least, weights);
}

at_every_level! {
    fn weigh_slice(logits: &[f32], best: f32, scale: f32, least: f32, weights: &mut [f32]) = weigh_slice_as;
}

/// Nothing here is fused, whatever the CPU can: a seed draws the same on every machine.
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

#[cfg(test)]
mod tests {
    use super::*;

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
