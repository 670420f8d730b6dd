//! Every field of every dialect, for the page that lists them and the test that tries them.

use crate::anthropic;
use crate::ollama::{self, Door, EmbedRequest};
use crate::openai::field::{FieldRow, rows};
use crate::openai::hearing::HearingDoor;
use crate::openai::images::ImageDoor;
use crate::openai::videos::{self, VideoDoor};
use crate::openai::{
    audio, chat, completions, describe, encode, hearing, images, responses, speech,
};

/// The routes of `/v1` and of Ollama's API that take a body, and their fields by name.
pub fn routes() -> Vec<(&'static str, Vec<FieldRow>)> {
    vec![
        ("/v1/chat/completions", chat::rows()),
        ("/v1/completions", completions::rows()),
        ("/v1/responses", responses::rows()),
        ("/v1/messages", rows(anthropic::FIELDS)),
        ("/v1/images/generations", images::rows(ImageDoor::Generate)),
        ("/v1/images/edits", images::rows(ImageDoor::Edit)),
        ("/v1/images/variations", images::rows(ImageDoor::Vary)),
        ("/v1/images/describe", describe::rows()),
        ("/v1/generate", images::rows(ImageDoor::Plain)),
        ("/v1/videos/generations", videos::rows(VideoDoor::Generate)),
        ("/v1/videos", videos::rows(VideoDoor::Create)),
        ("/v1/audio/generations", audio::rows()),
        (
            "/v1/audio/transcriptions",
            hearing::rows(HearingDoor::Transcribe),
        ),
        (
            "/v1/audio/translations",
            hearing::rows(HearingDoor::Translate),
        ),
        ("/v1/audio/speech", speech::rows()),
        ("/v1/embeddings", encode::embeddings::rows()),
        ("/v1/rerank", encode::rerank::rows()),
        ("/v1/tokenize", encode::tokenize_rows()),
        ("/v1/detokenize", encode::detokenize_rows()),
        (ollama::CHAT, ollama::rows(Door::Chat)),
        (ollama::GENERATE, ollama::rows(Door::Generate)),
        (ollama::EMBED, EmbedRequest::rows()),
    ]
}
