//! How often proposals were right, by the length of the match that they came from. Pure.

/// The first match length of each class.
const CLASSES: [usize; 6] = [0, 3, 4, 6, 9, 17];
/// How often a proposal is right before any was seen. Low for short matches: a text that never repeats has only these.
const FIRST_RATES: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 0.85];
/// How many proposals the first rates weigh.
const FIRST_WEIGHT: f64 = 6.0;
/// The most proposals that are remembered: older ones fade.
const MOST_WEIGHT: f64 = 32.0;

/// Hit rates of one sequence.
#[derive(Debug, Clone)]
pub struct HitRates {
    rates: [f64; CLASSES.len()],
    weights: [f64; CLASSES.len()],
}

impl Default for HitRates {
    fn default() -> Self {
        Self {
            rates: FIRST_RATES,
            weights: [FIRST_WEIGHT; CLASSES.len()],
        }
    }
}

impl HitRates {
    /// The probability that the next token agrees with the draft after a match of this length.
    pub fn rate(&self, matched: usize) -> f64 {
        self.rates[class(matched)]
    }

    /// Learns from a sampled token, whether it was drafted or not.
    pub fn count(&mut self, matched: usize, is_hit: bool) {
        let class = class(matched);
        let weight = &mut self.weights[class];
        *weight = (*weight + 1.0).min(MOST_WEIGHT);
        let found = if is_hit { 1.0 } else { 0.0 };
        self.rates[class] += (found - self.rates[class]) / *weight;
    }
}

fn class(matched: usize) -> usize {
    let later = CLASSES.iter().skip(1);
    later.take_while(|&&first| matched >= first).count()
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, HitRates, class};

    #[test]
    fn every_length_has_its_class() {
        let classes: Vec<usize> = [0, 2, 3, 4, 5, 6, 8, 9, 16, 17, 1000].map(class).to_vec();
        assert_eq!(classes, [0, 0, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        assert_eq!(class(usize::MAX), CLASSES.len() - 1);
    }

    #[test]
    fn rates_follow_what_was_seen_and_forget() {
        let mut hits = HitRates::default();
        for _ in 0..100 {
            hits.count(2, false);
            hits.count(20, true);
        }
        assert!(hits.rate(2) < 0.01 && hits.rate(20) > 0.98, "{hits:?}");
        for _ in 0..100 {
            hits.count(2, true);
        }
        assert!(hits.rate(2) > 0.9, "{hits:?}");
    }
}
