//! Tokens of several prompts together.

use serde_json::Value;

use crate::job::Usage;
use crate::openai::chat::{ChatRequest, Total};

/// Usage of each prompt, which its choices share.
#[derive(Debug)]
pub struct PromptUsage {
    each: u32,
    prompts: Vec<Total>,
}

impl PromptUsage {
    pub fn new(request: &ChatRequest) -> Self {
        let count = request.prompts.len().max(1);
        let each = request.choices / u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            each: each.max(1),
            prompts: vec![Total::default(); count],
        }
    }

    pub fn add(&mut self, choice: u32, usage: Usage) {
        if let Some(total) = self.prompts.get_mut((choice / self.each) as usize) {
            total.add(usage);
        }
    }

    pub fn body(&self) -> Value {
        let mut all = Usage::default();
        for Usage {
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            reasoning_tokens,
        } in self.prompts.iter().map(|total| total.usage())
        {
            all.prompt_tokens = all.prompt_tokens.saturating_add(prompt_tokens);
            all.cached_tokens = all.cached_tokens.saturating_add(cached_tokens);
            all.completion_tokens = all.completion_tokens.saturating_add(completion_tokens);
            all.reasoning_tokens = all.reasoning_tokens.saturating_add(reasoning_tokens);
        }
        let mut total = Total::default();
        total.add(all);
        total.body()
    }
}
