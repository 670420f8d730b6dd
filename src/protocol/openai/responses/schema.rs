//! The Responses API as JSON Schema, for the OpenAPI document.

use serde_json::{Value, json};

use super::fields;

/// Schemas by the name they have under `#/components/schemas`.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("ResponseRequest", request()),
        ("ResponseItem", item()),
        ("Response", response()),
        ("ResponseUsage", usage()),
        ("ResponseEvent", event()),
        ("ResponseItemList", item_list()),
        ("ResponseDeleted", deleted()),
        ("ResponseInputTokens", input_tokens()),
    ]
}

/// A request that works with any model, for documentation.
pub fn example() -> Value {
    json!({"model": "auto", "input": "Name three rivers.", "max_output_tokens": 100})
}

fn request() -> Value {
    let mut schema = fields::schema();
    let fields = &mut schema["properties"];
    let item = json!({"$ref": "#/components/schemas/ResponseItem"});
    fields["input"] = json!({"anyOf": [{"type": "string"}, {"type": "array", "items": item}]});
    fields["include"]["items"] = json!({"type": "string"});
    fields["tools"]["items"] = json!({"type": "object", "required": ["type"]});
    fields["context_management"]["items"] = json!({"type": "object"});
    fields["stop_token_ids"]["items"] = json!({"type": "integer", "minimum": 0});
    schema
}

/// An item of the input or of the output.
fn item() -> Value {
    let parts = json!({"type": "array", "items": {"type": "object"}});
    json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": [
                "message", "function_call", "function_call_output", "custom_tool_call",
                "custom_tool_call_output", "shell_call", "shell_call_output", "local_shell_call",
                "local_shell_call_output", "apply_patch_call", "apply_patch_call_output",
                "reasoning", "item_reference",
            ]},
            "id": {"type": "string"},
            "status": {"type": "string", "enum": ["in_progress", "completed", "incomplete"]},
            "role": {"type": "string", "enum": ["user", "assistant", "system", "developer"]},
            "content": {"anyOf": [{"type": "string"}, parts]},
            "summary": parts,
            "encrypted_content": {"type": "string"},
            "call_id": {"type": "string"},
            "name": {"type": "string"},
            "namespace": {"type": "string"},
            "arguments": {"type": "string"},
            "input": {"type": "string"},
            "action": {"type": "object"},
            "operation": {"type": "object"},
            "output": {"anyOf": [{"type": "string"}, parts]},
        },
    })
}

fn response() -> Value {
    let optional = |kind: &str| json!({"type": [kind, "null"]});
    let mut schema = json!({
        "type": "object",
        "required": ["id", "object", "created_at", "status", "model", "output", "error", "incomplete_details", "usage"],
        "properties": {
            "id": {"type": "string"},
            "object": {"type": "string", "enum": ["response"]},
            "created_at": {"type": "integer"},
            "completed_at": optional("integer"),
            "status": {"type": "string", "enum": [
                "queued", "in_progress", "completed", "incomplete", "failed", "cancelled",
            ]},
            "model": {"type": "string"},
            "output": {"type": "array", "items": {"$ref": "#/components/schemas/ResponseItem"}},
            "error": optional("object"),
            "incomplete_details": optional("object"),
            "usage": {"anyOf": [{"$ref": "#/components/schemas/ResponseUsage"}, {"type": "null"}]},
            "grid": {"$ref": "#/components/schemas/Generation"},
        },
    });
    for (name, repeated) in fields::repeated() {
        schema["properties"][name] = repeated;
    }
    schema
}

fn usage() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "required": ["input_tokens", "output_tokens", "total_tokens"],
        "properties": {
            "input_tokens": count,
            "input_tokens_details": {"type": "object", "properties": {"cached_tokens": count}},
            "output_tokens": count,
            "output_tokens_details": {"type": "object", "properties": {"reasoning_tokens": count}},
            "total_tokens": count,
        },
    })
}

fn event() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    let text = json!({"type": "string"});
    json!({
        "type": "object",
        "required": ["type", "sequence_number"],
        "properties": {
            "type": {"type": "string"},
            "sequence_number": count,
            "response": {"$ref": "#/components/schemas/Response"},
            "item": {"$ref": "#/components/schemas/ResponseItem"},
            "item_id": {"type": "string"},
            "output_index": count,
            "content_index": count,
            "summary_index": count,
            "part": {"type": "object"},
            "delta": text,
            "logprobs": {"type": "array", "items": {"type": "object"}},
            "obfuscation": text,
            "text": text,
            "refusal": text,
            "name": text,
            "arguments": text,
            "input": text,
            "code": text,
            "message": text,
            "param": {"type": ["string", "null"]},
            "error": {"type": "object"},
        },
    })
}

fn item_list() -> Value {
    let id = json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": ["object", "data", "has_more", "first_id", "last_id"],
        "properties": {
            "object": {"type": "string", "enum": ["list"]},
            "data": {"type": "array", "items": {"$ref": "#/components/schemas/ResponseItem"}},
            "has_more": {"type": "boolean"},
            "first_id": id,
            "last_id": id,
        },
    })
}

fn deleted() -> Value {
    json!({
        "type": "object",
        "required": ["id", "object", "deleted"],
        "properties": {
            "id": {"type": "string"},
            "object": {"type": "string", "enum": ["response.deleted"]},
            "deleted": {"type": "boolean"},
        },
    })
}

fn input_tokens() -> Value {
    json!({
        "type": "object",
        "required": ["object", "input_tokens"],
        "properties": {
            "object": {"type": "string", "enum": ["response.input_tokens"]},
            "input_tokens": {"type": "integer", "minimum": 0},
        },
    })
}
