//! Speech.

use serde_json::{Value, json};

use super::{MediaRoute, Replies, at_once, success, with_example};
use crate::http::openapi::operation::{Content, query, reference};
use muster_protocol::openai::speech::schema;

pub fn schemas() -> Vec<(&'static str, Value)> {
    schema::schemas()
}

pub const ROUTES: &[MediaRoute] = &[
    MediaRoute {
        body: || with_example("SpeechRequest", schema::example()),
        replies: sounds,
        is_whole: true,
        ..MediaRoute::post("/v1/audio/speech")
    },
    MediaRoute {
        parameters: || vec![query("model", "string", "Voices of this model alone.")],
        replies: || at_once("Voices"),
        ..MediaRoute::get("/v1/audio/voices")
    },
];

fn sounds() -> Replies {
    let binary = || json!({"type": "string", "format": "binary"});
    let types = [
        "audio/mpeg",
        "audio/wav",
        "audio/flac",
        "audio/ogg",
        "audio/pcm",
    ]
    .into_iter();
    let mut contents: Vec<Content> = types.map(|name| Content::of(name, binary())).collect();
    contents.push(Content::json(reference("CaptionedSpeech")));
    let events = json!({"anyOf": [reference("SpeechEvent"), reference("Error")]});
    contents.push(Content::of("text/event-stream", events));
    success(contents, true)
}
