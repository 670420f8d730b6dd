//! Counts and log probabilities in OpenAI's words.

use serde_json::{Value, json};

use crate::protocol::job::{TokenLogprob, Usage};

/// Of all choices: their prompt is one and the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total(Usage);

impl Total {
    pub fn add(&mut self, usage: Usage) {
        let all = &mut self.0;
        all.prompt_tokens = all.prompt_tokens.max(usage.prompt_tokens);
        all.cached_tokens = all.cached_tokens.max(usage.cached_tokens);
        all.completion_tokens = all
            .completion_tokens
            .saturating_add(usage.completion_tokens);
        all.reasoning_tokens = all.reasoning_tokens.saturating_add(usage.reasoning_tokens);
    }

    pub fn body(self) -> Value {
        let Usage {
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            reasoning_tokens,
        } = self.0;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": u64::from(prompt_tokens) + u64::from(completion_tokens),
            "prompt_tokens_details": {"cached_tokens": cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        })
    }
}

pub fn logprob(token: &TokenLogprob) -> Value {
    let top: Vec<_> = token
        .top
        .iter()
        .map(|(text, logprob)| entry(text, *logprob))
        .collect();
    let mut entry = entry(&token.text, token.logprob);
    entry["top_logprobs"] = Value::Array(top);
    entry
}

fn entry(text: &str, logprob: f32) -> Value {
    // As OpenAI does for what is as good as impossible: JSON knows no infinity.
    const LEAST: f64 = -9999.0;
    let logprob = match logprob.is_nan() {
        true => LEAST,
        false => f64::from(logprob).clamp(LEAST, 0.0),
    };
    // As many digits as it has: the others would be those of a double.
    let logprob = (logprob * 1e6).round() / 1e6;
    json!({"token": text, "logprob": logprob, "bytes": text.as_bytes()})
}
