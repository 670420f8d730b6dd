//! Models that transcribe.

use super::{KindRules, ModelFacts, StatedFacts, refuse_wrong};
use crate::catalog::Family;
use crate::catalog::complete::refuse_incomplete_text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptionFacts {
    pub parameters: u64,
}

impl ModelFacts for TranscriptionFacts {
    const RULES: KindRules = KindRules::of(&[Family::Whisper], &[], |source, _| {
        refuse_incomplete_text(source)
    });

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let parameters = stated.parameters_alone("a transcription")?;
        Ok(Self { parameters })
    }

    fn check(&self) -> Result<(), String> {
        refuse_wrong([("parameters", self.parameters == 0)])
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }
}
