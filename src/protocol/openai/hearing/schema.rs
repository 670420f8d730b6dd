//! The routes as JSON Schema.

use serde_json::{Value, json};

use super::{HearingDoor, fields};

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("TranscriptionForm", fields::schema(HearingDoor::Transcribe)),
        ("TranslationForm", fields::schema(HearingDoor::Translate)),
        ("Transcription", transcription()),
        ("TranscriptionEvent", event()),
    ]
}

fn transcription() -> Value {
    let segment = json!({
        "type": "object",
        "required": ["id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob"],
        "properties": {
            "id": {"type": "integer"},
            "seek": {"type": "integer"},
            "start": {"type": "number", "description": "Seconds from the beginning of the sound."},
            "end": {"type": "number"},
            "text": {"type": "string"},
            "tokens": {"type": "array", "items": {"type": "integer"}},
            "temperature": {"type": "number"},
            "avg_logprob": {"type": "number"},
            "compression_ratio": {"type": "number"},
            "no_speech_prob": {"type": "number"},
        },
    });
    let word = json!({
        "type": "object",
        "required": ["word", "start", "end"],
        "properties": {
            "word": {"type": "string"},
            "start": {"type": "number"},
            "end": {"type": "number"},
        },
    });
    json!({
        "type": "object",
        "required": ["text", "usage"],
        "properties": {
            "text": {"type": "string"},
            "task": {"type": "string", "description": "Only in verbose_json, as are language, duration, segments and words."},
            "language": {"type": "string"},
            "duration": {"type": "number"},
            "segments": {"type": "array", "items": segment},
            "words": {"type": "array", "items": word},
            "logprobs": logprobs(),
            "usage": usage(),
        },
    })
}

fn usage() -> Value {
    json!({
        "type": "object",
        "required": ["type", "seconds"],
        "properties": {"type": {"type": "string"}, "seconds": {"type": "integer"}},
    })
}

fn event() -> Value {
    json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": ["transcript.text.delta", "transcript.text.done"]},
            "delta": {"type": "string"},
            "text": {"type": "string"},
            "logprobs": logprobs(),
            "usage": usage(),
        },
    })
}

/// Only where they were asked for.
fn logprobs() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["token", "bytes", "logprob"],
            "properties": {
                "token": {"type": "string"},
                "bytes": {"type": "array", "items": {"type": "integer"}},
                "logprob": {"type": "number"},
            },
        },
    })
}
