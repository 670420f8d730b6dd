//! Counts and log probabilities in OpenAI's words.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::job::{Channel, Event, TokenLogprob, Usage};

/// The usage of all choices, which share a prompt.
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

    pub fn usage(self) -> Usage {
        self.0
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

/// A choice's usage so far, as far as its worker reports it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningUsage(Usage);

impl RunningUsage {
    pub fn note(&mut self, event: &Event) {
        let so_far = &mut self.0;
        let drawn = match event {
            Event::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                so_far.prompt_tokens = *prompt_tokens;
                so_far.cached_tokens = *cached_tokens;
                return;
            }
            Event::Usage(usage) => return self.be(*usage),
            Event::Token(token) => token.ids.len(),
            Event::ToolCall(piece) => piece.ids.len(),
            _ => return,
        };
        let drawn = u32::try_from(drawn).unwrap_or(u32::MAX);
        so_far.completion_tokens = so_far.completion_tokens.saturating_add(drawn);
        let thought = matches!(event, Event::Token(token) if token.channel == Channel::Reasoning);
        if thought {
            so_far.reasoning_tokens = so_far.reasoning_tokens.saturating_add(drawn);
        }
    }

    /// Sets the worker's own count.
    pub fn be(&mut self, usage: Usage) {
        self.0 = usage;
    }

    pub fn body(self) -> Value {
        Total(self.0).body()
    }
}

pub fn logprob(token: &TokenLogprob) -> Value {
    let top: Vec<_> = token
        .top
        .iter()
        .map(|(bytes, logprob)| entry(bytes, *logprob))
        .collect();
    let mut entry = entry(&token.bytes, token.logprob);
    entry["top_logprobs"] = Value::Array(top);
    entry
}

fn entry(bytes: &[u8], logprob: f32) -> Value {
    // As OpenAI writes an impossible token: JSON has no infinity.
    const LEAST: f64 = -9999.0;
    let logprob = match logprob.is_nan() {
        true => LEAST,
        false => f64::from(logprob).clamp(LEAST, 0.0),
    };
    // Only as many digits as an f32 has.
    let logprob = (logprob * 1e6).round() / 1e6;
    json!({"token": shown(bytes), "logprob": logprob, "bytes": bytes})
}

/// A token as text; bytes that are no character are written `\\x9f`, as OpenAI does.
pub fn shown(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::logprob;
    use crate::job::TokenLogprob;

    #[test]
    fn a_part_of_a_character_has_its_real_bytes() {
        let part = TokenLogprob {
            bytes: b"a\xf0\x9f".to_vec(),
            logprob: -0.5,
            top: vec![("é".into(), -1.0)],
        };
        let alternative = json!({"token": "é", "logprob": -1.0, "bytes": [0xc3, 0xa9]});
        assert_eq!(
            logprob(&part),
            json!({"token": "a\\xf0\\x9f", "logprob": -0.5, "bytes": [0x61, 0xf0, 0x9f],
                "top_logprobs": [alternative]})
        );
    }
}
