//! `GET /v1/models/{id}/params`: what a request to a model can set, from the schemas that this coordinator documents.

use serde_json::{Map, Value, json};

use super::models::{limits, listed_kinds};
use crate::switchboard::ModelOnline;
use muster_protocol::job::{Capabilities, Kind};
use muster_protocol::openai::{audio, chat, encode, hearing, images, speech, videos};

type Schemas = Vec<(&'static str, Value)>;

/// A route that a model is asked by, and the schema of its body.
#[derive(Clone, Copy)]
struct ModelRoute {
    path: &'static str,
    schema: &'static str,
    of: fn() -> Schemas,
}

const CHAT: ModelRoute = at(
    "/v1/chat/completions",
    "ChatCompletionRequest",
    chat::schema::schemas,
);
const EMBEDDINGS: ModelRoute = at(
    "/v1/embeddings",
    "EmbeddingsRequest",
    encode::schema::schemas,
);
const RERANK: ModelRoute = at("/v1/rerank", "RerankRequest", encode::schema::schemas);
const TRANSCRIPTIONS: ModelRoute = at(
    "/v1/audio/transcriptions",
    "TranscriptionForm",
    hearing::schema::schemas,
);
const SPEECH: ModelRoute = at("/v1/audio/speech", "SpeechRequest", speech::schema::schemas);
const MUSIC: ModelRoute = at(
    "/v1/audio/generations",
    "AudioRequest",
    audio::schema::schemas,
);
const IMAGES: ModelRoute = at(
    "/v1/images/generations",
    "ImagesRequest",
    images::schema::schemas,
);
const VIDEOS: ModelRoute = at(
    "/v1/videos/generations",
    "VideosRequest",
    videos::schema::schemas,
);

const fn at(path: &'static str, schema: &'static str, of: fn() -> Schemas) -> ModelRoute {
    ModelRoute { path, schema, of }
}

pub fn params(model: &ModelOnline) -> Value {
    let (kind, word) = listed_kinds(model)
        .into_iter()
        .next()
        .unwrap_or((Kind::Text, Kind::Text.word()));
    let mut reply = json!({"model": &*model.name, "job_type": word, "params": {}});
    let Some(route) = route_of(model, kind) else {
        return reply;
    };
    let has = |capability| model.capabilities.contains(capability);
    reply["route"] = route.path.into();
    reply["params"] = of_model(model, route.params()).into();
    reply["passthrough"] = false.into();
    reply["note"] = format!(
        "The fields of {} with a range or a list of values. Unknown fields are refused by name.",
        route.path
    )
    .into();
    if kind == Kind::Image {
        reply["capabilities"] = json!({
            "img2img": has(Capabilities::SOURCE_IMAGES),
            "loras": has(Capabilities::LORAS),
            "strength": has(Capabilities::SOURCE_IMAGES),
        });
    }
    reply
}

/// The route for requests to this model. None for forms of the AI Horde API, which have none on `/v1`.
fn route_of(model: &ModelOnline, kind: Kind) -> Option<ModelRoute> {
    let has = |task| model.capabilities.contains(task);
    let routes = [
        (has(Capabilities::GENERATE), CHAT),
        (has(Capabilities::EMBED), EMBEDDINGS),
        (has(Capabilities::RERANK), RERANK),
        (has(Capabilities::TRANSCRIBE), TRANSCRIPTIONS),
        (has(Capabilities::SPEAK), SPEECH),
    ];
    match kind {
        Kind::Text => routes
            .into_iter()
            .find_map(|(is_its, route)| is_its.then_some(route)),
        Kind::Image => Some(IMAGES),
        Kind::Video => Some(VIDEOS),
        Kind::Audio => Some(MUSIC),
        Kind::Mesh | Kind::Interrogation => None,
    }
}

/// With the limits of this model, and the names of its voices.
fn of_model(model: &ModelOnline, mut params: Map<String, Value>) -> Map<String, Value> {
    for name in ["max_tokens", "max_completion_tokens"] {
        if let Some(limit) = params.get_mut(name) {
            limit["maximum"] = model.context.into();
        }
    }
    for (name, most) in limits(model) {
        if let Some(limit) = params.get_mut(&name) {
            limit["maximum"] = most;
        }
    }
    if !model.voices.is_empty() {
        let voices: Vec<&str> = model.voices.iter().map(|voice| &**voice).collect();
        params.insert(
            "voice".to_owned(),
            json!({"type": "string", "options": voices}),
        );
    }
    params
}

impl ModelRoute {
    /// The properties with a range or with a list of values.
    fn params(self) -> Map<String, Value> {
        let schemas = (self.of)().into_iter();
        let schema = schemas.filter(|(name, _)| *name == self.schema);
        let all = schema.filter_map(|(_, schema)| schema["properties"].as_object().cloned());
        let all = all.flatten();
        all.filter_map(|(name, schema)| Some((name, param(&schema)?)))
            .collect()
    }
}

fn param(schema: &Value) -> Option<Value> {
    let mut param = json!({"type": schema["type"]});
    let is_range = schema.get("minimum").is_some() && schema.get("maximum").is_some();
    match schema.get("enum") {
        Some(words) => param["options"] = words.clone(),
        None if is_range => {
            param["minimum"] = schema["minimum"].clone();
            param["maximum"] = schema["maximum"].clone();
        }
        None => return None,
    }
    if let Some(default) = schema.get("default") {
        param["default"] = default.clone();
    }
    Some(param)
}

#[cfg(test)]
mod tests {
    use super::{CHAT, EMBEDDINGS, IMAGES, MUSIC, RERANK, SPEECH, TRANSCRIPTIONS, VIDEOS};

    #[test]
    fn params_are_what_the_schemas_bound() {
        let text = CHAT.params();
        assert_eq!(text["temperature"]["minimum"], 0.0);
        assert_eq!(text["temperature"]["maximum"], 2.0);
        assert!(text["reasoning_effort"]["options"].is_array());
        assert!(!text.contains_key("messages") && !text.contains_key("model"));
        let image = IMAGES.params();
        assert!(image["steps"]["maximum"].is_u64(), "{image:?}");
        assert!(!image.contains_key("loras") && !image.contains_key("prompt"));
        assert_eq!(SPEECH.params()["speed"]["maximum"], 4.0);
    }

    #[test]
    fn every_route_has_the_schema_that_it_names() {
        for route in [
            CHAT,
            EMBEDDINGS,
            RERANK,
            TRANSCRIPTIONS,
            SPEECH,
            MUSIC,
            IMAGES,
            VIDEOS,
        ] {
            let schemas = (route.of)();
            let has = schemas.iter().any(|(name, _)| *name == route.schema);
            assert!(has, "{}", route.schema);
        }
    }
}
