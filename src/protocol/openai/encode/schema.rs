//! The routes as JSON Schema.

use serde_json::{Value, json};

use super::tokens::{DETOKENIZE, TOKENIZE};
use crate::openai::field;

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("TokenizeRequest", field::schema(TOKENIZE, &["model"])),
        ("Tokens", tokens()),
        (
            "DetokenizeRequest",
            field::schema(DETOKENIZE, &["model", "tokens"]),
        ),
        ("TokenText", token_text()),
    ]
}

fn tokens() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "required": ["count", "max_model_len", "tokens"],
        "properties": {
            "count": count,
            "max_model_len": {"type": "integer", "minimum": 0, "description": "Tokens of context of the model."},
            "tokens": {"type": "array", "items": count},
            "token_strs": {"type": "array", "items": {"type": "string"}},
        },
    })
}

fn token_text() -> Value {
    json!({
        "type": "object",
        "required": ["prompt"],
        "properties": {"prompt": {"type": "string"}},
    })
}
