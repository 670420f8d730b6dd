//! The route as JSON Schema.

use serde_json::{Value, json};

use super::fields::FIELDS;
use crate::openai::{field, media};

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("AudioRequest", field::schema(FIELDS, &["prompt"])),
        ("Audio", media::reply_schema()),
    ]
}

/// An example of a request.
pub fn example() -> Value {
    json!({"prompt": "a calm piano", "seconds": 20, "response_format": "flac"})
}
