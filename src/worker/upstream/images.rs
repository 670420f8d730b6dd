//! Images by the API of Stable Diffusion web UI (`/sdapi/v1`), and by OpenAI's.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::UpstreamError;
use super::answer::small;
use muster_protocol::job::ImageRequest;

/// A request, with the files of its source image and mask.
pub struct ImageSettings<'a> {
    pub request: &'a ImageRequest,
    pub source: Option<Vec<u8>>,
    pub mask: Option<Vec<u8>>,
}

/// Width and height where a request names none.
const SIDE: u32 = 512;
const STRENGTH: f64 = 0.75;

/// Path and body of a request.
pub fn body(
    model: &str,
    settings: &ImageSettings<'_>,
) -> Result<(&'static str, Value), UpstreamError> {
    let request = settings.request;
    if let Some(name) = unknown_setting(request) {
        return Err(UpstreamError::Unsupported(name));
    }
    let side = |side: u32| if side == 0 { SIDE } else { side };
    let mut prompt = request.prompt.clone();
    for lora in &request.loras {
        prompt.push_str(&format!(" <lora:{}:{}>", lora.name, lora.model));
    }
    let mut body = json!({
        "prompt": prompt,
        "width": side(request.width),
        "height": side(request.height),
        "batch_size": 1,
        "n_iter": 1,
        "send_images": true,
        "save_images": false,
        "override_settings": {"sd_model_checkpoint": model},
        "override_settings_restore_afterwards": false,
        "tiling": request.tiling,
    });
    let seed = request
        .seed
        .map(|seed| (seed.wrapping_add(u64::from(request.index))) & u64::from(u32::MAX));
    let scheduler = request.scheduler.clone().or(match request.karras {
        Some(true) => Some("karras".to_owned()),
        _ => None,
    });
    for (name, value) in [
        (
            "negative_prompt",
            request.negative_prompt.as_ref().map(|text| json!(text)),
        ),
        ("steps", request.steps.map(|steps| json!(steps))),
        ("cfg_scale", request.cfg_scale.map(|scale| json!(scale))),
        (
            "sampler_name",
            request.sampler.as_deref().map(|name| json!(sampler(name))),
        ),
        ("scheduler", scheduler.map(|name| json!(name))),
        ("seed", seed.map(|seed| json!(seed))),
    ] {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    if let Some(layers) = request.clip_skip {
        body["override_settings"]["CLIP_stop_at_last_layers"] = json!(layers);
    }
    let Some(source) = &settings.source else {
        if request.hires_fix {
            body["enable_hr"] = json!(true);
            body["hr_scale"] = json!(2);
            // With a second pass, the request's size is that of the second pass.
            body["width"] = json!(side(request.width) / 2);
            body["height"] = json!(side(request.height) / 2);
            body["denoising_strength"] = json!(request.hires_strength.unwrap_or(STRENGTH));
        }
        return Ok(("sdapi/v1/txt2img", body));
    };
    body["init_images"] = json!([STANDARD.encode(source)]);
    body["denoising_strength"] = json!(request.strength.unwrap_or(STRENGTH));
    if let Some(mask) = &settings.mask {
        body["mask"] = json!(STANDARD.encode(mask));
        body["inpainting_fill"] = json!(1);
    }
    Ok(("sdapi/v1/img2img", body))
}

/// A setting that the API has no place for.
fn unknown_setting(request: &ImageRequest) -> Option<&'static str> {
    let several = request
        .source
        .as_ref()
        .is_some_and(|source| !source.extra.is_empty());
    let settings = [
        ("several source images", several),
        ("control", request.control.is_some()),
        ("post_processing", !request.post_processing.is_empty()),
        ("workflow", request.workflow.is_some()),
        ("transparent", request.transparent),
        ("special", request.special.is_some()),
        ("tis", !request.inversions.is_empty()),
    ];
    let mut set = settings.into_iter().filter(|(_, is_set)| *is_set);
    set.next().map(|(name, _)| name)
}

/// The AI Horde API's names as the web UI shows them.
fn sampler(name: &str) -> &str {
    const NAMES: &[(&str, &str)] = &[
        ("k_euler", "Euler"),
        ("k_euler_a", "Euler a"),
        ("k_heun", "Heun"),
        ("k_lms", "LMS"),
        ("k_dpm_2", "DPM2"),
        ("k_dpm_2_a", "DPM2 a"),
        ("k_dpm_fast", "DPM fast"),
        ("k_dpm_adaptive", "DPM adaptive"),
        ("k_dpmpp_2m", "DPM++ 2M"),
        ("k_dpmpp_2s_a", "DPM++ 2S a"),
        ("k_dpmpp_sde", "DPM++ SDE"),
        ("DDIM", "DDIM"),
        ("lcm", "LCM"),
    ];
    let known = NAMES.iter().find(|(ours, _)| *ours == name);
    known.map_or(name, |(_, theirs)| theirs)
}

/// The file in the reply.
pub fn image(reply: &Value) -> Result<Vec<u8>, UpstreamError> {
    let text = reply["images"][0].as_str().unwrap_or_default();
    decoded(text)
}

pub fn progress(reply: &Value) -> Option<(u32, u32)> {
    let count = |name: &str| Some(small(reply["state"][name].as_u64()? as usize));
    let (at, of) = (count("sampling_step")?, count("sampling_steps")?);
    (of > 0).then_some((at.min(of), of))
}

/// A request to OpenAI's API, which has little more than a prompt.
pub fn openai_body(model: &str, settings: &ImageSettings<'_>) -> Result<Value, UpstreamError> {
    let request = settings.request;
    let beyond = [
        ("a source image", settings.source.is_some()),
        ("negative_prompt", request.negative_prompt.is_some()),
        ("sampler", request.sampler.is_some()),
        ("loras", !request.loras.is_empty()),
        ("tiling", request.tiling),
        ("hires_fix", request.hires_fix),
    ];
    let mut beyond = beyond.into_iter().filter(|(_, is_set)| *is_set);
    let beyond = beyond.next().map(|(name, _)| name);
    if let Some(name) = unknown_setting(request).or(beyond) {
        return Err(UpstreamError::Unsupported(name));
    }
    let mut body =
        json!({"model": model, "prompt": request.prompt, "n": 1, "response_format": "b64_json"});
    if request.width > 0 && request.height > 0 {
        body["size"] = json!(format!("{}x{}", request.width, request.height));
    }
    for (name, value) in [
        ("steps", request.steps.map(|steps| json!(steps))),
        ("cfg_scale", request.cfg_scale.map(|scale| json!(scale))),
        (
            "seed",
            request.seed.map(|seed| json!(seed & u64::from(u32::MAX))),
        ),
    ] {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    Ok(body)
}

pub fn openai_image(reply: &Value) -> Result<Vec<u8>, UpstreamError> {
    decoded(reply["data"][0]["b64_json"].as_str().unwrap_or_default())
}

fn decoded(text: &str) -> Result<Vec<u8>, UpstreamError> {
    // Some programs send a data URL.
    let text = text.split_once(";base64,").map_or(text, |(_, text)| text);
    match STANDARD.decode(text) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes),
        _ => Err(UpstreamError::Failed("its reply has no image".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ImageSettings;
    use super::{body, image, openai_body, progress};
    use crate::upstream::UpstreamError;
    use muster_protocol::job::ImageRequest;

    fn settings(request: &ImageRequest, source: Option<Vec<u8>>) -> ImageSettings<'_> {
        ImageSettings {
            request,
            source,
            mask: None,
        }
    }

    #[test]
    fn settings_have_the_names_of_the_web_ui() {
        let request = ImageRequest {
            prompt: "a cat".to_owned(),
            negative_prompt: Some("a dog".to_owned()),
            width: 640,
            steps: Some(20),
            sampler: Some("k_euler_a".to_owned()),
            karras: Some(true),
            seed: Some(7),
            index: 1,
            strength: Some(0.4),
            ..ImageRequest::default()
        };
        let (path, told) = body("xl", &settings(&request, None)).unwrap();
        assert_eq!(path, "sdapi/v1/txt2img");
        assert_eq!(
            (&told["width"], &told["height"]),
            (&json!(640), &json!(512))
        );
        assert_eq!(
            (&told["sampler_name"], &told["scheduler"]),
            (&json!("Euler a"), &json!("karras"))
        );
        assert_eq!((&told["seed"], &told["steps"]), (&json!(8), &json!(20)));
        assert_eq!(told["override_settings"]["sd_model_checkpoint"], "xl");
        let (path, told) = body("xl", &settings(&request, Some(vec![1, 2]))).unwrap();
        assert_eq!(
            (path, &told["denoising_strength"]),
            ("sdapi/v1/img2img", &json!(0.4))
        );
        assert_eq!(told["init_images"], json!(["AQI="]));
    }

    #[test]
    fn what_has_no_place_is_refused_by_name() {
        let request = ImageRequest {
            transparent: true,
            ..ImageRequest::default()
        };
        let refused = body("xl", &settings(&request, None)).map(drop);
        assert_eq!(refused, Err(UpstreamError::Unsupported("transparent")));
        let request = ImageRequest {
            negative_prompt: Some("a".to_owned()),
            ..ImageRequest::default()
        };
        let refused = openai_body("xl", &settings(&request, None)).map(drop);
        assert_eq!(refused, Err(UpstreamError::Unsupported("negative_prompt")));
    }

    #[test]
    fn an_image_and_its_steps_are_read() {
        assert_eq!(image(&json!({"images": ["AQI="]})), Ok(vec![1, 2]));
        assert_eq!(
            image(&json!({"images": ["data:image/png;base64,AQI="]})),
            Ok(vec![1, 2])
        );
        assert!(image(&json!({"images": []})).is_err());
        let reply = json!({"state": {"sampling_step": 3, "sampling_steps": 20}});
        assert_eq!(progress(&reply), Some((3, 20)));
    }
}
