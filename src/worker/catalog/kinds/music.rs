//! Models of music.

use super::{KindRules, ModelFacts, StatedFacts, is_outside, refuse_wrong};
use crate::catalog::Family;
use crate::catalog::complete::refuse_incomplete_folder;

#[derive(Debug, Clone, PartialEq)]
pub struct MusicFacts {
    /// Parameters of all components together.
    pub parameters: u64,
    pub defaults: ComposingDefaults,
}

/// Defaults for settings that a song request omits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ComposingDefaults {
    pub seconds: Option<f32>,
    pub steps: Option<u32>,
    /// For models with guidance.
    pub cfg_scale: Option<f32>,
}

/// The widest level of Oobleck's decoder over a tile, and the keys of lyrics.
const BYTES: u64 = 1 << 30;
/// Samples of a song, and the state of ACE-Step's transformer.
const BYTES_PER_SECOND: u64 = 2 << 20;
const USUAL_SECONDS: f32 = 60.0;

impl ModelFacts for MusicFacts {
    const RULES: KindRules = KindRules {
        folders: &[
            "transformer",
            "condition_encoder",
            "vae",
            "text_encoder",
            "tokenizer",
        ],
        of_one_file: &["tokenizer", "tokenizer_2", "vae"],
        ..KindRules::of(
            &[Family::AceStep],
            &["seconds", "steps", "cfg_scale"],
            |source, elsewhere| {
                let components = ["text_encoder", "condition_encoder", "transformer", "vae"];
                refuse_incomplete_folder(source, &components, elsewhere)
            },
        )
    };

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let parameters = stated.parameters_of("a music")?;
        let defaults = stated.defaults;
        Ok(Self {
            parameters,
            defaults: ComposingDefaults {
                seconds: defaults.seconds,
                steps: defaults.steps,
                cfg_scale: defaults.cfg_scale,
            },
        })
    }

    fn check(&self) -> Result<(), String> {
        let defaults = &self.defaults;
        refuse_wrong([
            ("parameters", self.parameters == 0),
            (
                "defaults.seconds",
                is_outside(defaults.seconds, 0.5..=600.0),
            ),
            (
                "defaults.cfg_scale",
                is_outside(defaults.cfg_scale, 0.0..=100.0),
            ),
            ("defaults.steps", is_outside(defaults.steps, 1..=100)),
        ])
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }

    fn workspace_bytes(&self) -> u64 {
        let seconds = self.defaults.seconds.unwrap_or(USUAL_SECONDS).ceil() as u64;
        BYTES + seconds * BYTES_PER_SECOND
    }
}
