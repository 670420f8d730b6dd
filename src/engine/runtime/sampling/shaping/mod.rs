//! Rare sampling settings that need sorted candidates. Smoothing and dynamic temperature change weights; top_a,
//! tail-free and locally typical sampling drop candidates.
//!
//! Formulas follow llama.cpp and KoboldCpp, whose clients send these settings. Sequences without any of them skip this
//! module and its sort.

use super::candidates::{Candidate, best_of};
use super::settings::{LEAST_TEMPERATURE, Settings};
use muster_kernels::cpu::exp;

/// Without top_k, tokens below `e^-20.7` (a billionth) of the best are dropped.
const FARTHEST: f32 = 20.723_266;

/// Second differences with a smaller sum do not determine a tail.
const FLAT: f64 = 1e-6;

/// Each within its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shaping {
    /// A logit falls by this factor times the square of its distance from the best; 0 disables smoothing.
    pub smoothing_factor: f32,
    /// Range of the dynamic temperature around the configured one; 0 disables it.
    pub dynatemp_range: f32,
    pub dynatemp_exponent: f32,
    /// The least probability, as a share of the best one squared; 0 drops nothing.
    pub top_a: f32,
    /// The share of the curve's bends before its tail; 1 drops nothing.
    pub tfs: f32,
    /// The share of the probability that the most typical tokens have; 1 drops nothing.
    pub typical: f32,
}

impl Shaping {
    pub fn acts(&self) -> bool {
        let Self {
            smoothing_factor,
            top_a,
            tfs,
            typical,
            ..
        } = *self;
        let cuts = top_a > 0.0 || tfs < 1.0 || typical < 1.0;
        cuts || smoothing_factor > 0.0 || self.moves_temperature()
    }

    pub fn moves_temperature(&self) -> bool {
        self.dynatemp_range > 0.0
    }

    /// The candidates after top_k with a weight above 0, best first. Only the best at temperature 0.
    pub fn weigh(
        &self,
        logits: &[f32],
        best: f32,
        settings: &Settings,
        candidates: &mut Vec<Candidate>,
    ) {
        self.gather(logits, best, settings, candidates);
        candidates.sort_unstable_by(Candidate::rank);
        let temperature = match self.moves_temperature() {
            true => self.temperature(logits, best, settings, candidates),
            false => settings.temperature,
        };
        if temperature < LEAST_TEMPERATURE {
            candidates.truncate(1);
        }
        let scale = temperature.max(LEAST_TEMPERATURE).recip();
        for candidate in &mut *candidates {
            candidate.weight = exp(-self.distance(best, candidate.logit) * scale);
        }
        candidates.retain(|candidate| candidate.weight > 0.0);
    }

    fn gather(&self, logits: &[f32], best: f32, settings: &Settings, found: &mut Vec<Candidate>) {
        if settings.top_k < logits.len() {
            return best_of(logits, settings.top_k, found);
        }
        let hottest = match self.moves_temperature() {
            // How unsure the model is shows at temperature 1.
            true => (settings.temperature + self.dynatemp_range).max(1.0),
            false => settings.temperature,
        };
        let mut reach = FARTHEST * hottest;
        if self.smoothing_factor > 0.0 {
            reach = (reach / self.smoothing_factor).sqrt();
        }
        // Masked tokens are infinitely far.
        let reach = reach.min(f32::MAX);
        let near = (0..)
            .zip(logits)
            .filter(|(_, logit)| best - **logit <= reach);
        found.clear();
        found.extend(near.map(|(id, &logit)| Candidate {
            id,
            logit,
            weight: 0.0,
        }));
    }

    /// Difference of a logit to the best, after smoothing.
    fn distance(&self, best: f32, logit: f32) -> f32 {
        let distance = best - logit;
        match self.smoothing_factor > 0.0 {
            true => self.smoothing_factor * distance * distance,
            false => distance,
        }
    }

    /// Dynamic temperature: interpolates the range by the candidates' entropy, relative to its maximum.
    fn temperature(
        &self,
        logits: &[f32],
        best: f32,
        settings: &Settings,
        candidates: &[Candidate],
    ) -> f32 {
        let is_allowed = |logit: &&f32| **logit > f32::NEG_INFINITY;
        let allowed = logits.iter().filter(is_allowed).count();
        let standing = allowed.min(settings.top_k);
        let unsure = match standing {
            0 | 1 => 0.0,
            _ => self.entropy(best, candidates) / (standing as f64).ln(),
        };
        let low = (settings.temperature - self.dynatemp_range).max(0.0);
        let high = settings.temperature + self.dynatemp_range;
        let unsure = unsure.clamp(0.0, 1.0) as f32;
        low + (high - low) * unsure.powf(self.dynatemp_exponent)
    }

    /// At temperature 1.
    fn entropy(&self, best: f32, candidates: &[Candidate]) -> f64 {
        let (mut total, mut moment) = (0.0, 0.0);
        for candidate in candidates {
            let distance = self.distance(best, candidate.logit);
            let weight = f64::from(exp(-distance));
            if weight > 0.0 {
                total += weight;
                moment += weight * f64::from(distance);
            }
        }
        total.ln() + moment / total
    }

    /// Drops candidates less probable than `top_a` times the square of the best probability.
    pub fn keep_likely(&self, candidates: &mut Vec<Candidate>) {
        if self.top_a > 0.0 {
            // The best weighs 1, so that its probability is one part of the total.
            let least = f64::from(self.top_a) / total(candidates);
            candidates.retain(|candidate| f64::from(candidate.weight) >= least);
        }
    }

    /// Drops the tail: candidates after the given share of the curvature of the sorted probabilities (Phénix and Egan,
    /// Tail Free Sampling, 2019). The candidates are sorted.
    pub fn keep_head(&self, candidates: &mut Vec<Candidate>) {
        if self.tfs >= 1.0 {
            return;
        }
        let total = total(candidates);
        let weights: Vec<f64> = candidates.iter().map(|c| f64::from(c.weight)).collect();
        let falls: Vec<f64> = pairs(&weights, |one, next| (one - next) / total).collect();
        let bends: Vec<f64> = pairs(&falls, |one, next| (one - next).abs()).collect();
        let all: f64 = bends.iter().sum();
        let share = |bend: f64| match all > FLAT {
            true => bend / all,
            false => 1.0 / bends.len() as f64,
        };
        let mut passed = 0.0;
        let begins = (0..).zip(&bends).find_map(|(index, &bend)| {
            passed += share(bend);
            (index > 0 && passed > f64::from(self.tfs)).then_some(index)
        });
        if let Some(tail) = begins {
            candidates.truncate(tail);
        }
    }

    /// Keeps the tokens whose information is closest to the entropy (Meister et al., Locally Typical Sampling, 2022),
    /// at least one, which need not be the best.
    pub fn keep_typical(&self, best: f32, candidates: &mut Vec<Candidate>) {
        if self.typical >= 1.0 {
            return;
        }
        // A token's information is its distance divided by the temperature, plus the logarithm of the total. The
        // entropy is its mean, so that the logarithm cancels out and the temperature does not affect the order.
        let distance = |candidate: &Candidate| f64::from(self.distance(best, candidate.logit));
        let total = total(candidates);
        let moments = candidates.iter().map(|c| f64::from(c.weight) * distance(c));
        let mean = moments.sum::<f64>() / total;
        let strangeness = |candidate: &Candidate| (distance(candidate) - mean).abs();
        candidates.sort_unstable_by(|one, other| {
            let by_strangeness = strangeness(one).total_cmp(&strangeness(other));
            by_strangeness.then_with(|| one.rank(other))
        });
        let mut weight = 0.0;
        let passes = |candidate: &Candidate| {
            weight += f64::from(candidate.weight);
            weight > f64::from(self.typical) * total
        };
        if let Some(last) = candidates.iter().position(passes) {
            candidates.truncate(last + 1);
        }
    }
}

fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|c| f64::from(c.weight)).sum()
}

/// Something of each and the one after it.
fn pairs(numbers: &[f64], of: impl Fn(f64, f64) -> f64) -> impl Iterator<Item = f64> {
    let after = numbers.iter().skip(1);
    numbers
        .iter()
        .zip(after)
        .map(move |(&one, &next)| of(one, next))
}

#[cfg(test)]
mod tests;
