//! Which experts a row takes, how much of each, and the rows of a step in the order of their experts.

use std::{cmp::Ordering, ops::Range};

/// How a router's logits become a choice of experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// Experts of a row.
    pub active: usize,
    pub score: RouterScore,
    /// The weights of the chosen experts are divided by their sum.
    pub is_normalized: bool,
    /// The factor of the weights.
    pub scale: f32,
    /// Group-limited routing: a row first chooses among groups of neighbouring experts.
    pub groups: Option<ExpertGroups>,
}

/// The function from logits to scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScore {
    /// Share among all experts.
    Softmax,
    Sigmoid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    pub count: usize,
    /// Groups of a row.
    pub active: usize,
    pub score: GroupScore,
}

/// The score of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupScore {
    /// The score of its best expert.
    Best,
    /// The sum of the scores of its two best experts.
    BestTwo,
}

/// The experts of some rows and their weights: row by row, best first.
#[derive(Debug, Default, PartialEq)]
pub struct ChosenExperts {
    pub experts: Vec<u32>,
    pub weights: Vec<f32>,
}

impl Routing {
    /// A softmax over all experts, without groups.
    pub fn softmax(active: usize, is_normalized: bool) -> Self {
        Self {
            active,
            score: RouterScore::Softmax,
            is_normalized,
            scale: 1.0,
            groups: None,
        }
    }

    /// Appends the experts of a row. The choice depends only on the row's own logits; of equals, the first wins. The
    /// correction affects the choice but not the weights.
    pub fn choose(&self, logits: &[f32], correction: Option<&[f32]>, chosen: &mut ChosenExperts) {
        let scores = match self.score {
            RouterScore::Softmax => softmax(logits),
            RouterScore::Sigmoid => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        };
        let mut ranks = scores.clone();
        for (rank, correction) in ranks.iter_mut().zip(correction.unwrap_or_default()) {
            *rank += correction;
        }
        if let Some(groups) = self.groups {
            groups.hide_others(&mut ranks);
        }
        let best = best_of(&ranks, self.active);
        let total: f32 = match self.is_normalized {
            true => best.iter().map(|&expert| scores[expert]).sum(),
            false => 1.0,
        };
        for expert in best {
            chosen.experts.push(expert as u32);
            chosen.weights.push(scores[expert] / total * self.scale);
        }
    }
}

impl ExpertGroups {
    /// Experts of groups that are not chosen rank last.
    fn hide_others(self, ranks: &mut [f32]) {
        let size = ranks.len() / self.count;
        let sums = ranks.chunks(size).map(|group| {
            let counted = match self.score {
                GroupScore::Best => 1,
                GroupScore::BestTwo => 2,
            };
            let best = best_of(group, counted).into_iter();
            best.map(|expert| group[expert]).sum()
        });
        let sums: Vec<f32> = sums.collect();
        let chosen = best_of(&sums, self.active);
        for (index, group) in ranks.chunks_mut(size).enumerate() {
            if !chosen.contains(&index) {
                group.fill(f32::NEG_INFINITY);
            }
        }
    }
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers = logits.iter().map(|logit| (logit - highest).exp());
    let mut powers: Vec<f32> = powers.collect();
    let total: f32 = powers.iter().sum();
    powers.iter_mut().for_each(|power| *power /= total);
    powers
}

/// The indices of the `count` highest scores, the highest first.
fn best_of(scores: &[f32], count: usize) -> Vec<usize> {
    let by_score = |a: &usize, b: &usize| -> Ordering {
        let order = scores[*b].total_cmp(&scores[*a]);
        order.then(a.cmp(b))
    };
    let mut indices: Vec<usize> = (0..scores.len()).collect();
    if count < indices.len() {
        indices.select_nth_unstable_by(count, by_score);
        indices.truncate(count);
    }
    indices.sort_unstable_by(by_score);
    indices
}

/// The rows of a step in the order of their experts.
#[derive(Debug, PartialEq)]
pub struct ExpertOrder {
    /// The step's row at each index; a row occurs once per expert.
    pub rows: Vec<u32>,
    /// The experts that have rows, in order, and the places of their rows.
    pub spans: Vec<(usize, Range<usize>)>,
    /// The place of each choice, in the order of [`ChosenExperts`].
    pub places: Vec<u32>,
}

impl ExpertOrder {
    /// Sorts the choices among `experts`, `active` per row.
    pub fn new(chosen: &[u32], active: usize, experts: usize) -> Self {
        let mut counts = vec![0_usize; experts];
        for &expert in chosen {
            counts[expert as usize] += 1;
        }
        let mut spans = Vec::new();
        let mut next = Vec::with_capacity(experts);
        let mut first = 0;
        for (expert, count) in counts.into_iter().enumerate() {
            next.push(first);
            if count > 0 {
                spans.push((expert, first..first + count));
            }
            first += count;
        }
        let mut rows = vec![0; chosen.len()];
        let mut places = Vec::with_capacity(chosen.len());
        for (choice, &expert) in chosen.iter().enumerate() {
            let place = &mut next[expert as usize];
            rows[*place] = (choice / active) as u32;
            places.push(*place as u32);
            *place += 1;
        }
        Self {
            rows,
            spans,
            places,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(active: usize, is_normalized: bool, logits: &[f32]) -> ChosenExperts {
        let mut chosen = ChosenExperts::default();
        Routing::softmax(active, is_normalized).choose(logits, None, &mut chosen);
        chosen
    }

    #[test]
    fn groups_and_corrections_count_for_the_choice_alone() {
        let routing = Routing {
            active: 2,
            score: RouterScore::Sigmoid,
            is_normalized: true,
            scale: 3.0,
            groups: Some(ExpertGroups {
                count: 3,
                active: 1,
                score: GroupScore::BestTwo,
            }),
        };
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let logits = [4.0, -4.0, 1.0, 1.0, 0.5, 0.0];
        let mut chosen = ChosenExperts::default();
        routing.choose(&logits, None, &mut chosen);
        // Alone the first expert is the best, but the second group has the best two.
        assert_eq!(chosen.experts, [2, 3]);
        assert_eq!(chosen.weights, [1.5, 1.5]);
        let mut by_best = ChosenExperts::default();
        let groups = routing.groups.map(|groups| ExpertGroups {
            score: GroupScore::Best,
            ..groups
        });
        Routing { groups, ..routing }.choose(&logits, None, &mut by_best);
        assert_eq!(by_best.experts, [0, 1]);
        let mut corrected = ChosenExperts::default();
        routing.choose(
            &logits,
            Some(&[0.0, 0.0, 0.0, 0.0, 0.5, 0.6]),
            &mut corrected,
        );
        assert_eq!(corrected.experts, [4, 5]);
        let weight = 3.0 * sigmoid(0.5) / (sigmoid(0.5) + 0.5);
        assert!((corrected.weights[0] - weight).abs() < 1e-6);
    }

    #[test]
    fn the_best_experts_are_chosen_and_weighted_by_softmax() {
        let logits = [1.0, 3.0, 2.0, 3.0, -1.0];
        let powers = logits.map(f32::exp);
        let all: f32 = powers.iter().sum();
        let found = chosen(3, false, &logits);
        assert_eq!(found.experts, [1, 3, 2]);
        for (weight, expert) in found.weights.iter().zip([1, 3, 2]) {
            assert!((weight - powers[expert] / all).abs() < 1e-6);
        }
        let normalized = chosen(3, true, &logits);
        assert_eq!(normalized.experts, [1, 3, 2]);
        assert!((normalized.weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(chosen(1, true, &logits).weights, [1.0]);
        assert_eq!(chosen(5, false, &logits).experts, [1, 3, 2, 0, 4]);
    }

    #[test]
    fn logits_that_are_no_numbers_choose_as_many() {
        let found = chosen(2, true, &[f32::NAN, 0.0, f32::INFINITY]);
        assert_eq!(found.experts.len(), 2);
    }

    #[test]
    fn rows_are_sorted_by_expert_and_found_again() {
        let order = ExpertOrder::new(&[4, 1, 1, 4, 0, 1], 2, 6);
        assert_eq!(order.rows, [2, 0, 1, 2, 0, 1]);
        assert_eq!(order.spans, [(0, 0..1), (1, 1..4), (4, 4..6)]);
        assert_eq!(order.places, [4, 1, 2, 5, 0, 3]);
    }
}
