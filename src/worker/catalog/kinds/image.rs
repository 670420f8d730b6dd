//! Image models.

use super::{KindRules, ModelFacts, StatedFacts, is_outside, refuse_wrong};
use crate::catalog::Family;
use crate::catalog::complete::{is_one_file, refuse_incomplete_folder};

#[derive(Debug, Clone, PartialEq)]
pub struct ImageFacts {
    /// Parameters of all components together.
    pub parameters: u64,
    pub defaults: DrawingDefaults,
}

/// Defaults for settings that an image request omits. Samplers and schedules have the engine's names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawingDefaults {
    /// Width and height.
    pub size: Option<[u32; 2]>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub sampler: Option<String>,
    pub schedule: Option<String>,
    pub clip_skip: Option<u32>,
}

const USUAL_SIZE: [u32; 2] = [512, 512];
/// The widest layer of Stable Diffusion's decoder, and around it.
const BYTES_PER_PIXEL: u64 = 4096;

impl ModelFacts for ImageFacts {
    const RULES: KindRules = KindRules {
        folders: &[
            "unet",
            "vae",
            "text_encoder",
            "text_encoder_2",
            "tokenizer",
            "tokenizer_2",
            "scheduler",
        ],
        of_one_file: &["tokenizer", "tokenizer_2", "vae"],
        ..KindRules::of(
            &[
                Family::StableDiffusion1,
                Family::StableDiffusion2,
                Family::StableDiffusionXl,
            ],
            &[
                "size",
                "steps",
                "cfg_scale",
                "sampler",
                "schedule",
                "clip_skip",
            ],
            |source, elsewhere| match is_one_file(source) {
                true => Ok(()),
                false => {
                    refuse_incomplete_folder(source, &["text_encoder", "unet", "vae"], elsewhere)
                }
            },
        )
    };

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let parameters = stated.parameters_of("an image")?;
        let defaults = stated.defaults;
        Ok(Self {
            parameters,
            defaults: DrawingDefaults {
                size: defaults.size,
                steps: defaults.steps,
                cfg_scale: defaults.cfg_scale,
                sampler: defaults.sampler,
                schedule: defaults.schedule,
                clip_skip: defaults.clip_skip,
            },
        })
    }

    /// Defaults have the same limits as the engine's requests.
    fn check(&self) -> Result<(), String> {
        let defaults = &self.defaults;
        let mut sides = defaults.size.into_iter().flatten();
        refuse_wrong([
            ("parameters", self.parameters == 0),
            (
                "defaults.size",
                sides.any(|side| !(32..=4096).contains(&side)),
            ),
            ("defaults.steps", is_outside(defaults.steps, 1..=500)),
            (
                "defaults.cfg_scale",
                is_outside(defaults.cfg_scale, 0.0..=100.0),
            ),
            ("defaults.clip_skip", defaults.clip_skip == Some(0)),
        ])
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }

    fn workspace_bytes(&self) -> u64 {
        let [width, height] = self.defaults.size.unwrap_or(USUAL_SIZE);
        u64::from(width) * u64::from(height) * BYTES_PER_PIXEL
    }
}
