//! Models in Anthropic's format. A header tells Anthropic's clients from others.

use axum::http::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use muster_protocol::job::Capabilities;

const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
/// Models have no date here.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// Whether the request comes from a client of Anthropic's API.
pub fn is_client(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

/// A model of `/v1/models` in Anthropic's shape.
pub fn entry(model: &Value, can: Capabilities) -> Value {
    json!({
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": EPOCH,
        "max_input_tokens": model["max_context_length"],
        "max_tokens": model["max_context_length"],
        "lifecycle": "active",
        "deprecated_at": null,
        "retires_at": null,
        "line": null,
        "capabilities": capabilities(can),
    })
}

/// What requests to the model may contain. Thinking and effort are passed to every model's chat template.
fn capabilities(can: Capabilities) -> Value {
    let has = |supported: bool| json!({"supported": supported});
    let (yes, no) = (has(true), has(false));
    json!({
        "batch": no,
        "citations": no,
        "code_execution": no,
        "context_management": no,
        "effort": {"supported": true, "low": yes, "medium": yes, "high": yes, "xhigh": yes, "max": yes},
        "image_input": has(can.contains(Capabilities::IMAGE_INPUT)),
        // Pages as images where the model reads them, else as text.
        "pdf_input": yes,
        "server_tools": {"supported": false, "code_execution": no, "web_search": no},
        "structured_outputs": has(can.contains(Capabilities::GRAMMAR)),
        "thinking": {
            "supported": true,
            "types": {"adaptive": yes, "between_tools": no, "disabled": yes, "enabled": yes},
        },
    })
}

/// One page with all models.
pub fn list(models: &[(Value, Capabilities)]) -> Value {
    let entries = models.iter().map(|(model, can)| entry(model, *can));
    let data: Vec<Value> = entries.collect();
    json!({
        "first_id": data.first().map(|model| &model["id"]),
        "last_id": data.last().map(|model| &model["id"]),
        "has_more": false,
        "data": data,
    })
}
