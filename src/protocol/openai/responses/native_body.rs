//! The body for a public worker that speaks this API: its inference server stores no responses, so the body contains
//! all continued items.

use std::sync::Arc;

use serde_json::Value;

use crate::job::{Formats, NativeBody};

use super::client_tools::ITEM_TYPES;
use super::fields::Context;

/// Fields that are this service's own business, or tell who asks.
const OURS_ALONE: [&str; 17] = [
    "background",
    "client_metadata",
    "include",
    "max_tokens",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "top_logprobs",
    "truncation",
    "user",
];

/// None for a request that only the translation can say: items were dropped, thoughts are sealed, tools take text, or
/// log probabilities are wanted.
pub fn native(mut body: Value, context: &Context) -> Option<NativeBody> {
    let fields = body.as_object_mut()?;
    let has_custom_tools = |tools: &Value| {
        let mut tools = tools.as_array().into_iter().flatten();
        tools.any(|tool| tool["type"] != "function")
    };
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    if has("include") || has("top_logprobs") {
        return None;
    }
    if context.dropped > 0 || fields.get("tools").is_some_and(has_custom_tools) {
        return None;
    }
    fields.retain(|name, value| !OURS_ALONE.contains(&name.as_str()) && !value.is_null());
    fields.insert("store".to_owned(), false.into());
    let input = fields.remove("input").unwrap_or_default();
    fields.insert("input".to_owned(), whole_input(input, context)?);
    Some(NativeBody {
        format: Formats::OPENAI_RESPONSES,
        body: Arc::new(body),
    })
}

fn whole_input(input: Value, context: &Context) -> Option<Value> {
    let own = match input {
        Value::Array(items) => items,
        input if context.history.is_empty() => return Some(input),
        Value::String(text) => vec![serde_json::json!({"role": "user", "content": text})],
        _ => Vec::new(),
    };
    let known = |item: Value| {
        let id = item["id"].as_str().unwrap_or_default();
        match context.referenced.get(id) {
            Some(known) if item["type"] == "item_reference" => known.clone(),
            _ => item,
        }
    };
    let history = context.history.iter().cloned();
    let items: Vec<Value> = history.chain(own.into_iter().map(known)).collect();
    let is_ours = |item: &Value| {
        let kind = item["type"].as_str().unwrap_or_default();
        item["encrypted_content"].is_string()
            || item["namespace"].is_string()
            || kind.starts_with("custom_tool_call")
            || ITEM_TYPES.contains(&kind)
    };
    (!items.iter().any(is_ours)).then_some(Value::Array(items))
}
