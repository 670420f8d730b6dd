//! The routes as JSON Schema.

use serde_json::{Value, json};

use super::fields::FIELDS;
use crate::openai::field;

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("SpeechRequest", field::schema(FIELDS, &["model", "input"])),
        ("SpeechEvent", event()),
        ("CaptionedSpeech", captioned()),
        ("Voices", voices()),
    ]
}

/// An example of a request.
pub fn example() -> Value {
    json!({"model": "kokoro-82m", "input": "Good morning.", "voice": "af_heart", "response_format": "wav"})
}

fn event() -> Value {
    let count = || json!({"type": "integer"});
    json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": ["speech.audio.delta", "speech.audio.done"]},
            "audio": {"type": "string", "description": "The next bytes of the file in base64."},
            "timestamps": timestamps(),
            "usage": {
                "type": "object",
                "required": ["input_tokens", "output_tokens", "total_tokens"],
                "properties": {"input_tokens": count(), "output_tokens": count(), "total_tokens": count()},
            },
        },
    })
}

/// The words that begin in a part, or all.
fn timestamps() -> Value {
    let seconds =
        || json!({"type": "number", "description": "Seconds from the beginning of the speech."});
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["word", "start_time", "end_time"],
            "properties": {"word": {"type": "string"}, "start_time": seconds(), "end_time": seconds()},
        },
    })
}

fn captioned() -> Value {
    json!({
        "type": "object",
        "required": ["audio", "audio_format", "timestamps"],
        "properties": {
            "audio": {"type": "string", "description": "The file in base64."},
            "audio_format": {"type": "string", "description": "The type of the file, such as audio/mpeg."},
            "timestamps": timestamps(),
        },
    })
}

fn voices() -> Value {
    let texts = || json!({"type": "array", "items": {"type": "string"}});
    let voice = json!({
        "type": "object",
        "required": ["id", "object", "name", "models"],
        "properties": {
            "id": {"type": "string"},
            "object": {"type": "string"},
            "name": {"type": "string"},
            "models": texts(),
        },
    });
    json!({
        "type": "object",
        "required": ["object", "data", "voices"],
        "properties": {
            "object": {"type": "string"},
            "data": {"type": "array", "items": voice},
            "voices": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "name"],
                    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
                },
            },
        },
    })
}
