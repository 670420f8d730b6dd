//! The few tokens that top_k and top_p leave, found by partial selection.

use std::cmp::Ordering;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub id: u32,
    pub logit: f32,
    pub weight: f32,
}

impl Candidate {
    /// Better first; the lower id among equals.
    pub fn rank(&self, other: &Self) -> Ordering {
        other
            .logit
            .total_cmp(&self.logit)
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

/// Buckets by distance from the best token, up to a factor of e^32.
const BUCKETS: usize = 4096;
const BUCKETS_PER_E: f32 = 128.0;

/// Sets to 0 every weight outside the fewest best tokens that together weigh at least `wanted`. One pass finds
/// the bucket in which that weight is reached, so that only its tokens need to be told apart.
pub fn keep_nucleus(
    logits: &[f32],
    (best, scale): (f32, f32),
    weights: &mut [f32],
    wanted: f64,
    kept: &mut Vec<Candidate>,
) {
    let bucket = |logit: f32| (((best - logit) * scale * BUCKETS_PER_E) as usize).min(BUCKETS - 1);
    let mut mass = vec![0.0_f64; BUCKETS];
    for (&logit, &weight) in logits.iter().zip(&*weights) {
        mass[bucket(logit)] += f64::from(weight);
    }
    let (mut edge, mut above) = (0, 0.0);
    while edge + 1 < BUCKETS && above + mass[edge] < wanted {
        above += mass[edge];
        edge += 1;
    }
    kept.clear();
    let at_edge = (0_u32..)
        .zip(logits)
        .zip(&*weights)
        .filter(|((_, logit), _)| bucket(**logit) == edge);
    kept.extend(at_edge.map(|((id, &logit), &weight)| Candidate { id, logit, weight }));
    nucleus(kept, wanted - above);
    let Some(worst) = kept.iter().max_by(|a, b| a.rank(b)).copied() else {
        return;
    };
    for ((id, &logit), weight) in (0_u32..).zip(logits).zip(weights) {
        if logit < worst.logit || (logit == worst.logit && id > worst.id) {
            *weight = 0.0;
        }
    }
}

/// Keeps the fewest best candidates that together weigh at least `wanted`; at least one.
pub fn nucleus(candidates: &mut Vec<Candidate>, wanted: f64) {
    // The number to keep is in `(low, high]`, and the first `low` weigh `settled`.
    let (mut low, mut high, mut settled) = (0, candidates.len(), 0.0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let open = &mut candidates[low..high];
        open.select_nth_unstable_by(middle - low, Candidate::rank);
        let upper: f64 = open[..middle - low]
            .iter()
            .map(|c| f64::from(c.weight))
            .sum();
        if settled + upper >= wanted {
            high = middle;
        } else {
            settled += upper;
            low = middle;
        }
    }
    candidates.truncate(high);
}

/// The candidate where the running sum of weights, in the order of ids, passes `random` of their total. The
/// order of ids makes the draw independent of how the candidates were found.
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

    use super::{Candidate, best_of, keep_nucleus};

    fn sorted(logits: &[f32]) -> Vec<Candidate> {
        let mut all: Vec<_> = (0_u32..)
            .zip(logits)
            .map(|(id, &logit)| Candidate {
                id,
                logit,
                weight: logit.exp(),
            })
            .collect();
        all.sort_by(Candidate::rank);
        all
    }

    fn ids(mut candidates: Vec<Candidate>) -> Vec<u32> {
        candidates.sort_by(Candidate::rank);
        candidates.iter().map(|c| c.id).collect()
    }

    proptest! {
        #[test]
        fn selection_agrees_with_sorting(
            steps in proptest::collection::vec(-20..4_i32, 1..200),
            count in 1..250_usize,
            top_p in 0.0..1.0_f64,
        ) {
            // Coarse steps, so that there are ties.
            let logits: Vec<f32> = steps.iter().map(|&step| step as f32 / 4.0).collect();
            let all = sorted(&logits);
            let mut found = Vec::new();
            best_of(&logits, count, &mut found);
            assert_eq!(ids(found), ids(all.iter().take(count).copied().collect()));

            let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut weights: Vec<f32> = logits.iter().map(|logit| (logit - best).exp()).collect();
            let weight_of = weights.clone();
            let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
            keep_nucleus(&logits, (best, 1.0), &mut weights, top_p * total, &mut Vec::new());
            let found: Vec<u32> = (0..).zip(&weights).filter(|(_, weight)| **weight > 0.0).map(|(id, _)| id).collect();
            let mut sum = 0.0;
            let reaches = |c: &Candidate| {
                sum += f64::from(weight_of[c.id as usize]);
                sum >= top_p * total * (1.0 - 1e-12)
            };
            let enough = all.iter().position(reaches).map_or(all.len(), |at| at + 1);
            let mut wanted: Vec<u32> = all[..enough].iter().map(|c| c.id).collect();
            wanted.sort_unstable();
            assert_eq!(found, wanted);
        }
    }
}
