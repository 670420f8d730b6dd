//! Music.

use serde_json::Value;

use super::{MediaRoute, later, with_example};
use muster_protocol::openai::audio::schema;

pub fn schemas() -> Vec<(&'static str, Value)> {
    schema::schemas()
}

pub const ROUTES: &[MediaRoute] = &[MediaRoute {
    body: || with_example("AudioRequest", schema::example()),
    replies: || later("Audio"),
    is_whole: true,
    ..MediaRoute::post("/v1/audio/generations")
}];
