//! A tone: a number in, a sound out. A kind for tests of the list of kinds.

use serde::{Deserialize, Serialize};

use super::{JobRequest, KindFacts, MediaFile, OutputForm, SoundFormat};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "tone",
    word: "audio",
    ability: "tones",
    job_type: "tone",
    task: None,
    is_relayed: false,
    modality: Some("audio"),
    route: Some("/v1/audio/tones"),
    limits: &[],
    rate: None,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToneRequest {
    /// The frequency.
    pub hertz: f64,
}

impl ToneRequest {
    /// The length of every tone.
    pub const SECONDS: f64 = 1.0;
}

impl JobRequest for ToneRequest {
    fn output(&self) -> OutputForm {
        OutputForm::File(MediaFile::Sound {
            format: SoundFormat::Wav,
            shortest: Self::SECONDS,
            longest: Self::SECONDS,
        })
    }

    fn size(&self) -> u64 {
        1
    }

    fn paid_millis(&self) -> u64 {
        1000
    }
}
