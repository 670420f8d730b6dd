//! The sampler: chooses the next token from logits.
//!
//! In this order: repetition, presence and frequency penalties, logit bias, the mask of a grammar, banned tokens; then
//! at temperature 0 the best token (the lowest id among equals), else smoothing, temperature, top_k, top_a, top_p,
//! min_p relative to the best, tfs, typical, and one draw; each filters the result of the one before. Dynamic
//! temperature (`dynatemp_range`) uses the entropy of the candidates after top_k; a resulting temperature of 0 takes
//! the best token. Log probabilities are those of the model, before any of these steps.
//!
//! Only the settings in `shaping` sort the whole vocabulary.

mod bans;
mod candidates;
mod draw;
mod nucleus;
mod numbers;
mod penalties;
mod settings;
mod shaping;

pub use bans::Bans;
pub use draw::uniform;
pub use settings::{MAX_LOGPROBS, Settings};

use super::TokenInfo;
use candidates::{Candidate, best_of};
use muster_kernels::cpu::exp;
use nucleus::Weighing;
use penalties::Penalties;
use shaping::Shaping;

/// Chooses the tokens of one sequence.
#[derive(Debug)]
pub struct Sampler {
    settings: Settings,
    penalties: Option<Penalties>,
    bans: Bans,
    choice: u32,
    logprobs: Option<usize>,
}

/// Working memory of [`Sampler::sample`], shared by all sequences of a thread.
#[derive(Debug, Default)]
pub struct Scratch {
    untouched: Vec<f32>,
    weights: Vec<f32>,
    candidates: Vec<Candidate>,
    open: Vec<Candidate>,
}

/// Tokens that a grammar allows, one bit each. Tokens past the end are not allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
}

/// The network returned nothing a token could be chosen from. Ends this sequence and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLogits {
    #[error("the model's logits contain NaN")]
    NotANumber,
    #[error("the model's logits contain infinity")]
    Infinite,
    #[error("no token is allowed")]
    NothingAllowed,
}

impl Sampler {
    /// For choice `choice` of a request, after `prompt` and `generated`.
    pub fn new(
        settings: Settings,
        choice: u32,
        logprobs: Option<usize>,
        prompt: &[u32],
        generated: &[u32],
    ) -> Self {
        let penalties = Penalties::after(&settings, prompt, generated);
        Self {
            settings,
            penalties,
            bans: Bans::default(),
            choice,
            logprobs,
        }
    }

    /// Bans some tokens, permanently or up to a minimum length.
    #[must_use]
    pub fn with_bans(self, bans: Bans) -> Self {
        Self { bans, ..self }
    }

    /// Whether the token is simply the best one, so that sampling is a single pass.
    pub fn is_plain_greedy(&self) -> bool {
        self.settings.is_greedy()
            && self.penalties.is_none()
            && self.settings.logit_bias.is_empty()
            && self.bans.is_empty()
            && self.logprobs.is_none()
    }

    /// Chooses the token with number `index` of this choice. Changes `logits`.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        mask: Option<&TokenMask>,
        index: usize,
        scratch: &mut Scratch,
    ) -> Result<TokenInfo, BadLogits> {
        if self.logprobs.is_some() {
            scratch.untouched.clear();
            scratch.untouched.extend_from_slice(logits);
        }
        self.adjust(logits, mask);
        self.bans.apply(logits, index);
        let (best, best_logit) = numbers::best(logits)?;
        let id = if self.settings.is_greedy() {
            best
        } else {
            let random = uniform(self.settings.seed, self.choice, index as u64);
            self.draw(logits, best_logit, random, scratch)
        };
        self.count(id);
        self.report(id, scratch)
    }

    /// The log probability of a given token after these logits.
    pub fn score(
        id: u32,
        logits: &[f32],
        alternatives: usize,
        scratch: &mut Scratch,
    ) -> Result<TokenInfo, BadLogits> {
        let Scratch {
            weights,
            candidates,
            ..
        } = scratch;
        logprobs(id, logits, alternatives, weights, candidates)
    }

    /// Counts a token that was not sampled, for penalties.
    pub fn count(&mut self, id: u32) {
        if let Some(penalties) = &mut self.penalties {
            penalties.count(id);
        }
    }

    pub fn wants_logprobs(&self) -> bool {
        self.logprobs.is_some()
    }

    fn adjust(&self, logits: &mut [f32], mask: Option<&TokenMask>) {
        if let Some(penalties) = &self.penalties {
            penalties.apply(logits);
        }
        for &(id, bias) in &self.settings.logit_bias {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit += bias;
            }
        }
        if let Some(mask) = mask {
            mask.apply(logits);
        }
    }

    fn draw(&self, logits: &[f32], best: f32, random: f64, scratch: &mut Scratch) -> u32 {
        if let Some(shaping) = &self.settings.shaping {
            self.shape(shaping, logits, best, scratch);
            candidates::at(&mut scratch.candidates, random)
        } else if self.settings.top_k < logits.len() {
            self.draw_of_few(logits, best, random, scratch)
        } else {
            self.draw_of_all(logits, best, random, scratch)
        }
    }

    /// Filters the candidates to sample from.
    fn shape(&self, shaping: &Shaping, logits: &[f32], best: f32, scratch: &mut Scratch) {
        let Settings { top_p, min_p, .. } = self.settings;
        let Scratch {
            candidates, open, ..
        } = scratch;
        shaping.weigh(logits, best, &self.settings, candidates);
        shaping.keep_likely(candidates);
        if top_p < 1.0 {
            nucleus::keep(candidates, f64::from(top_p), open);
        }
        candidates.retain(|candidate| candidate.weight >= min_p);
        shaping.keep_head(candidates);
        shaping.keep_typical(best, candidates);
    }

    fn draw_of_few(&self, logits: &[f32], best: f32, random: f64, scratch: &mut Scratch) -> u32 {
        let Settings {
            temperature,
            top_k,
            top_p,
            min_p,
            ..
        } = self.settings;
        let Scratch {
            candidates, open, ..
        } = scratch;
        best_of(logits, top_k, candidates);
        let scale = temperature.recip();
        for candidate in &mut *candidates {
            candidate.weight = exp((candidate.logit - best) * scale);
        }
        if top_p < 1.0 {
            nucleus::keep(candidates, f64::from(top_p), open);
        }
        candidates.retain(|candidate| candidate.weight >= min_p);
        candidates::at(candidates, random)
    }

    fn draw_of_all(&self, logits: &[f32], best: f32, random: f64, scratch: &mut Scratch) -> u32 {
        let Settings {
            temperature,
            top_p,
            min_p,
            ..
        } = self.settings;
        let Scratch { weights, open, .. } = scratch;
        let scale = temperature.recip();
        if top_p >= 1.0 {
            return numbers::weigh(logits, best, scale, min_p, weights).at(weights, random);
        }
        let total = numbers::weigh(logits, best, scale, 0.0, weights).total();
        let weighing = Weighing { best, scale, total };
        let least = nucleus::cut(logits, weights, weighing, f64::from(top_p), open);
        numbers::drop_below(least, min_p, logits, weights).at(weights, random)
    }

    fn report(&self, id: u32, scratch: &mut Scratch) -> Result<TokenInfo, BadLogits> {
        let Some(alternatives) = self.logprobs else {
            return Ok(TokenInfo {
                id,
                logprob: None,
                top: Vec::new(),
            });
        };
        let Scratch {
            untouched,
            weights,
            candidates,
            ..
        } = scratch;
        logprobs(id, untouched, alternatives, weights, candidates)
    }
}

fn logprobs(
    id: u32,
    logits: &[f32],
    alternatives: usize,
    weights: &mut Vec<f32>,
    candidates: &mut Vec<Candidate>,
) -> Result<TokenInfo, BadLogits> {
    let (_, best) = numbers::best(logits)?;
    let total = numbers::weigh(logits, best, 1.0, 0.0, weights).total();
    let logprob = |logit: f32| (f64::from(logit) - f64::from(best) - total.ln()) as f32;
    best_of(logits, alternatives, candidates);
    candidates.sort_unstable_by(Candidate::rank);
    Ok(TokenInfo {
        id,
        logprob: logits.get(id as usize).map(|&logit| logprob(logit)),
        top: candidates
            .iter()
            .map(|c| (c.id, logprob(c.logit)))
            .collect(),
    })
}

impl TokenMask {
    pub fn allowing(ids: impl IntoIterator<Item = u32>) -> Self {
        let mut words = Vec::new();
        for id in ids {
            let word = id as usize / 32;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= 1_u32 << (id % 32);
        }
        Self { words }
    }

    /// Copies these words; the lowest bit of the first is token 0.
    pub fn copy_words(&mut self, words: &[u32]) {
        self.words.clear();
        self.words.extend_from_slice(words);
    }

    pub fn allows(&self, id: u32) -> bool {
        let word = self.words.get(id as usize / 32);
        word.is_some_and(|word| word >> (id % 32) & 1 == 1)
    }

    pub fn set(&mut self, id: u32, is_allowed: bool) {
        if let Some(word) = self.words.get_mut(id as usize / 32) {
            let bit = 1 << (id % 32);
            *word = if is_allowed {
                *word | bit
            } else {
                *word & !bit
            };
        }
    }

    fn apply(&self, logits: &mut [f32]) {
        for (word, logits) in logits.chunks_mut(32).enumerate() {
            let bits = self.words.get(word).copied().unwrap_or(0);
            // Most words are all or nothing.
            if bits == u32::MAX {
                continue;
            }
            if bits == 0 {
                logits.fill(f32::NEG_INFINITY);
                continue;
            }
            for (bit, logit) in logits.iter_mut().enumerate() {
                if bits >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
