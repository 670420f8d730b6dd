//! An image job of a public coordinator: flat keys, several outputs in one job.

use serde_json::{Map, Value};

use muster_protocol::job::{Failure, FailureKind, ImageRequest, Lora, SourceImage};

/// Outputs of one job.
const MOST_OUTPUTS: u64 = 4;
/// Keys that change the image and that this worker cannot honour.
const UNSUPPORTED: [&str; 1] = ["recipe_spec"];

/// A request for each output, with its seed.
pub fn images(keys: Map<String, Value>) -> Result<Vec<ImageRequest>, Failure> {
    let is_set = |key: &&str| match keys.get(*key) {
        None | Some(Value::Null) => false,
        Some(Value::Array(values)) => !values.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    };
    if let Some(key) = UNSUPPORTED.iter().find(|key| is_set(key)) {
        let message = format!("{key} is not supported by this worker");
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    }
    let text = |key: &str| keys.get(key).and_then(Value::as_str).map(str::to_owned);
    let whole = |key: &str| keys.get(key).and_then(Value::as_u64);
    let small = |key: &str| whole(key).and_then(|number| u32::try_from(number).ok());
    let prompt = text("prompt").ok_or_else(|| {
        let message = "the image job has no prompt";
        Failure::new(FailureKind::InvalidRequest, message)
    })?;
    let count = whole("n").unwrap_or(1);
    if !(1..=MOST_OUTPUTS).contains(&count) {
        let message = format!("n must be 1 to {MOST_OUTPUTS}, found {count}");
        return Err(Failure::new(FailureKind::InvalidRequest, message));
    }
    let loras = keys.get("loras").and_then(Value::as_array);
    let loras = loras.into_iter().flatten().map(lora);
    let loras: Option<Vec<Lora>> = loras.collect();
    let loras = loras.ok_or_else(|| {
        let message = "loras must be objects with name, and optionally model and clip";
        Failure::new(FailureKind::InvalidRequest, message)
    })?;
    let image = ImageRequest {
        prompt,
        loras,
        negative_prompt: text("negative_prompt"),
        width: small("width").unwrap_or(0),
        height: small("height").unwrap_or(0),
        steps: small("steps").filter(|steps| *steps > 0),
        cfg_scale: keys.get("cfg_scale").and_then(Value::as_f64),
        sampler: text("sampler_name").map(|name| sampler(&name).to_owned()),
        source: text("source_image_url").map(|image| SourceImage {
            image,
            ..SourceImage::default()
        }),
        ..ImageRequest::default()
    };
    let seeds = keys.get("seeds").and_then(Value::as_array);
    let seed = |index: u64| {
        let listed = seeds.and_then(|seeds| seeds.get(usize::try_from(index).ok()?)?.as_u64());
        listed.or_else(|| Some(whole("seed")?.wrapping_add(index)))
    };
    let one = |index| ImageRequest {
        seed: seed(index),
        ..image.clone()
    };
    Ok((0..count).map(one).collect())
}

/// Numbers that are missing count as 1.
fn lora(value: &Value) -> Option<Lora> {
    let strength = |key: &str| value[key].as_f64().unwrap_or(1.0);
    let trigger = value["inject_trigger"].as_str();
    Some(Lora {
        name: value["name"].as_str()?.to_owned(),
        model: strength("model"),
        clip: strength("clip"),
        is_version: value["is_version"] == true,
        inject_trigger: trigger.filter(|it| !it.is_empty()).map(str::to_owned),
    })
}

/// The sampler by the name that the engine knows.
fn sampler(name: &str) -> &str {
    match name {
        "ddim" => "DDIM",
        "dpm_2" => "k_dpm_2",
        "dpm_2_ancestral" => "k_dpm_2_a",
        "dpm_adaptive" => "k_dpm_adaptive",
        "dpm_fast" => "k_dpm_fast",
        "dpmpp_2m" => "k_dpmpp_2m",
        "dpmpp_2s_ancestral" => "k_dpmpp_2s_a",
        "dpmpp_sde" => "k_dpmpp_sde",
        "euler" => "k_euler",
        "euler_ancestral" => "k_euler_a",
        "heun" => "k_heun",
        "lms" => "k_lms",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::images;
    use muster_protocol::job::ImageRequest;

    fn read(keys: Value) -> Result<Vec<ImageRequest>, String> {
        let Value::Object(keys) = keys else {
            panic!("expected an object");
        };
        images(keys).map_err(|failure| failure.message.into_owned())
    }

    #[test]
    fn each_output_has_its_seed() {
        let bodies = read(json!({
            "prompt": "a lighthouse", "n": 2, "ext": "webp", "width": 64, "height": 96, "steps": 8,
            "sampler_name": "euler_ancestral", "seed": 900, "seeds": [900, 901],
            "loras": [{"name": "paper", "model": 0.5, "inject_trigger": null}],
        }));
        let images = bodies.unwrap();
        let seeds: Vec<_> = images.iter().map(|image| image.seed).collect();
        assert_eq!(seeds, [Some(900), Some(901)]);
        let lora = &images[0].loras[0];
        assert_eq!((&*lora.name, lora.model, lora.clip), ("paper", 0.5, 1.0));
        let sampler = images[0].sampler.as_deref();
        assert_eq!(sampler, Some("k_euler_a"));
        assert_eq!(
            (images[0].width, images[0].height, images[0].steps),
            (64, 96, Some(8))
        );
    }

    #[test]
    fn unusable_keys_are_refused_by_name() {
        let refusal = |keys| read(keys).unwrap_err();
        assert!(refusal(json!({})).contains("prompt"));
        assert!(refusal(json!({"prompt": "a", "n": 5})).contains("n must be"));
        let loras = json!({"prompt": "a", "loras": ["x"]});
        assert!(refusal(loras).contains("loras"));
        let recipe = json!({"prompt": "a", "recipe_spec": {"1": {}}});
        assert!(refusal(recipe).contains("recipe_spec"));
    }
}
