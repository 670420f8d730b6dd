//! The few tokens that top_k leaves, found by partial selection.

use std::cmp::Ordering;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub id: u32,
    pub logit: f32,
    pub weight: f32,
}

impl Candidate {
    /// Better first; the lower id among equals. No logit is NaN: the best was found first.
    pub fn rank(&self, other: &Self) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit);
        by_logit
            .unwrap_or(Ordering::Equal)
            .then(self.id.cmp(&other.id))
    }
}

/// The `count` best tokens, in no order, without weights.
pub fn best_of(logits: &[f32], count: usize, kept: &mut Vec<Candidate>) {
    kept.clear();
    if count == 0 {
        return;
    }
    // Whenever twice as many have gathered, the worse half goes and the bar rises: one pass, and soon almost
    // nothing clears the bar. A later token must be better than the bar, because equals go to the lower id.
    let mut bar = f32::NEG_INFINITY;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > bar {
            kept.push(Candidate {
                id: id as u32,
                logit,
                weight: 0.0,
            });
            if kept.len() == 2 * count {
                bar = keep_best(kept, count);
            }
        }
    }
    keep_best(kept, count);
}

fn keep_best(kept: &mut Vec<Candidate>, count: usize) -> f32 {
    if kept.len() > count {
        kept.select_nth_unstable_by(count - 1, Candidate::rank);
        kept.truncate(count);
    }
    kept.last().map_or(f32::NEG_INFINITY, |worst| worst.logit)
}

/// Samples by inverse transform: the candidate, in the order of ids, where the cumulative weight passes `random` of the
/// total. The order of ids makes the result independent of how the candidates were found.
pub fn at(candidates: &mut [Candidate], random: f64) -> u32 {
    candidates.sort_unstable_by_key(|candidate| candidate.id);
    let total: f64 = candidates.iter().map(|c| f64::from(c.weight)).sum();
    let mut left = random * total;
    let mut last = 0;
    for candidate in candidates.iter().filter(|c| c.weight > 0.0) {
        last = candidate.id;
        if left < f64::from(candidate.weight) {
            break;
        }
        left -= f64::from(candidate.weight);
    }
    last
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{Candidate, best_of};

    proptest! {
        #[test]
        fn selection_agrees_with_sorting(
            // Coarse steps, to get ties.
            steps in proptest::collection::vec(-20..4_i32, 1..200),
            count in 1..250_usize,
        ) {
            let logits: Vec<f32> = steps.iter().map(|&step| step as f32 / 4.0).collect();
            let candidate = |(id, &logit)| Candidate { id, logit, weight: 0.0 };
            let mut wanted: Vec<_> = (0..).zip(&logits).map(candidate).collect();
            wanted.sort_by(Candidate::rank);
            wanted.truncate(count);
            let mut found = Vec::new();
            best_of(&logits, count, &mut found);
            found.sort_by(Candidate::rank);
            assert_eq!(found, wanted);
        }
    }
}
