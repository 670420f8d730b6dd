//! Descriptions as JSON Schema, for the OpenAPI document.

use serde_json::{Value, json};

use super::FIELDS;
use crate::openai::field;

/// Schemas by the name they have under `#/components/schemas`.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("DescribeRequest", field::schema(FIELDS, &["image"])),
        ("ImageDescription", reply()),
    ]
}

fn reply() -> Value {
    json!({
        "type": "object",
        "required": ["id", "object", "created", "model", "text", "finish_reason", "usage"],
        "properties": {
            "id": {"type": "string"},
            "object": {"type": "string", "enum": ["image.description"]},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "text": {"type": "string"},
            "finish_reason": {"type": ["string", "null"]},
            "usage": {"$ref": "#/components/schemas/Usage"},
            "grid": {"$ref": "#/components/schemas/Generation"},
        },
    })
}
