//! The Messages API as JSON Schema, for the OpenAPI document.

use serde_json::{Value, json};

use crate::openai::field;

use super::error::error_schema;
use super::fields::FIELDS;

/// Schemas by the name they have under `#/components/schemas`.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("MessageRequest", request()),
        ("MessageInput", input()),
        ("Message", message()),
        ("MessageBlock", block()),
        ("MessageUsage", usage()),
        ("MessageEvent", event()),
        ("TokenCount", token_count()),
        ("MessageModel", model()),
        ("MessageModelList", model_list()),
    ]
}

/// A request that works with any model, for documentation.
pub fn example() -> Value {
    json!({
        "model": "auto",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Name three rivers."}],
    })
}

fn request() -> Value {
    let mut schema = field::schema(FIELDS, &["model", "messages"]);
    let fields = &mut schema["properties"];
    fields["messages"]["items"] = json!({"$ref": "#/components/schemas/MessageInput"});
    fields["stop_sequences"]["items"] = json!({"type": "string"});
    fields["tools"]["items"] = json!({"type": "object", "required": ["name", "input_schema"]});
    fields["mcp_servers"]["items"] = json!({"type": "object"});
    schema
}

fn input() -> Value {
    let block =
        json!({"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}});
    json!({
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"type": "string", "enum": ["user", "assistant", "system"]},
            "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": block}]},
        },
    })
}

fn message() -> Value {
    json!({
        "type": "object",
        "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
        "properties": {
            "id": {"type": "string"},
            "type": {"type": "string", "enum": ["message"]},
            "role": {"type": "string", "enum": ["assistant"]},
            "model": {"type": "string"},
            "content": {"type": "array", "items": {"$ref": "#/components/schemas/MessageBlock"}},
            "stop_reason": {
                "type": ["string", "null"],
                "enum": [
                    "end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal",
                    "model_context_window_exceeded", null,
                ],
            },
            "stop_sequence": {"type": ["string", "null"]},
            "stop_details": {"type": ["object", "null"]},
            "usage": {"$ref": "#/components/schemas/MessageUsage"},
            "grid": {"$ref": "#/components/schemas/Generation"},
        },
    })
}

fn block() -> Value {
    json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": ["text", "thinking", "tool_use"]},
            "text": {"type": "string"},
            "thinking": {"type": "string"},
            "signature": {"type": "string", "description": "Proves that this service wrote the thought."},
            "id": {"type": "string"},
            "name": {"type": "string"},
            "input": {"type": "object"},
        },
    })
}

fn usage() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "required": ["input_tokens", "output_tokens"],
        "properties": {
            "input_tokens": count,
            "cache_creation_input_tokens": count,
            "cache_read_input_tokens": count,
            "output_tokens": count,
            "output_tokens_details": {"type": "object", "properties": {"thinking_tokens": count}},
            "service_tier": {"type": "string", "enum": ["standard"]},
        },
    })
}

fn event() -> Value {
    let mut schema = message_event();
    let failure = error_schema();
    for name in ["error", "detail", "request_id"] {
        schema["properties"][name] = failure["properties"][name].clone();
    }
    schema
}

fn message_event() -> Value {
    json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": [
                "message_start", "ping", "content_block_start", "content_block_delta", "content_block_stop",
                "message_delta", "message_stop", "error",
            ]},
            "index": {"type": "integer", "minimum": 0},
            "message": {"$ref": "#/components/schemas/Message"},
            "content_block": {"$ref": "#/components/schemas/MessageBlock"},
            "delta": {"type": "object"},
            "usage": {"$ref": "#/components/schemas/MessageUsage"},
            "grid": {"$ref": "#/components/schemas/Generation"},
        },
    })
}

fn token_count() -> Value {
    json!({
        "type": "object",
        "required": ["input_tokens"],
        "properties": {"input_tokens": {"type": "integer", "minimum": 0}},
    })
}

/// A model, for clients that send `anthropic-version`.
fn model() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "required": ["type", "id", "display_name", "created_at", "lifecycle", "capabilities"],
        "properties": {
            "type": {"type": "string", "enum": ["model"]},
            "id": {"type": "string"},
            "display_name": {"type": "string"},
            "created_at": {"type": "string"},
            "max_input_tokens": count,
            "max_tokens": count,
            "lifecycle": {"type": "string", "enum": ["active"]},
            "deprecated_at": {"type": "null"},
            "retires_at": {"type": "null"},
            "line": {"type": "null"},
            "capabilities": {
                "type": "object",
                "description": "Each capability has \"supported\".",
                "additionalProperties": {"type": "object", "required": ["supported"]},
            },
        },
    })
}

fn model_list() -> Value {
    let id = json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": ["data", "has_more", "first_id", "last_id"],
        "properties": {
            "data": {"type": "array", "items": {"$ref": "#/components/schemas/MessageModel"}},
            "has_more": {"type": "boolean"},
            "first_id": id,
            "last_id": id,
        },
    })
}
