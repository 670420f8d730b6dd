//! An image request.

use serde_json::{Map, Value, json};

use muster_protocol::job::{ImageRequest, Lora, samplers};
use muster_protocol::legacy::image::reference;

pub fn keys(image: &ImageRequest, model: &str) -> Map<String, Value> {
    let seed = image.seed.unwrap_or_default();
    let suited = || reference::defaults(model).steps;
    let steps = image.steps.unwrap_or_else(suited);
    let mut keys = Map::new();
    let always = [
        ("prompt", json!(image.prompt)),
        ("n", json!(1)),
        ("ext", json!("webp")),
        ("width", json!(image.width)),
        ("height", json!(image.height)),
        ("steps", json!(steps)),
        ("seed", json!(seed)),
        ("seeds", json!([seed])),
        (
            "recipe_inputs",
            json!({"width": image.width, "height": image.height, "steps": steps}),
        ),
    ];
    keys.extend(always.map(|(key, value)| (key.to_owned(), value)));
    let sampler = image.sampler.as_deref().map(samplers::public_name);
    let maybe = [
        (
            "negative_prompt",
            image.negative_prompt.as_ref().map(|it| json!(it)),
        ),
        ("cfg_scale", image.cfg_scale.map(|it| json!(it))),
        ("sampler_name", sampler.map(|it| json!(it))),
    ];
    for (key, value) in maybe {
        value.map(|value| keys.insert(key.to_owned(), value));
    }
    if !image.loras.is_empty() {
        let loras: Vec<Value> = image.loras.iter().map(lora).collect();
        keys.insert("loras".to_owned(), Value::Array(loras));
    }
    keys
}

fn lora(lora: &Lora) -> Value {
    json!({
        "name": lora.name, "model": lora.model, "clip": lora.clip, "is_version": lora.is_version,
        "inject_trigger": lora.inject_trigger,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::keys;
    use muster_protocol::job::ImageRequest;

    #[test]
    fn an_image_is_told_in_flat_keys() {
        let image = ImageRequest {
            prompt: "a lighthouse".to_owned(),
            width: 1024,
            height: 768,
            steps: Some(8),
            sampler: Some("k_euler_a".to_owned()),
            seed: Some(900),
            ..ImageRequest::default()
        };
        let expected = json!({
            "prompt": "a lighthouse", "n": 1, "ext": "webp", "width": 1024, "height": 768, "steps": 8,
            "sampler_name": "euler_ancestral", "seed": 900, "seeds": [900],
            "recipe_inputs": {"width": 1024, "height": 768, "steps": 8},
        });
        assert_eq!(json!(keys(&image, "tiny")), expected);
    }
}
