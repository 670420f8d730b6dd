//! Models as Anthropic's clients read them. They say who they are by a header.

use axum::http::{HeaderMap, HeaderName};
use serde_json::{Value, json};

const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
/// Models have no date here.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// Whether the request comes from a client of Anthropic's API.
pub fn is_client(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

/// A model of `/v1/models` in Anthropic's shape.
pub fn entry(model: &Value) -> Value {
    json!({
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": EPOCH,
        "max_input_tokens": model["max_context_length"],
        "max_tokens": model["max_context_length"],
    })
}

/// One page with all of them.
pub fn list(models: &[Value]) -> Value {
    let data: Vec<Value> = models.iter().map(entry).collect();
    json!({
        "first_id": data.first().map(|model| &model["id"]),
        "last_id": data.last().map(|model| &model["id"]),
        "has_more": false,
        "data": data,
    })
}
