//! Video models.

use super::{KindRules, ModelFacts, StatedFacts, is_outside, refuse_wrong};
use crate::catalog::Family;
use crate::catalog::complete::{is_one_weights_file, refuse_incomplete_folder};

#[derive(Debug, Clone, PartialEq)]
pub struct VideoFacts {
    /// Parameters of all components together.
    pub parameters: u64,
    pub defaults: FilmingDefaults,
}

/// Defaults for settings that a video request omits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FilmingDefaults {
    /// Width and height.
    pub size: Option<[u32; 2]>,
    pub frames: Option<u32>,
    /// Frames per second.
    pub rate: Option<f32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
}

const USUAL_SIZE: [u32; 2] = [832, 480];
const USUAL_FRAMES: u32 = 81;
/// The widest level of Wan's decoder with the frames that it remembers.
const BYTES_PER_PIXEL: u64 = 14_000;
/// A patch of Wan's transformer covers 1,024 pixels and needs some 97 KB at once.
const BYTES_PER_PIXEL_AND_FRAME: u64 = 95;

impl ModelFacts for VideoFacts {
    const RULES: KindRules = KindRules {
        folders: &[
            "transformer",
            "vae",
            "text_encoder",
            "tokenizer",
            "scheduler",
        ],
        // A file holds the transformer.
        of_one_file: &["scheduler", "text_encoder", "tokenizer", "vae"],
        ..KindRules::of(
            &[Family::Wan],
            &["size", "frames", "rate", "steps", "cfg_scale"],
            |source, elsewhere| match is_one_weights_file(source) {
                true => Ok(()),
                false => {
                    let components = ["text_encoder", "transformer", "vae"];
                    refuse_incomplete_folder(source, &components, elsewhere)
                }
            },
        )
    };

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let parameters = stated.parameters_of("a video")?;
        let defaults = stated.defaults;
        Ok(Self {
            parameters,
            defaults: FilmingDefaults {
                size: defaults.size,
                frames: defaults.frames,
                rate: defaults.rate,
                steps: defaults.steps,
                cfg_scale: defaults.cfg_scale,
            },
        })
    }

    fn check(&self) -> Result<(), String> {
        let defaults = &self.defaults;
        let mut sides = defaults.size.into_iter().flatten();
        refuse_wrong([
            ("parameters", self.parameters == 0),
            (
                "defaults.size",
                sides.any(|side| !(16..=4096).contains(&side)),
            ),
            ("defaults.frames", is_outside(defaults.frames, 1..=257)),
            ("defaults.rate", is_outside(defaults.rate, 1.0..=60.0)),
            ("defaults.steps", is_outside(defaults.steps, 1..=500)),
            (
                "defaults.cfg_scale",
                is_outside(defaults.cfg_scale, 0.0..=100.0),
            ),
        ])
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }

    fn workspace_bytes(&self) -> u64 {
        let [width, height] = self.defaults.size.unwrap_or(USUAL_SIZE);
        let pixels = u64::from(width) * u64::from(height);
        let frames = u64::from(self.defaults.frames.unwrap_or(USUAL_FRAMES));
        pixels * BYTES_PER_PIXEL.max(frames * BYTES_PER_PIXEL_AND_FRAME)
    }
}
