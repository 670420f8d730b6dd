//! Token counts as backends report them: in two spellings or both, with or without details, now and then as null.

use serde::Deserialize;
use serde_json::Value;

use super::object::Object;
use crate::protocol::job::Usage;

#[derive(Deserialize)]
pub(super) struct UsageJson {
    #[serde(default)]
    prompt_tokens: Value,
    #[serde(default)]
    input_tokens: Value,
    #[serde(default)]
    completion_tokens: Value,
    #[serde(default)]
    output_tokens: Value,
    #[serde(default)]
    prompt_tokens_details: Value,
    #[serde(default)]
    completion_tokens_details: Value,
}

impl From<UsageJson> for Usage {
    fn from(json: UsageJson) -> Self {
        Self {
            prompt_tokens: either(&json.prompt_tokens, &json.input_tokens),
            cached_tokens: count(&json.prompt_tokens_details["cached_tokens"]),
            completion_tokens: either(&json.completion_tokens, &json.output_tokens),
            reasoning_tokens: count(&json.completion_tokens_details["reasoning_tokens"]),
        }
    }
}

/// Some backends say it in both spellings.
fn either(one: &Value, other: &Value) -> u32 {
    match one.is_null() {
        true => count(other),
        false => count(one),
    }
}

/// What is no count is none.
fn count(value: &Value) -> u32 {
    let count = value.as_u64().unwrap_or(0);
    u32::try_from(count).unwrap_or(u32::MAX)
}

pub(super) fn write_usage(usage: &Usage, object: &mut Object<'_>) {
    let total = u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens);
    object.number("prompt_tokens", usage.prompt_tokens);
    object.number("completion_tokens", usage.completion_tokens);
    object.number("total_tokens", total);
    if usage.cached_tokens > 0 {
        object.object("prompt_tokens_details", |details| {
            details.number("cached_tokens", usage.cached_tokens);
        });
    }
    if usage.reasoning_tokens > 0 {
        object.object("completion_tokens_details", |details| {
            details.number("reasoning_tokens", usage.reasoning_tokens);
        });
    }
}
