//! Passes over a whole vocabulary, written so that the compiler makes vector code of them.

use super::BadLogits;
use muster_kernels::cpu;

const LANES: usize = 16;
const BLOCK: usize = 1024;

/// The best token and its logit; the lowest id among equals.
pub fn best(logits: &[f32]) -> Result<(u32, f32), BadLogits> {
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut not_a_number = [false; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            most[lane] = if chunk[lane] > most[lane] {
                chunk[lane]
            } else {
                most[lane]
            };
            not_a_number[lane] |= chunk[lane].is_nan();
        }
    }
    if not_a_number.contains(&true) || rest.iter().any(|logit| logit.is_nan()) {
        return Err(BadLogits::NotANumber);
    }
    let best = most
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    if best == f32::INFINITY {
        return Err(BadLogits::Infinite);
    }
    if best == f32::NEG_INFINITY {
        return Err(BadLogits::NothingAllowed);
    }
    let id = logits.iter().position(|&logit| logit == best).unwrap_or(0);
    Ok((id as u32, best))
}

/// Sums of the weights of 1024 tokens each.
pub struct Sums(Vec<f64>);

/// Fills `weights` with `exp((logit - best) * scale)`; logits below `least` get 0.
pub fn weigh(logits: &[f32], best: f32, scale: f32, least: f32, weights: &mut Vec<f32>) -> Sums {
    cpu::weigh(logits, best, scale, least, weights);
    Sums(weights.chunks(BLOCK).map(sum).collect())
}

/// Sets the weights of tokens below a logit, or below a weight, to 0.
pub fn drop_below(least_logit: f32, least: f32, logits: &[f32], weights: &mut [f32]) -> Sums {
    let blocks = logits.chunks(BLOCK).zip(weights.chunks_mut(BLOCK));
    let sums = blocks.map(|(logits, weights)| {
        for (logit, weight) in logits.iter().zip(&mut *weights) {
            let stays = (*logit >= least_logit) & (*weight >= least);
            *weight = if stays { *weight } else { 0.0 };
        }
        sum(weights)
    });
    Sums(sums.collect())
}

fn sum(weights: &[f32]) -> f64 {
    let mut sums = [0.0_f32; LANES];
    let (chunks, rest) = weights.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += chunk[lane];
        }
    }
    sums.iter()
        .chain(rest)
        .map(|&weight| f64::from(weight))
        .sum()
}

impl Sums {
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The token where the running sum of the weights passes `random` (in `[0, 1)`) of the total.
    pub fn at(&self, weights: &[f32], random: f64) -> u32 {
        let mut left = random * self.total();
        let mut block = 0;
        let mut last_heavy = 0;
        for (index, &sum) in self.0.iter().enumerate() {
            if sum > 0.0 {
                last_heavy = index;
            }
            if left < sum {
                break;
            }
            left -= sum;
            block = index + 1;
        }
        if block == self.0.len() {
            // Rounding carried us past the end.
            (block, left) = (last_heavy, f64::INFINITY);
        }
        let start = block * BLOCK;
        let end = weights.len().min(start + BLOCK);
        (start + walk(&weights[start..end], left)) as u32
    }
}

/// The index where the cumulative weight passes `left`, or else the last weight above 0.
fn walk(weights: &[f32], mut left: f64) -> usize {
    let mut last = 0;
    for (index, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            last = index;
            if left < f64::from(weight) {
                return index;
            }
            left -= f64::from(weight);
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::{Sums, best, weigh};
    use crate::runtime::sampling::BadLogits;

    #[test]
    fn the_lowest_id_wins_among_equals() {
        let mut logits = vec![0.0; 100];
        for id in [77, 33, 98] {
            logits[id] = 2.0;
        }
        assert_eq!(best(&logits), Ok((33, 2.0)));
    }

    #[test]
    fn logits_that_mean_nothing_are_refused_by_kind() {
        for (value, wanted) in [
            (f32::NAN, BadLogits::NotANumber),
            (f32::INFINITY, BadLogits::Infinite),
        ] {
            for place in [0, 15, 16, 36] {
                let mut logits = vec![0.0; 37];
                logits[place] = value;
                assert_eq!(best(&logits), Err(wanted), "at {place}");
            }
        }
        assert_eq!(
            best(&[f32::NEG_INFINITY; 20]),
            Err(BadLogits::NothingAllowed)
        );
        assert_eq!(best(&[]), Err(BadLogits::NothingAllowed));
    }

    #[test]
    fn a_draw_never_lands_on_a_token_without_weight() {
        let logits: Vec<f32> = (0..3000)
            .map(|i| {
                if i % 1500 == 7 {
                    1.0
                } else {
                    f32::NEG_INFINITY
                }
            })
            .collect();
        let mut weights = Vec::new();
        let sums: Sums = weigh(&logits, 1.0, 1.0, 0.0, &mut weights);
        for (random, wanted) in [
            (0.0, 7),
            (0.49, 7),
            (0.5, 1507),
            (0.999_999_999, 1507),
            (1.0, 1507),
        ] {
            assert_eq!(sums.at(&weights, random), wanted, "at {random}");
        }
    }
}
