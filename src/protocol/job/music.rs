//! A job for music: one sound. A setting that the client left unset is `None`.

use serde::{Deserialize, Serialize};

use super::needs::{MusicNeeds, Needs, SpeechNeeds};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MusicRequest {
    pub prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lyrics: Option<String>,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bpm: Option<u32>,
    /// A note and a mode, such as `C# minor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_scale: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_signature: Option<String>,
    /// Two letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocal_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// For a model that speaks: the prompt is the text, and `seconds` the longest sound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_speech: bool,
    /// The file that the worker uploads.
    pub format: SoundFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoundFormat {
    #[default]
    Wav,
    Flac,
    /// In an Ogg file.
    Opus,
}

impl MusicRequest {
    /// A spoken text counts by its length alone.
    pub fn needs(&self) -> Needs {
        match self.is_speech {
            true => Needs::Speech(SpeechNeeds {
                characters: u32::try_from(self.prompt.chars().count()).unwrap_or(u32::MAX),
            }),
            false => Needs::Music(MusicNeeds {
                seconds: self.seconds.max(0.0).floor() as u32,
            }),
        }
    }

    pub fn millis(&self) -> u64 {
        (self.seconds.max(0.0) * 1000.0).ceil() as u64
    }
}
