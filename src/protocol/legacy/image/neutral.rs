//! A neutral image request in the words of the poll API, for workers that know no others. Settings that the client left
//! unset become those that suit the model.
//!
//! The source image keeps its key in the media store; the renderer for a pop replaces it by a link.

use std::collections::BTreeSet;

use super::params::{
    ModelGenerationInputImage, ModelPayloadLorasImage, ModelPayloadTextualInversionsImage,
};
use super::reference;
use super::request::{ExtraSourceImage, GenerationInputImage, NEGATIVE};
use crate::job::{ImageRequest, Lora, SourceImage, named_inversions};
use crate::legacy::words::{Sampler, SourceProcessing, Word, named};

/// How the poll API calls samplers, and how media workers on sockets do.
#[rustfmt::skip]
pub const SAMPLERS: [(&str, &str); 14] = [
    ("DDIM",           "ddim"),
    ("dpmsolver",      "dpmpp_2m"),
    ("k_dpm_2",        "dpm_2"),
    ("k_dpm_2_a",      "dpm_2_ancestral"),
    ("k_dpm_adaptive", "dpm_adaptive"),
    ("k_dpm_fast",     "dpm_fast"),
    ("k_dpmpp_2m",     "dpmpp_2m"),
    ("k_dpmpp_2s_a",   "dpmpp_2s_ancestral"),
    ("k_dpmpp_sde",    "dpmpp_sde"),
    ("k_euler",        "euler"),
    ("k_euler_a",      "euler_ancestral"),
    ("k_heun",         "heun"),
    ("k_lms",          "lms"),
    ("lcm",            "lcm"),
];

/// The sampler by any of its names.
pub fn sampler(name: &str) -> Option<Sampler> {
    named(name).or_else(|| {
        // `dpmsolver` is an old name of the same sampler.
        let mut rows = SAMPLERS.iter().rev();
        let row = rows.find(|(_, other)| *other == name);
        row.and_then(|(polled, _)| named(polled))
    })
}

/// Every name of every sampler.
pub fn sampler_names() -> impl Iterator<Item = &'static str> {
    let polled = Sampler::ALL.iter().map(|sampler| sampler.word());
    let others = SAMPLERS.iter().map(|(_, other)| *other);
    let is_new = |name: &&str| named::<Sampler>(name).is_none() && *name != "dpmpp_2m";
    polled.chain(others.filter(is_new)).chain(["dpmpp_2m"])
}

/// The prompt as one text, which is how the poll API has it. The mark in a client's own prompt separates nothing.
pub fn prompt(image: &ImageRequest) -> String {
    let shown = unmarked(&image.prompt);
    match &image.negative_prompt {
        Some(negative) if !negative.is_empty() => {
            format!("{shown} {NEGATIVE} {}", unmarked(negative))
        }
        _ => shown,
    }
}

fn unmarked(text: &str) -> String {
    text.replace(NEGATIVE, "# # #")
}

impl GenerationInputImage {
    /// One image of this model.
    pub fn of_neutral(image: &ImageRequest, model: &str) -> Self {
        let source = image.source.as_ref();
        Self {
            prompt: prompt(image),
            params: params(image, model),
            nsfw: false,
            trusted_workers: false,
            validated_backends: false,
            slow_workers: true,
            extra_slow_workers: false,
            censor_nsfw: false,
            worker_blacklist: false,
            models: vec![model.to_owned()],
            source_processing: match source.is_some_and(|source| source.mask.is_some()) {
                true => SourceProcessing::Inpainting,
                false => SourceProcessing::Img2Img,
            },
            r2: true,
            shared: false,
            replacement_filter: false,
            dry_run: false,
            disable_batching: false,
            allow_downgrade: false,
            workers: None,
            source_image: source.map(|source| source.image.clone()),
            source_mask: source.and_then(|source| source.mask.clone()),
            extra_source_images: source.and_then(extra),
            proxied_account: None,
            webhook: None,
            style: None,
        }
    }
}

fn params(image: &ImageRequest, model: &str) -> ModelGenerationInputImage {
    let suited = reference::defaults(model);
    let sampler = image.sampler.as_deref().and_then(sampler);
    let loras: Vec<_> = image.loras.iter().map(lora).collect();
    let tis = inversions(image);
    ModelGenerationInputImage {
        width: image.width,
        height: image.height,
        steps: Some(image.steps.unwrap_or(suited.steps)),
        cfg_scale: image.cfg_scale.unwrap_or(suited.cfg_scale),
        sampler_name: sampler.unwrap_or(suited.sampler),
        karras: image.karras.unwrap_or(suited.karras),
        scheduler: image.scheduler.as_deref().and_then(named),
        clip_skip: image.clip_skip,
        seed: image.seed.map(|seed| seed.to_string()),
        denoising_strength: image.strength,
        tiling: image.tiling,
        hires_fix: image.hires_fix,
        hires_fix_denoising_strength: image.hires_strength,
        loras: (!loras.is_empty()).then_some(loras),
        tis: (!tis.is_empty()).then_some(tis),
        ..ModelGenerationInputImage::default()
    }
}

fn extra(source: &SourceImage) -> Option<Vec<ExtraSourceImage>> {
    let extra = source
        .extra
        .iter()
        .map(|(image, strength)| ExtraSourceImage {
            strength: *strength,
            image: Some(image.clone()),
        });
    let extra: Vec<_> = extra.collect();
    (!extra.is_empty()).then_some(extra)
}

fn lora(lora: &Lora) -> ModelPayloadLorasImage {
    ModelPayloadLorasImage {
        name: lora.name.clone(),
        model: lora.model,
        clip: lora.clip,
        is_version: lora.is_version,
        inject_trigger: lora.inject_trigger.clone(),
    }
}

/// Textual inversions that such requests list at most.
const MOST_INVERSIONS: usize = 20;

/// Polling workers load the textual inversions that are listed; the prompts place them.
fn inversions(image: &ImageRequest) -> Vec<ModelPayloadTextualInversionsImage> {
    let prompts = [Some(&image.prompt), image.negative_prompt.as_ref()];
    let prompts = prompts.into_iter().flatten();
    let names = prompts.flat_map(|prompt| named_inversions(prompt));
    let names: BTreeSet<&str> = names.collect();
    let listed = names.into_iter().take(MOST_INVERSIONS);
    let listed = listed.map(|name| ModelPayloadTextualInversionsImage {
        name: name.to_owned(),
        strength: 1.0,
        inject_ti: None,
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{prompt, sampler, sampler_names};
    use crate::job::{Formats, ImageRequest};
    use crate::legacy::Body;
    use crate::legacy::image::payload::ModelPayloadImage;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::words::Sampler;

    fn image(fields: serde_json::Value) -> ImageRequest {
        let mut image: ImageRequest = serde_json::from_value(fields).unwrap();
        (image.width, image.height) = (1024, 768);
        image
    }

    #[test]
    fn a_neutral_request_is_a_request_of_the_poll_api() {
        let image = image(json!({
            "prompt": "a cat", "negative_prompt": "a dog", "steps": 12, "cfg_scale": 3.5,
            "sampler": "k_heun", "karras": false, "seed": 7, "strength": 0.5,
            "loras": [{"name": "x", "model": 0.5, "clip": 1.0, "is_version": false}],
        }));
        let inverted = ImageRequest {
            negative_prompt: Some("embedding:blurred, a dog".to_owned()),
            ..image.clone()
        };
        let inverted = GenerationInputImage::of_neutral(&inverted, "tiny");
        let listed = &json!(ModelPayloadImage::of(&inverted, 1, 7))["tis"];
        assert_eq!(listed[0]["name"], "blurred");
        let request = GenerationInputImage::of_neutral(&image, "tiny");
        let written = json!(request);
        assert_eq!(GenerationInputImage::read(written).as_ref(), Ok(&request));
        let payload = json!(ModelPayloadImage::of(&request, 1, 7));
        assert_eq!(payload["prompt"], "a cat ### a dog");
        assert_eq!(
            (&payload["width"], &payload["height"]),
            (&json!(1024), &json!(768))
        );
        assert_eq!(
            (&payload["ddim_steps"], &payload["cfg_scale"]),
            (&json!(12), &json!(3.5))
        );
        assert_eq!(
            (&payload["sampler_name"], &payload["karras"]),
            (&json!("k_heun"), &json!(false))
        );
        assert_eq!(payload["loras"][0]["name"], "x");
        assert!(payload.get("use_nsfw_censor").is_none());
    }

    #[test]
    fn unset_settings_suit_the_model() {
        let unset = image(json!({"prompt": "a cat"}));
        let steps = |model| {
            GenerationInputImage::of_neutral(&unset, model)
                .params
                .steps()
        };
        assert_eq!(steps("Deliberate"), 30);
        assert_eq!(steps("Flux.1-Schnell fp8 (Compact)"), 8);
        let plain = GenerationInputImage::of_neutral(&unset, "Deliberate");
        assert!(plain.formats().meets(Formats::OPENAI_CHAT));
    }

    #[test]
    fn the_mark_in_a_clients_prompt_separates_nothing() {
        let marked = image(json!({"prompt": "a ### b", "negative_prompt": "c ### d"}));
        assert_eq!(prompt(&marked), "a # # # b ### c # # # d");
        assert_eq!(prompt(&image(json!({"prompt": "a"}))), "a");
    }

    #[test]
    fn a_sampler_has_a_name_in_each_protocol() {
        assert_eq!(sampler("k_euler"), Some(Sampler::Euler));
        assert_eq!(sampler("euler"), Some(Sampler::Euler));
        assert_eq!(sampler("dpmpp_2m"), Some(Sampler::Dpmpp2m));
        assert_eq!(sampler("none"), None);
        assert!(sampler_names().all(|name| sampler(name).is_some()));
    }
}
