//! How many tokens are paid: the worker's own count, held against the coordinator's.

use crate::dispatch::{Facts, Outcome};
use crate::metering::Counted;
use muster_protocol::job::Usage;

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
        let output = limit(counted.public, output, counted.output_tokens);
        let cap = facts.job.limits.output_tokens.unwrap_or(u32::MAX);
        Self {
            prompt_tokens: limit(counted.public, prompt, counted.prompt_tokens),
            output_tokens: output.min(cap),
        }
    }
}

/// The worker's number where it is believable, ours where it is not or where there is none. Our own workers have
/// the model's tokenizer, and are believed up to half as much again as ours says; public ones are not.
fn limit(public: bool, said: Option<u32>, ours: u32) -> u32 {
    let most = match public {
        true => ours,
        false => ours.saturating_add(ours.div_ceil(2)),
    };
    said.map_or(ours, |said| said.min(most))
}

/// The worker's count: of the whole output, or the last one it gave before it was stopped.
pub fn said(facts: &Facts) -> Option<Usage> {
    match &facts.outcome {
        Outcome::Delivered { usage, .. } => Some(*usage),
        _ => facts.usage,
    }
}
