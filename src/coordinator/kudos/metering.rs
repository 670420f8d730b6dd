//! Tokens to pay and to bill: the worker's count, limited by the coordinator's.

use crate::dispatch::{Facts, Outcome};
use crate::metering::Counted;
use muster_protocol::job::Usage;

/// Tokens of the prompt and of the output in the price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metered {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
}

impl Metered {
    pub fn of(facts: &Facts, counted: Counted) -> Self {
        let usage = counted.usage(said(facts));
        let cap = facts.job.limits.output_tokens.unwrap_or(u32::MAX);
        Self {
            prompt_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens.min(cap),
        }
    }
}

/// The worker's token count: of the whole output, or its last report before it was stopped.
pub fn said(facts: &Facts) -> Option<Usage> {
    match &facts.outcome {
        Outcome::Delivered { usage, .. } => Some(*usage),
        _ => facts.usage,
    }
}
