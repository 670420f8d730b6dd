//! Models that speak texts.

use super::{KindRules, ModelFacts, StatedFacts, refuse_wrong};
use crate::catalog::Family;
use crate::catalog::complete::refuse_incomplete_speech;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeechFacts {
    pub parameters: u64,
}

impl ModelFacts for SpeechFacts {
    const RULES: KindRules = KindRules::of(&[Family::Kokoro], &[], |source, _| {
        refuse_incomplete_speech(source)
    });

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let parameters = stated.parameters_alone("a speech")?;
        Ok(Self { parameters })
    }

    fn check(&self) -> Result<(), String> {
        refuse_wrong([("parameters", self.parameters == 0)])
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }
}
