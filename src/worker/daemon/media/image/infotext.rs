//! The text about an image that image programs write into its file, and read again.

use muster_engine::runtime::diffusion::{DiffusionSampler, Schedule};
use muster_engine::runtime::image::ImageRequest;

/// Prompt, negative prompt, and a line of settings, as AUTOMATIC1111's web UI writes them, of a finished image.
pub fn infotext(model: &str, request: &ImageRequest, size: [u32; 2]) -> String {
    Infotext::of(model, request).text(size)
}

/// The text about an image whose size is not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infotext {
    prompts: String,
    /// In order; the size is filled in.
    settings: Vec<(&'static str, Option<String>)>,
}

const SIZE: &str = "Size";

impl Infotext {
    pub fn text(mut self, [width, height]: [u32; 2]) -> String {
        for (name, value) in &mut self.settings {
            if *name == SIZE {
                *value = Some(format!("{width}x{height}"));
            }
        }
        let settings = self.settings.into_iter();
        let settings = settings.filter_map(|(name, value)| Some(format!("{name}: {}", value?)));
        let settings = settings.collect::<Vec<_>>().join(", ");
        format!("{}\n{settings}", self.prompts)
    }

    pub fn of(model: &str, request: &ImageRequest) -> Self {
        let settings = settings(model, request);
        let prompts = prompts(request);
        Self { prompts, settings }
    }
}

fn prompts(request: &ImageRequest) -> String {
    let mut lines = vec![request.prompt.clone()];
    if let Some(negative) = request
        .negative_prompt
        .as_deref()
        .filter(|it| !it.is_empty())
    {
        lines.push(format!("Negative prompt: {negative}"));
    }
    lines.join("\n")
}

fn settings(model: &str, request: &ImageRequest) -> Vec<(&'static str, Option<String>)> {
    let has_source = request.source.is_some();
    let loras = request.loras.iter().map(|lora| {
        let name = lora.file.file_stem().unwrap_or_default();
        format!("{}: {}", name.to_string_lossy(), lora.model)
    });
    let loras = loras.collect::<Vec<_>>().join(", ");
    vec![
        ("Steps", request.steps.map(|steps| steps.to_string())),
        ("Sampler", request.sampler.map(|it| label(it).to_owned())),
        (
            "Schedule type",
            request.schedule.map(|it| schedule_label(it).to_owned()),
        ),
        (
            "CFG scale",
            request.cfg_scale.map(|scale| scale.to_string()),
        ),
        ("Seed", request.seed.map(|seed| seed.to_string())),
        (SIZE, None),
        ("Model", Some(model.to_owned())),
        (
            "Batch pos",
            (request.index > 0).then(|| request.index.to_string()),
        ),
        (
            "Denoising strength",
            request
                .strength
                .filter(|_| has_source)
                .map(|it| it.to_string()),
        ),
        ("Clip skip", request.clip_skip.map(|skip| skip.to_string())),
        ("Loras", (!loras.is_empty()).then(|| format!("\"{loras}\""))),
        ("Tiling", request.tiles.then(|| "True".to_owned())),
        (
            "Hires strength",
            request.hires.map(|strength| strength.to_string()),
        ),
        (
            "Version",
            Some(concat!("muster ", env!("CARGO_PKG_VERSION")).to_owned()),
        ),
    ]
}

fn label(sampler: DiffusionSampler) -> &'static str {
    match sampler {
        DiffusionSampler::Euler => "Euler",
        DiffusionSampler::EulerAncestral => "Euler a",
        DiffusionSampler::Heun => "Heun",
        DiffusionSampler::Dpm2 => "DPM2",
        DiffusionSampler::Dpm2Ancestral => "DPM2 a",
        DiffusionSampler::Lms => "LMS",
        DiffusionSampler::DpmFast => "DPM fast",
        DiffusionSampler::DpmAdaptive => "DPM adaptive",
        DiffusionSampler::DpmPp2sAncestral => "DPM++ 2S a",
        DiffusionSampler::DpmPpSde => "DPM++ SDE",
        DiffusionSampler::DpmPp2m => "DPM++ 2M",
        DiffusionSampler::Lcm => "LCM",
        DiffusionSampler::UniPc | DiffusionSampler::UniPcBh2 => "UniPC",
    }
}

fn schedule_label(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Normal => "Normal",
        Schedule::SgmUniform => "SGM Uniform",
        Schedule::Simple => "Simple",
        Schedule::DdimUniform => "DDIM",
        Schedule::Karras => "Karras",
        Schedule::Exponential => "Exponential",
        Schedule::Beta => "Beta",
        Schedule::KlOptimal => "KL Optimal",
        Schedule::LinearQuadratic => "Linear Quadratic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_stand_in_one_line_below_the_prompts() {
        let request = ImageRequest {
            prompt: "a red circle".to_owned(),
            negative_prompt: Some("blurry".to_owned()),
            steps: Some(20),
            cfg_scale: Some(7.0),
            sampler: DiffusionSampler::named("k_euler_a"),
            schedule: Schedule::named("karras"),
            seed: Some(5),
            strength: Some(0.5),
            ..ImageRequest::default()
        };
        let text = infotext("demo-image", &request, [256, 128]);
        let (prompts, settings) = text.rsplit_once('\n').unwrap();
        assert_eq!(prompts, "a red circle\nNegative prompt: blurry");
        let expected = "Steps: 20, Sampler: Euler a, Schedule type: Karras, CFG scale: 7, Seed: 5, Size: 256x128, \
                        Model: demo-image, Version: muster ";
        assert!(settings.starts_with(expected), "{settings}");
    }
}
