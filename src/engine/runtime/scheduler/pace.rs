//! Limits the prompt tokens in a step with decoding sequences, learned from measured steps. Pure: the caller measures.
//!
//! A step with prompts may take [`SLOWDOWN`] times as long as one without, so that no stream pauses noticeably and
//! prefill still gets most of the device's time. Both costs are measured: that of decode steps, repeated periodically
//! during prefill, and that of a prompt token, which grows with the context.

use std::collections::VecDeque;
use std::time::Duration;

use super::Generating;

/// The planned length of a mixed step over that of a step without prompts. Below the 3 that readers are promised,
/// because costs are estimates.
const SLOWDOWN: f64 = 2.5;
/// Samples of steps without prompts that are kept; their median counts.
const SAMPLES: usize = 9;
/// Fewer samples are ignored, unless this many steps in a row added none: with many short requests, no two steps are
/// alike.
const LEAST_SAMPLES: usize = 2;
/// After this many mixed steps, a step without prompts is measured again.
const MIXED_STEPS: usize = 24;
/// Weight of a step that used the limit in full, in the moving cost of a prompt token.
const LEARNING_RATE: f64 = 0.5;
/// Prompt tokens of a step with unknown costs, while other models decode.
const FIRST_TOKENS: usize = 16;

#[derive(Debug)]
pub struct Pace {
    /// The most prompt tokens of any step.
    chunk: usize,
    /// Seconds of the latest steps without prompts, all of sequences like [`generating`](Self::generating).
    undisturbed: VecDeque<f64>,
    generating: Generating,
    /// Steps with prompts since the last one without.
    mixed_steps: usize,
    /// Steps in a row for which no prompt was allowed.
    withheld: usize,
    /// Seconds that one more prompt token adds to a step.
    token_cost: Option<f64>,
    /// The limit of the last step that could read prompts.
    limit: usize,
}

impl Pace {
    pub fn new(chunk: usize) -> Self {
        Self {
            chunk,
            undisturbed: VecDeque::new(),
            generating: Generating::default(),
            mixed_steps: 0,
            withheld: 0,
            token_cost: None,
            limit: chunk,
        }
    }

    /// How long a step without prompts takes, if such steps were measured lately.
    pub fn undisturbed(&self) -> Option<Duration> {
        self.median().map(Duration::from_secs_f64)
    }

    /// The most prompt tokens of the next step. `others` is how long a step of every other model takes that is
    /// generating on this device: their streams wait as well.
    pub fn prompt_limit(&mut self, generating: Generating, others: Duration) -> usize {
        let Some(seconds) = self.prompt_seconds(generating, others.as_secs_f64()) else {
            self.withheld += 1;
            return 0;
        };
        self.withheld = 0;
        let affordable = match self.token_cost {
            Some(cost) => (seconds / cost) as usize,
            None if seconds.is_finite() => FIRST_TOKENS,
            None => self.chunk,
        };
        // The cost of many tokens cannot be predicted from few.
        let known = self.limit.saturating_mul(2).max(FIRST_TOKENS);
        let most = match seconds.is_finite() {
            true => self.chunk.min(known),
            false => self.chunk,
        };
        self.limit = affordable.clamp(1, most.max(1));
        self.limit
    }

    /// How much longer than without prompts the next step may take; nothing if it is to be measured without them.
    fn prompt_seconds(&self, generating: Generating, others: f64) -> Option<f64> {
        let undisturbed = match generating.tokens {
            0 if others == 0.0 => return Some(f64::INFINITY),
            0 => others,
            _ => self.median().filter(|_| self.is_fresh(generating))?,
        };
        Some((SLOWDOWN - 1.0) * undisturbed)
    }

    /// Learns from a step that took `elapsed`.
    pub fn record(&mut self, generating: Generating, prompt_tokens: usize, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        match (generating.tokens, prompt_tokens) {
            (0, 0) => {}
            (_, 0) => self.record_undisturbed(generating, seconds),
            (0, _) => self.record_prompt(prompt_tokens, seconds),
            _ => {
                self.mixed_steps += 1;
                let undisturbed = self.median().unwrap_or_default();
                self.record_prompt(prompt_tokens, (seconds - undisturbed).max(0.0));
            }
        }
    }

    fn record_undisturbed(&mut self, generating: Generating, seconds: f64) {
        if !is_alike(generating, self.generating) {
            self.undisturbed.clear();
            self.generating = generating;
        }
        if self.undisturbed.len() == SAMPLES {
            self.undisturbed.pop_front();
        }
        self.undisturbed.push_back(seconds);
        self.mixed_steps = 0;
    }

    /// A step below its limit, such as the end of a prompt, predicts little about long prompts.
    fn record_prompt(&mut self, tokens: usize, seconds: f64) {
        let measured = seconds / tokens as f64;
        let share = (tokens as f64 / self.limit.max(1) as f64).min(1.0);
        let cost = self.token_cost.get_or_insert(measured);
        *cost += (measured - *cost) * LEARNING_RATE * share;
    }

    fn is_fresh(&self, generating: Generating) -> bool {
        let is_known = self.undisturbed.len() >= LEAST_SAMPLES
            && self.mixed_steps < MIXED_STEPS
            && is_alike(generating, self.generating);
        is_known || self.withheld >= LEAST_SAMPLES
    }

    fn median(&self) -> Option<f64> {
        let mut samples: Vec<f64> = self.undisturbed.iter().copied().collect();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len().saturating_sub(1) / 2).copied()
    }
}

/// Whether steps cost about the same: a quarter more or fewer tokens and context.
fn is_alike(new: Generating, old: Generating) -> bool {
    let is_near = |new: usize, old: usize, slack: usize| new.abs_diff(old) <= old / 4 + slack;
    is_near(new.tokens, old.tokens, 0) && is_near(new.context, old.context, 1024)
}
