//! Transcripts.

use serde_json::{Value, json};

use super::{FORM, MediaRoute, success};
use crate::http::openapi::operation::{Content, reference};
use muster_protocol::openai::hearing::schema;

pub fn schemas() -> Vec<(&'static str, Value)> {
    schema::schemas()
}

pub const ROUTES: &[MediaRoute] = &[
    MediaRoute {
        body: || vec![Content::of(FORM, reference("TranscriptionForm"))],
        replies: || {
            let events = json!({"anyOf": [reference("TranscriptionEvent"), reference("Error")]});
            let mut contents = transcripts();
            contents.push(Content::of("text/event-stream", events));
            success(contents, true)
        },
        ..MediaRoute::post("/v1/audio/transcriptions")
    },
    MediaRoute {
        body: || vec![Content::of(FORM, reference("TranslationForm"))],
        replies: || success(transcripts(), true),
        ..MediaRoute::post("/v1/audio/translations")
    },
];

fn transcripts() -> Vec<Content> {
    let text = || json!({"type": "string"});
    vec![
        Content::json(reference("Transcription")),
        Content::of("text/plain", text()),
        Content::of("text/vtt", text()),
    ]
}
