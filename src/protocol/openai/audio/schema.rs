//! The route as JSON Schema.

use serde_json::{Value, json};

use super::fields::FIELDS;
use crate::openai::field;

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("AudioRequest", field::schema(FIELDS, &["prompt"])),
        ("Audio", audio()),
    ]
}

/// An example of a request.
pub fn example() -> Value {
    json!({"prompt": "a calm piano", "seconds": 20, "response_format": "flac"})
}

fn audio() -> Value {
    let sound = json!({
        "type": "object",
        "required": ["url", "seed"],
        "properties": {
            "url": {"type": "string", "description": "Signed link."},
            "seed": {"type": ["integer", "null"]},
        },
    });
    json!({
        "type": "object",
        "required": ["created", "data", "grid"],
        "properties": {
            "created": {"type": "integer"},
            "data": {"type": "array", "items": sound},
            "grid": {
                "type": "object",
                "required": ["job_id", "worker", "model", "gen_time"],
                "properties": {
                    "job_id": {"type": "string"},
                    "worker": {"type": ["string", "null"]},
                    "model": {"type": "string"},
                    "gen_time": {"type": "number", "description": "Seconds without the queue."},
                },
            },
        },
    })
}
