//! `GET /v1/models/{id}/params`: the parameters of requests to a model, from this coordinator's own schemas.

use serde_json::{Map, Value, json};

use super::models::{limits, listed_kinds, route_of};
use super::openapi::body_fields;
use crate::switchboard::ModelOnline;
use muster_protocol::job::{Capabilities, Kind};

pub fn params(model: &ModelOnline) -> Value {
    let Some((kind, route)) = route_of(model) else {
        let kinds = listed_kinds(model).into_iter();
        let words: Vec<_> = kinds.map(Kind::word).collect();
        return json!({"model": &*model.name, "job_type": words.first(), "params": {}});
    };
    let mut reply = json!({
        "model": &*model.name,
        "job_type": kind.word(),
        "route": route,
        "params": of_model(model, of_route(route)),
        "passthrough": false,
        "note": format!(
            "The fields of {route} with a range, a length or a list of values. Unknown fields are refused by name."
        ),
    });
    if kind == Kind::Image {
        let has = |capability| model.capabilities.contains(capability);
        reply["capabilities"] = json!({
            "img2img": has(Capabilities::SOURCE_IMAGES),
            "loras": has(Capabilities::LORAS),
            "strength": has(Capabilities::SOURCE_IMAGES),
        });
    }
    reply
}

/// With the limits of this model, and the names of its voices.
fn of_model(model: &ModelOnline, mut params: Map<String, Value>) -> Map<String, Value> {
    for name in ["max_tokens", "max_completion_tokens"] {
        if let Some(limit) = params.get_mut(name) {
            limit["maximum"] = model.context.into();
        }
    }
    let limits = limits(model);
    for (name, most) in &limits {
        if let Some(limit) = params.get_mut(name) {
            limit["maximum"] = most.clone();
        }
    }
    if let (Some(most), Some(input)) = (limits.get("characters"), params.get_mut("input")) {
        input["maxLength"] = most.clone();
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

/// The fields with a range, a length or a list of values.
fn of_route(route: &str) -> Map<String, Value> {
    let all = body_fields(route).into_iter();
    all.filter_map(|(name, schema)| Some((name, param(&schema)?)))
        .collect()
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
        None => param["maxLength"] = schema.get("maxLength")?.clone(),
    }
    if let Some(default) = schema.get("default") {
        param["default"] = default.clone();
    }
    Some(param)
}

#[cfg(test)]
mod tests {
    use super::of_route;

    #[test]
    fn params_are_what_the_schemas_bound() {
        let text = of_route("/v1/chat/completions");
        assert_eq!(text["temperature"]["minimum"], 0.0);
        assert_eq!(text["temperature"]["maximum"], 2.0);
        assert!(text["reasoning_effort"]["options"].is_array());
        assert!(!text.contains_key("messages") && !text.contains_key("model"));
        let image = of_route("/v1/images/generations");
        assert!(image["steps"]["maximum"].is_u64(), "{image:?}");
        assert!(!image.contains_key("loras") && !image.contains_key("prompt"));
        let spoken = of_route("/v1/audio/speech");
        assert_eq!(spoken["speed"]["maximum"], 4.0);
        assert_eq!(spoken["input"]["maxLength"], 16_384);
        let heard = of_route("/v1/audio/transcriptions");
        assert!(heard["response_format"]["options"].is_array(), "{heard:?}");
        for route in ["videos/generations", "audio/generations", "embeddings"] {
            assert!(!of_route(&format!("/v1/{route}")).is_empty(), "{route}");
        }
    }
}
