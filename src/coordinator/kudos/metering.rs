//! How many tokens are paid. A worker's word alone is never enough: the coordinator counts once, at the job's
//! end, and the worker's own count is held against that.

use crate::coordinator::dispatch::{Facts, Outcome};
use crate::protocol::job::Usage;

/// What the coordinator counted in the prompt and in what it relayed, with its own tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Whose numbers are to be believed.
    pub counter: Counter,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counter {
    /// Our own worker: its model's tokenizer is exact, up to half as much again as ours says.
    #[default]
    Worker,
    /// A public worker: ours, if the worker does not say less.
    Coordinator,
}

impl Default for Counted {
    /// Nothing was counted: nothing is paid.
    fn default() -> Self {
        Self {
            prompt_tokens: 0,
            output_tokens: 0,
            counter: Counter::Worker,
        }
    }
}

/// Tokens of the prompt and of the output that go into the price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metered {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
}

impl Metered {
    pub fn of(facts: &Facts, counted: Counted) -> Self {
        let said = said(facts);
        let prompt = said.map(|usage| usage.prompt_tokens);
        let output = said.map(|usage| usage.completion_tokens);
        let output = counted.limit(output, counted.output_tokens);
        let cap = facts.job.limits.output_tokens.unwrap_or(u32::MAX);
        Self {
            prompt_tokens: counted.limit(prompt, counted.prompt_tokens),
            output_tokens: output.min(cap),
        }
    }
}

impl Counted {
    /// The worker's number where it is believable, ours where it is not or where there is none.
    fn limit(self, said: Option<u32>, ours: u32) -> u32 {
        let most = match self.counter {
            Counter::Worker => ours.saturating_add(ours / 2).saturating_add(ours % 2),
            Counter::Coordinator => ours,
        };
        said.map_or(ours, |said| said.min(most))
    }
}

/// The worker's count: of the whole output, or the last one it gave before it was stopped.
pub fn said(facts: &Facts) -> Option<Usage> {
    match &facts.outcome {
        Outcome::Delivered { usage, .. } => Some(*usage),
        _ => facts.usage,
    }
}
