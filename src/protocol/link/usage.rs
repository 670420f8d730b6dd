//! Token counts as backends report them: in two spellings or both, with or without details, now and then as null.

use serde::Deserialize;

use super::loose::Loose;
use super::object::Object;
use crate::job::Usage;

#[derive(Deserialize)]
pub(super) struct UsageJson {
    #[serde(default)]
    prompt_tokens: Loose<u64>,
    #[serde(default)]
    input_tokens: Loose<u64>,
    #[serde(default)]
    completion_tokens: Loose<u64>,
    #[serde(default)]
    output_tokens: Loose<u64>,
    #[serde(default)]
    prompt_tokens_details: Loose<DetailsJson>,
    #[serde(default)]
    completion_tokens_details: Loose<DetailsJson>,
}

#[derive(Default, Deserialize)]
struct DetailsJson {
    #[serde(default)]
    cached_tokens: Loose<u64>,
    #[serde(default)]
    reasoning_tokens: Loose<u64>,
}

impl From<UsageJson> for Usage {
    fn from(json: UsageJson) -> Self {
        let prompt = json.prompt_tokens_details.0.unwrap_or_default();
        let completion = json.completion_tokens_details.0.unwrap_or_default();
        Self {
            prompt_tokens: either(&json.prompt_tokens, &json.input_tokens),
            cached_tokens: count(&prompt.cached_tokens),
            completion_tokens: either(&json.completion_tokens, &json.output_tokens),
            reasoning_tokens: count(&completion.reasoning_tokens),
        }
    }
}

/// Some backends say it in both spellings.
fn either(one: &Loose<u64>, other: &Loose<u64>) -> u32 {
    match one.0 {
        None => count(other),
        Some(_) => count(one),
    }
}

/// Zero if the value is no count.
fn count(value: &Loose<u64>) -> u32 {
    let count = value.0.unwrap_or(0);
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
