//! Requests for media, in the engine's own terms. `None` leaves a setting to the model.

use std::path::PathBuf;

use super::{MediaKind, Pcm, Pixels};
use crate::runtime::diffusion::{DiffusionSampler, Schedule};

#[derive(Debug, Clone, PartialEq)]
pub enum MakeRequest {
    Image(Box<ImageRequest>),
    Sound(Box<SoundRequest>),
    Video(Box<VideoRequest>),
    Transcript(Box<TranscriptRequest>),
}

/// One image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageRequest {
    pub prompt: String,
    pub negative_prompt: Option<String>,
    pub width: Option<u32>,
    pub height: Option<u32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub sampler: Option<DiffusionSampler>,
    pub schedule: Option<Schedule>,
    pub seed: Option<u64>,
    /// Which image of a series with one seed; part of every random draw.
    pub index: u32,
    /// Layers of the text encoder from the end on; 1 is the last.
    pub clip_skip: Option<u32>,
    /// How much of `source` is replaced, 0 to 1.
    pub strength: Option<f64>,
    /// The image to start from.
    pub source: Option<Pixels>,
    /// Where `source` is replaced: white.
    pub mask: Option<Pixels>,
    pub loras: Vec<LoraUse>,
    /// Words of the prompts, `embedding:NAME`, that stand for vectors of a file.
    pub inversions: Vec<Inversion>,
    /// Draw an image that fits to itself at opposite edges.
    pub tiles: bool,
    /// Draw at the model's own size first, then replace so much of the enlarged image, 0 to 1.
    pub hires: Option<f64>,
    /// Report a preview with each step.
    pub wants_previews: bool,
}

/// The file of a LoRA, and how much it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraUse {
    pub file: PathBuf,
    /// For the network that draws.
    pub model: f32,
    /// For the text encoders.
    pub clip: f32,
}

/// A textual inversion: a name and the file of its vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Inversion {
    pub name: String,
    pub file: PathBuf,
}

/// Music, speech or noises.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SoundRequest {
    pub prompt: String,
    pub negative_prompt: Option<String>,
    pub lyrics: Option<String>,
    /// Beats per minute.
    pub bpm: Option<u32>,
    /// A note and a mode, such as `C# minor`.
    pub key_scale: Option<String>,
    /// Beats of a bar.
    pub time_signature: Option<String>,
    /// Of the lyrics, two letters.
    pub vocal_language: Option<String>,
    pub voice: Option<String>,
    pub speed: Option<f32>,
    pub seconds: Option<f32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub seed: Option<u64>,
    /// Which sound of a series with one seed.
    pub index: u32,
}

/// A video without sound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VideoRequest {
    pub prompt: String,
    pub negative_prompt: Option<String>,
    pub width: Option<u32>,
    pub height: Option<u32>,
    pub frames: Option<u32>,
    /// Frames per second.
    pub rate: Option<f32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub seed: Option<u64>,
    /// Which video of a series with one seed.
    pub index: u32,
    /// The first frame.
    pub source: Option<Pixels>,
    /// Report a preview with each step.
    pub wants_previews: bool,
}

/// Writing down what a sound says.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptRequest {
    /// One channel at 16 kHz.
    pub sound: Pcm,
    /// Two or three letters; without, the model finds out.
    pub language: Option<String>,
    /// Write English, whatever is said.
    pub is_translated: bool,
    /// Text that came before, or words that are said.
    pub prompt: Option<String>,
    pub temperature: Option<f32>,
    pub seed: Option<u64>,
    /// Find the time of each word.
    pub wants_words: bool,
}

impl SoundRequest {
    /// Names a setting of music that is set, for models that have none of them.
    pub fn setting_of_music(&self) -> Option<&'static str> {
        let set = [
            ("bpm", self.bpm.is_some()),
            ("key_scale", self.key_scale.is_some()),
            ("time_signature", self.time_signature.is_some()),
            ("vocal_language", self.vocal_language.is_some()),
            ("lyrics", self.lyrics.is_some()),
        ];
        let found = set.into_iter().find(|(_, is_set)| *is_set);
        found.map(|(name, _)| name)
    }
}

impl MakeRequest {
    pub fn kind(&self) -> MediaKind {
        match self {
            Self::Image(_) => MediaKind::Image,
            Self::Sound(_) => MediaKind::Sound,
            Self::Video(_) => MediaKind::Video,
            Self::Transcript(_) => MediaKind::Transcript,
        }
    }
}
