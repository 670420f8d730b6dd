//! Prompt lookup: drafts tokens by continuing a repetition of the text or of its prompt. Pure.
//!
//! An index maps each pair and each quadruple of tokens to the position after its last occurrence, so that a token
//! costs a few look-ups whatever the length of the text.

use std::collections::HashMap;

use super::hits::HitRates;

const SHORT: usize = 2;
const LONG: usize = 4;
/// Longer matches are treated alike.
const LONGEST_MATCH: usize = 32;

/// The tokens of one sequence, indexed, and the earlier part that the newest ones repeat.
#[derive(Debug, Default)]
pub struct Lookup {
    short: HashMap<[u32; SHORT], u32>,
    long: HashMap<[u32; LONG], u32>,
    /// Tokens taken in.
    length: usize,
    repetition: Option<Repetition>,
    hits: HitRates,
}

/// The earlier part that the end of the text repeats.
#[derive(Debug, Clone, Copy)]
struct Repetition {
    /// Position of the draft: the token after the repeated part.
    next: usize,
    /// Tokens that are equal before it, at most [`LONGEST_MATCH`].
    matched: usize,
}

impl Lookup {
    /// Takes in the tokens that are new since the last call, and counts which of them it would have proposed. The
    /// tokens of the first call are the prompt, and count nothing.
    pub fn follow(&mut self, tokens: &[u32]) {
        let is_prompt = self.length == 0;
        for position in self.length..tokens.len() {
            self.index(tokens, position);
            if !is_prompt {
                self.repetition = self.follow_token(tokens, position);
            }
        }
        if is_prompt {
            self.repetition = self.find(tokens);
        }
        self.length = self.length.max(tokens.len());
    }

    /// Drafts up to `most` tokens, each with the probability of being accepted if those before it are.
    pub fn propose(&self, tokens: &[u32], most: usize) -> (Vec<u32>, Vec<f64>) {
        let (mut proposed, mut chances) = (Vec::new(), Vec::new());
        let Some(Repetition { next, matched }) = self.repetition else {
            return (proposed, chances);
        };
        for offset in 0..most {
            let at = next + offset;
            // A repetition that reaches the end of the text continues with the draft itself.
            let token = tokens.get(at).or_else(|| proposed.get(at - tokens.len()));
            let Some(&token) = token else { break };
            proposed.push(token);
            chances.push(self.hits.rate(matched + offset));
        }
        (proposed, chances)
    }

    fn index(&mut self, tokens: &[u32], position: usize) {
        let Ok(at) = u32::try_from(position) else {
            return;
        };
        if let Some(before) = last(&tokens[..position]) {
            self.short.insert(before, at);
        }
        if let Some(before) = last(&tokens[..position]) {
            self.long.insert(before, at);
        }
    }

    fn follow_token(&mut self, tokens: &[u32], position: usize) -> Option<Repetition> {
        let known = &tokens[..=position];
        let Some(Repetition { next, matched }) = self.repetition else {
            return self.find(known);
        };
        let is_hit = tokens[next] == tokens[position];
        self.hits.count(matched, is_hit);
        match is_hit && matched >= LONG {
            true => Some(Repetition {
                next: next + 1,
                matched: (matched + 1).min(LONGEST_MATCH),
            }),
            false => self.find(known),
        }
    }

    fn find(&self, known: &[u32]) -> Option<Repetition> {
        let long = last(known).and_then(|end| self.long.get(&end));
        let next = long.or_else(|| last(known).and_then(|end| self.short.get(&end)));
        let next = *next? as usize;
        let pairs = known[..next].iter().rev().zip(known.iter().rev());
        let matched = pairs.take(LONGEST_MATCH).take_while(|(a, b)| a == b);
        Some(Repetition {
            next,
            matched: matched.count(),
        })
    }
}

/// The last `N` tokens, if enough exist.
fn last<const N: usize>(tokens: &[u32]) -> Option<[u32; N]> {
    tokens.last_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{LONG, Lookup, SHORT};

    fn after(prompt: &[u32], generated: &[u32]) -> (Lookup, Vec<u32>) {
        let mut lookup = Lookup::default();
        lookup.follow(prompt);
        let mut tokens = prompt.to_vec();
        for &token in generated {
            tokens.push(token);
            lookup.follow(&tokens);
        }
        (lookup, tokens)
    }

    fn check(prompt: &[u32], generated: &[u32], most: usize, wanted: &[u32]) {
        let (lookup, tokens) = after(prompt, generated);
        let (proposed, chances) = lookup.propose(&tokens, most);
        assert_eq!(proposed, wanted, "{prompt:?} {generated:?}");
        assert_eq!(chances.len(), proposed.len());
    }

    #[test]
    fn a_repeated_part_goes_on_as_it_did() {
        check(&[1, 2, 3, 4, 5], &[2, 3], 2, &[4, 5]);
        check(&[1, 2, 3, 4, 5, 2, 3], &[], 2, &[4, 5]);
        check(&[1, 2, 3, 4, 5], &[3], 2, &[]);
        check(&[1, 2, 3, 4, 5], &[2, 3], 0, &[]);
    }

    #[test]
    fn a_part_that_reaches_the_end_repeats_itself() {
        check(&[7, 8, 9], &[7, 8, 9], 7, &[7, 8, 9, 7, 8, 9, 7]);
        check(&[5], &[5, 5], 3, &[5, 5, 5]);
    }

    #[test]
    fn the_longest_indexed_match_goes_before_the_latest() {
        let prompt = [1, 2, 3, 4, 10, 9, 9, 3, 4, 11];
        check(&prompt, &[1, 2, 3, 4], 1, &[10]);
        check(&prompt, &[8, 3, 4], 1, &[11]);
    }

    #[test]
    fn chances_follow_the_hits() {
        let loops = |count: usize| -> Vec<u32> { (0..count as u32).map(|i| i % 6).collect() };
        let (good, tokens) = after(&[], &loops(300));
        let (_, sure) = good.propose(&tokens, 8);
        assert!(sure.iter().all(|&chance| chance > 0.95), "{sure:?}");
        // Each pair was seen before, and another token follows every time.
        let scattered: Vec<u32> = (0..600_u64)
            .map(|i| (i * i * i).wrapping_mul(0x9e37_79b9_7f4a_7c15) as u32 >> 30)
            .collect();
        let (bad, tokens) = after(&[], &scattered);
        let (_, unsure) = bad.propose(&tokens, 1);
        assert!(unsure.iter().all(|&chance| chance < 0.6), "{unsure:?}");
    }

    proptest! {
        /// The incremental index answers as a scan of the whole text does.
        #[test]
        fn proposals_are_what_followed_an_equal_end(
            prompt in proptest::collection::vec(0..4_u32, 0..40),
            generated in proptest::collection::vec(0..4_u32, 1..40),
            whole in any::<bool>(),
        ) {
            let (prompt, generated) = match whole {
                true => ([prompt, generated].concat(), Vec::new()),
                false => (prompt, generated),
            };
            let (lookup, tokens) = after(&prompt, &generated);
            let end = tokens.len();
            let ends_alike = |length: usize, next: usize| {
                next >= length && end >= length && tokens[next - length..next] == tokens[end - length..]
            };
            let followed = |length| (1..end).any(|next| ends_alike(length, next));
            match lookup.repetition {
                Some(found) => {
                    assert!(ends_alike(found.matched, found.next));
                    assert!(found.matched >= if followed(LONG) { LONG } else { SHORT });
                }
                None => assert!(!followed(SHORT)),
            }
        }
    }
}
