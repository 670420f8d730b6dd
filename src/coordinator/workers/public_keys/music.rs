//! A music request.

use serde_json::{Map, Value, json};

use muster_protocol::job::MusicRequest;

/// The default of public coordinators.
const STEPS: u32 = 8;

pub fn keys(music: &MusicRequest) -> Map<String, Value> {
    let seed = music.seed.unwrap_or_default();
    let always = [
        ("prompt", json!(music.prompt)),
        ("lyrics", json!(music.lyrics.as_deref().unwrap_or_default())),
        ("n", json!(1)),
        ("ext", json!("wav")),
        ("seconds", json!(music.seconds)),
        ("inference_steps", json!(music.steps.unwrap_or(STEPS))),
        ("seed", json!(seed)),
        ("seeds", json!([seed])),
    ];
    let numerator = music.time_signature.as_deref();
    let numerator = numerator.and_then(|text| text.split('/').next());
    let maybe = [
        ("bpm", music.bpm.map(|it| json!(it))),
        ("key_scale", music.key_scale.as_ref().map(|it| json!(it))),
        ("time_signature", numerator.map(|it| json!(it))),
        (
            "vocal_language",
            music.vocal_language.as_ref().map(|it| json!(it)),
        ),
    ];
    let maybe = maybe.into_iter();
    let maybe = maybe.filter_map(|(key, value)| Some((key, value?)));
    let keys = always.into_iter().chain(maybe);
    keys.map(|(key, value)| (key.to_owned(), value)).collect()
}
