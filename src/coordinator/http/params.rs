//! `GET /v1/models/{id}/params`: what a request to a model can set, from the schemas that this coordinator documents.

use serde_json::{Map, Value, json};

use super::workers::KINDS;
use crate::switchboard::ModelOnline;
use muster_protocol::job::{Capabilities, Kind};
use muster_protocol::legacy::contract;
use muster_protocol::openai::chat::schema as chat;

const NOTE: &str = "The fields of /v1/chat/completions with a range or a list of values. Unknown fields are refused by \
                    name.";

pub fn params(model: &ModelOnline) -> Value {
    let held = KINDS.into_iter();
    let mut held = held.filter(|(kind, _)| model.kinds.contains(*kind));
    let (kind, name) = held.next().unwrap_or((Kind::Text, "text"));
    let mut reply = json!({"model": &*model.name, "job_type": name, "params": {}});
    match kind {
        Kind::Text => {
            let mut params = text_params();
            for name in ["max_tokens", "max_completion_tokens"] {
                if let Some(limit) = params.get_mut(name) {
                    limit["maximum"] = model.context.into();
                }
            }
            reply["params"] = params.into();
            reply["passthrough"] = false.into();
            reply["note"] = NOTE.into();
        }
        Kind::Image => {
            let has = |capability| model.capabilities.contains(capability);
            reply["params"] = image_params().into();
            reply["capabilities"] = json!({
                "img2img": has(Capabilities::SOURCE_IMAGES),
                "loras": has(Capabilities::LORAS),
                "strength": has(Capabilities::SOURCE_IMAGES),
            });
        }
        // No request for the other kinds has parameters yet.
        _ => {}
    }
    reply
}

fn text_params() -> Map<String, Value> {
    let schemas = chat::schemas().into_iter();
    let mut requests = schemas.filter(|(name, _)| *name == "ChatCompletionRequest");
    requests
        .next()
        .map_or_else(Map::new, |(_, schema)| bounded(&schema))
}

fn image_params() -> Map<String, Value> {
    bounded(&contract::schemas()["$defs"]["ModelGenerationInputImage"])
}

/// The properties with a range or with a list of values.
fn bounded(schema: &Value) -> Map<String, Value> {
    let properties = schema["properties"].as_object();
    let all = properties.into_iter().flatten();
    all.filter_map(|(name, schema)| Some((name.clone(), param(schema)?)))
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
        None => return None,
    }
    if let Some(default) = schema.get("default") {
        param["default"] = default.clone();
    }
    Some(param)
}

#[cfg(test)]
mod tests {
    use super::{image_params, text_params};

    #[test]
    fn params_are_what_the_schemas_bound() {
        let text = text_params();
        assert_eq!(text["temperature"]["minimum"], 0.0);
        assert_eq!(text["temperature"]["maximum"], 2.0);
        assert!(text["reasoning_effort"]["options"].is_array());
        assert!(!text.contains_key("messages") && !text.contains_key("model"));
        let image = image_params();
        assert_eq!(image["steps"]["maximum"], 500);
        assert_eq!(image["sampler_name"]["default"], "k_euler_a");
        assert!(!image.contains_key("loras"));
    }
}
