//! Bans of tokens that would end a text too early or at all.

use crate::runtime::StopRules;

/// Bans of one sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bans {
    always: Vec<u32>,
    /// Banned for tokens with an index below `min_tokens`.
    early: Vec<u32>,
    min_tokens: usize,
}

impl Bans {
    /// For a model whose turns end with one of `ends`.
    pub fn of(rules: &StopRules, ends: &[u32]) -> Self {
        let stops = &rules.stop_token_ids;
        let always = match rules.ignore_eos {
            // A client may still name one of them itself.
            true => ends
                .iter()
                .filter(|id| !stops.contains(id))
                .copied()
                .collect(),
            false => Vec::new(),
        };
        let early = match rules.min_tokens {
            0 => Vec::new(),
            _ => ends.iter().chain(stops).copied().collect(),
        };
        Self {
            always,
            early,
            min_tokens: rules.min_tokens,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.always.is_empty() && self.early.is_empty()
    }

    /// Applies to the token with this index. A text with `min_tokens` tokens may end with the next one.
    pub fn apply(&self, logits: &mut [f32], index: usize) {
        let early = if index < self.min_tokens {
            &self.early[..]
        } else {
            &[]
        };
        for &id in self.always.iter().chain(early) {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bans;
    use crate::runtime::StopRules;

    fn open(rules: &StopRules, index: usize) -> Vec<usize> {
        let mut logits = [0.0_f32; 5];
        Bans::of(rules, &[1, 2]).apply(&mut logits, index);
        let open = logits.iter().enumerate().filter(|(_, it)| it.is_finite());
        open.map(|(id, _)| id).collect()
    }

    #[test]
    fn ends_are_banned_before_min_tokens_and_always_with_ignore_eos() {
        let rules = |min_tokens, ignore_eos, stop_token_ids: &[u32]| StopRules {
            min_tokens,
            ignore_eos,
            stop_token_ids: stop_token_ids.to_vec(),
        };
        assert_eq!(open(&StopRules::default(), 0), [0, 1, 2, 3, 4]);
        assert_eq!(open(&rules(2, false, &[3]), 1), [0, 4]);
        assert_eq!(open(&rules(2, false, &[3]), 2), [0, 1, 2, 3, 4]);
        assert_eq!(open(&rules(0, true, &[]), 9), [0, 3, 4]);
        assert_eq!(open(&rules(0, true, &[2]), 9), [0, 2, 3, 4]);
    }
}
