//! Completions as JSON Schema, for the OpenAPI document.

use serde_json::{Value, json};

use crate::openai::chat::field_schemas;
use crate::openai::field;

use super::fields::{FIELDS, SHARED};

/// Schemas by the name they have under `#/components/schemas`.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("CompletionRequest", request()),
        ("Completion", completion()),
        ("CompletionChoice", choice()),
        ("CompletionLogprobs", logprobs()),
    ]
}

fn request() -> Value {
    let mut schema = field::schema(FIELDS, &["model", "prompt"]);
    let ids = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
    for (name, field) in field_schemas(SHARED) {
        schema["properties"][name] = field;
    }
    schema["properties"]["prompt"] = json!({"anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        ids,
        {"type": "array", "items": ids},
    ]});
    schema["properties"]["stop_token_ids"]["items"] = json!({"type": "integer", "minimum": 0});
    schema
}

/// A reply, and a chunk of a stream.
fn completion() -> Value {
    json!({
        "type": "object",
        "required": ["id", "object", "created", "model", "choices"],
        "properties": {
            "id": {"type": "string"},
            "object": {"type": "string", "enum": ["text_completion"]},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "choices": {"type": "array", "items": {"$ref": "#/components/schemas/CompletionChoice"}},
            "usage": {"$ref": "#/components/schemas/Usage"},
            "grid": {"$ref": "#/components/schemas/Generation"},
        },
    })
}

fn choice() -> Value {
    json!({
        "type": "object",
        "required": ["text", "index", "logprobs", "finish_reason"],
        "properties": {
            "text": {"type": "string"},
            "index": {"type": "integer", "minimum": 0},
            "logprobs": {"anyOf": [{"$ref": "#/components/schemas/CompletionLogprobs"}, {"type": "null"}]},
            "finish_reason": {"type": ["string", "null"]},
        },
    })
}

fn logprobs() -> Value {
    let list = |items: Value| json!({"type": "array", "items": items});
    json!({
        "type": "object",
        "required": ["tokens", "token_logprobs", "top_logprobs", "text_offset"],
        "properties": {
            "tokens": list(json!({"type": "string"})),
            "token_logprobs": list(json!({"type": ["number", "null"]})),
            "top_logprobs": list(json!({"type": ["object", "null"]})),
            "text_offset": list(json!({"type": "integer", "minimum": 0})),
        },
    })
}
