//! Converts an image request between the AI Horde API and the neutral form, for polling workers. Settings that the
//! client left out get the model's defaults. A request of the AI Horde API is converted back unchanged.
//!
//! The source image keeps its key in the media store; the renderer for a pop replaces it by a link.

use std::collections::BTreeSet;

use super::params::{
    ExtraText, InjectInto, ModelGenerationInputImage, ModelPayloadLorasImage,
    ModelPayloadTextualInversionsImage,
};
use super::reference;
use super::request::{ExtraSourceImage, GenerationInputImage};
use crate::job::{
    ControlMap, ImageRequest, Lora, PromptSide, SolverSettings, SourceImage, SourceUse,
    TextualInversion, WorkflowText, named_inversions, samplers,
};
use crate::legacy::words::{SourceProcessing, Word, named};

impl From<SourceProcessing> for SourceUse {
    fn from(processing: SourceProcessing) -> Self {
        match processing {
            SourceProcessing::Img2Img => Self::Start,
            SourceProcessing::Inpainting => Self::Inpainting,
            SourceProcessing::Outpainting => Self::Outpainting,
            SourceProcessing::Remix => Self::Remix,
        }
    }
}

impl From<SourceUse> for SourceProcessing {
    fn from(usage: SourceUse) -> Self {
        match usage {
            SourceUse::Start => Self::Img2Img,
            SourceUse::Inpainting => Self::Inpainting,
            SourceUse::Outpainting => Self::Outpainting,
            SourceUse::Remix => Self::Remix,
        }
    }
}

impl GenerationInputImage {
    /// The image at `index`, with a seed of its own.
    pub fn neutral(&self, seed: u32, index: u32) -> ImageRequest {
        let params = &self.params;
        let mut image = ImageRequest {
            width: params.width,
            height: params.height,
            steps: Some(params.steps()),
            cfg_scale: Some(params.cfg_scale),
            sampler: Some(params.sampler_name.word().to_owned()),
            karras: Some(params.is_karras()),
            scheduler: params.newer_scheduler().map(|one| one.word().to_owned()),
            clip_skip: params.clip_skip,
            seed: Some(seed.into()),
            loras: params.loras().iter().map(Lora::from).collect(),
            inversions: params.tis().iter().map(TextualInversion::from).collect(),
            lists_inversions: true,
            source: self.source(),
            source_use: Some(self.source_processing.into()),
            strength: params.denoising_strength,
            tiling: params.tiling,
            hires_fix: params.hires_fix,
            hires_strength: params.hires_fix_denoising_strength,
            control: control(params),
            post_processing: words(params.post_processing()),
            face_strength: params.facefixer_strength,
            transparent: params.transparent,
            censored: !self.nsfw && self.censor_nsfw,
            solver: solver(params),
            workflow: params.workflow.map(|workflow| workflow.word().to_owned()),
            workflow_texts: params.extra_texts().iter().map(workflow_text).collect(),
            special: params.special.clone(),
            index,
            ..ImageRequest::default()
        };
        image.set_prompt_text(&self.prompt);
        image
    }

    fn source(&self) -> Option<SourceImage> {
        let extra = self.extra_source_images().iter();
        let extra = extra.filter_map(|one| Some((one.image.clone()?, one.strength)));
        Some(SourceImage {
            image: self.source_image.clone()?,
            mask: self.source_mask.clone(),
            extra: extra.collect(),
            size: None,
        })
    }

    /// An image of this model.
    pub fn of_neutral(image: &ImageRequest, model: &str) -> Self {
        let source = image.source.as_ref();
        Self {
            prompt: image.prompt_text(),
            params: params(image, model),
            nsfw: false,
            trusted_workers: false,
            validated_backends: false,
            slow_workers: true,
            extra_slow_workers: false,
            censor_nsfw: image.censored,
            worker_blacklist: false,
            models: vec![model.to_owned()],
            source_processing: match image.source_use {
                Some(usage) => usage.into(),
                None if source.is_some_and(|source| source.mask.is_some()) => {
                    SourceProcessing::Inpainting
                }
                None => SourceProcessing::Img2Img,
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
    let sampler = image.sampler.as_deref().and_then(samplers::sampler);
    let control = image.control.as_ref();
    let solver = &image.solver;
    let processing = image.post_processing.iter();
    let texts = image.workflow_texts.iter().map(extra_text);
    let (width, height) = image.size_or_usual();
    ModelGenerationInputImage {
        width,
        height,
        steps: Some(image.steps.unwrap_or(suited.steps)),
        cfg_scale: image.cfg_scale.unwrap_or(suited.cfg_scale),
        sampler_name: sampler.and_then(named).unwrap_or(suited.sampler),
        karras: image.karras.unwrap_or(suited.karras),
        scheduler: image.scheduler.as_deref().and_then(named),
        clip_skip: image.clip_skip,
        seed: image.seed.map(|seed| seed.to_string()),
        denoising_strength: image.strength,
        tiling: image.tiling,
        hires_fix: image.hires_fix,
        hires_fix_denoising_strength: image.hires_strength,
        loras: filled(image.loras.iter().map(lora)),
        tis: filled(inversions(image)),
        control_type: control.and_then(|control| named(&control.kind)),
        control_strength: control.and_then(|control| control.strength),
        image_is_control: control.is_some_and(|control| control.is_given),
        return_control_map: control.is_some_and(|control| control.returns_map),
        post_processing: filled(processing.filter_map(|name| named(name))),
        facefixer_strength: image.face_strength,
        transparent: image.transparent,
        sampler_eta: solver.eta,
        sampler_s_noise: solver.noise,
        sampler_s_churn: solver.churn,
        sampler_s_tmin: solver.least_level,
        sampler_s_tmax: solver.most_level,
        sampler_solver_type: solver.correction.as_deref().and_then(named),
        sampler_order: solver.order,
        flow_shift: solver.flow_shift,
        workflow: image.workflow.as_deref().and_then(named),
        extra_texts: filled(texts),
        special: image.special.clone(),
        ..ModelGenerationInputImage::default()
    }
}

/// An empty list is none.
fn filled<T>(list: impl IntoIterator<Item = T>) -> Option<Vec<T>> {
    let list: Vec<_> = list.into_iter().collect();
    (!list.is_empty()).then_some(list)
}

fn words<W: Word>(words: &[W]) -> Vec<String> {
    words.iter().map(|one| one.word().to_owned()).collect()
}

fn control(params: &ModelGenerationInputImage) -> Option<ControlMap> {
    params.control_type.map(|kind| ControlMap {
        kind: kind.word().to_owned(),
        strength: params.control_strength,
        is_given: params.image_is_control,
        returns_map: params.return_control_map,
    })
}

fn solver(params: &ModelGenerationInputImage) -> SolverSettings {
    SolverSettings {
        eta: params.sampler_eta,
        noise: params.sampler_s_noise,
        churn: params.sampler_s_churn,
        least_level: params.sampler_s_tmin,
        most_level: params.sampler_s_tmax,
        correction: params.sampler_solver_type.map(|one| one.word().to_owned()),
        order: params.sampler_order,
        flow_shift: params.flow_shift,
    }
}

fn workflow_text(text: &ExtraText) -> WorkflowText {
    WorkflowText {
        reference: text.reference.clone(),
        text: text.text.clone(),
    }
}

fn extra_text(text: &WorkflowText) -> ExtraText {
    ExtraText {
        reference: text.reference.clone(),
        text: text.text.clone(),
    }
}

fn extra(source: &SourceImage) -> Option<Vec<ExtraSourceImage>> {
    let extra = source.extra.iter();
    filled(extra.map(|(image, strength)| ExtraSourceImage {
        strength: *strength,
        image: Some(image.clone()),
    }))
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
    if image.lists_inversions {
        return image.inversions.iter().map(inversion).collect();
    }
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

fn inversion(inversion: &TextualInversion) -> ModelPayloadTextualInversionsImage {
    ModelPayloadTextualInversionsImage {
        name: inversion.name.clone(),
        strength: inversion.strength,
        inject_ti: inversion.prompt.map(|side| match side {
            PromptSide::Shown => InjectInto::Prompt,
            PromptSide::Excluded => InjectInto::NegativePrompt,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::job::{Formats, ImageRequest, samplers};
    use crate::legacy::Body;
    use crate::legacy::image::payload::ModelPayloadImage;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::words::{Sampler, Scheduler, Word};

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
        assert_eq!(payload["prompt"], "a cat###a dog");
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

    /// Every setting of the AI Horde API, in turn.
    #[test]
    fn a_request_of_the_poll_api_goes_out_as_it_came() {
        let params = json!({
            "sampler_name": "seeds_2", "cfg_scale": 2.5, "height": 640, "width": 768, "karras": false,
            "tiling": true, "hires_fix": true, "transparent": true, "steps": 33, "seed": "12",
            "denoising_strength": 0.25, "hires_fix_denoising_strength": 0.75,
            "post_processing": ["GFPGAN", "RealESRGAN_x4plus"], "clip_skip": 2, "facefixer_strength": 0.5,
            "loras": [{"name": "a", "model": 0.5, "clip": 0.25, "is_version": true, "inject_trigger": "any"}],
            "tis": [{"name": "b", "strength": 0.5, "inject_ti": "negprompt"}, {"name": "c"}],
            "special": {"a": [1]}, "workflow": "qr_code", "scheduler": "gits",
            "extra_texts": [{"reference": "qr_code", "text": "t"}],
            "sampler_eta": 0.5, "sampler_s_noise": 1.5, "sampler_s_churn": 2.5, "sampler_s_tmin": 0.5,
            "sampler_s_tmax": 9.5, "sampler_solver_type": "midpoint", "sampler_order": 3, "flow_shift": 3.5,
            "control_type": "canny", "control_strength": 0.75, "image_is_control": true,
            "return_control_map": true,
        });
        let whole = json!({
            "prompt": "a cat, embedding:c ### a dog ### more", "params": params, "nsfw": false,
            "source_image": "s", "source_mask": "m", "source_processing": "outpainting",
            "extra_source_images": [{"image": "e", "strength": 0.5}],
        });
        let mut requests = vec![json!({"prompt": "a cat"}), whole.clone()];
        for (name, value) in params.as_object().unwrap() {
            requests.push(json!({"prompt": "a cat", "params": {name: value}}));
        }
        for (name, value) in whole.as_object().unwrap() {
            let mut request = json!({"prompt": "a cat"});
            request[name] = value.clone();
            requests.push(request);
        }
        for request in requests {
            let asked = GenerationInputImage::read(request.clone()).unwrap();
            // On disk a job is JSON.
            let kept = json!(asked.neutral(7, 0));
            let kept: ImageRequest = serde_json::from_value(kept).unwrap();
            let again = GenerationInputImage::of_neutral(&kept, "tiny");
            let expected = json!(ModelPayloadImage::of(&asked, 1, 7));
            let mut found = json!(ModelPayloadImage::of(&again, 1, 7));
            if asked.params.control_type.is_none() {
                // Without a kind of control map they say nothing.
                for flag in ["image_is_control", "return_control_map"] {
                    found[flag] = expected[flag].clone();
                }
            }
            assert_eq!(found, expected, "{request}");
            if asked.source_image.is_some() {
                assert_eq!(again.source_mask, asked.source_mask);
                assert_eq!(again.extra_source_images, asked.extra_source_images);
            }
            assert_eq!(again.source_processing, asked.source_processing);
        }
    }

    #[test]
    fn names_are_those_of_jobs() {
        let words = |all: &[Sampler]| all.iter().map(|one| one.word()).collect::<Vec<_>>();
        let known: Vec<_> = samplers::names_of_jobs().collect();
        assert_eq!(known, words(Sampler::ALL));
        for sampler in Sampler::ALL {
            assert_eq!(samplers::is_newer(sampler.word()), sampler.is_newer());
        }
        let schedules: Vec<_> = Scheduler::ALL.iter().map(|one| one.word()).collect();
        assert_eq!(schedules, samplers::SCHEDULES);
    }
}
