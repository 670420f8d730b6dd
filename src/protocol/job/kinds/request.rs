//! The questions that are put to a request of any kind.

use super::{Clip, SoundFormat, SourceImage};
use crate::job::{Formats, Limits, Reach};

/// How the output comes from its worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OutputForm {
    /// Token by token.
    Text,
    /// As values: in one result, or in parts.
    Values,
    /// Uploaded.
    File(MediaFile),
    /// As a form's result, or as an image.
    Form,
}

/// The file that a worker uploads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MediaFile {
    Image,
    Sound {
        format: SoundFormat,
        /// In seconds.
        shortest: f64,
        longest: f64,
    },
    Video {
        seconds: f64,
        size: (u32, u32),
        frames: u32,
    },
}

/// The settings of a worker's model for jobs whose request leaves them unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelDefaults {
    /// Width and height of an image or a frame.
    pub size: Option<(u32, u32)>,
    pub clip: Option<Clip>,
    /// Whether the model has voices.
    pub speaks: bool,
    /// The limits of the model, which no default exceeds.
    pub reach: Reach,
}

impl Default for ModelDefaults {
    fn default() -> Self {
        Self {
            size: None,
            clip: None,
            speaks: false,
            reach: Reach::ENDLESS,
        }
    }
}

/// A request for one output.
pub trait JobRequest {
    fn output(&self) -> OutputForm;

    /// How much work it is as people count it: pixelsteps, seconds, tokens. An unbound request counts as a usual one.
    fn size(&self) -> u64;

    /// The expected work, in thousandths of a typical job, which reads 1,000 tokens and writes 256. Reading is some ten
    /// times cheaper than writing; a text or a sound that is only read counts as a prompt.
    fn work(&self, _: &Limits) -> u64 {
        work_of_tokens(self.size() / 10)
    }

    /// Requirements for the worker, and the formats that carry every field. Texts and images get theirs from their API,
    /// which knows more.
    fn limits(&self) -> Limits {
        Limits {
            formats: Formats::NEUTRAL,
            ..Limits::default()
        }
    }

    /// Whether the coordinator has to know a setting that the client left unset. The model of the worker that the job is
    /// handed to decides it, see [`Self::bind`].
    fn is_unbound(&self) -> bool {
        false
    }

    /// Fills in the settings that [`Self::is_unbound`] refers to.
    fn bind(&mut self, _: &ModelDefaults) {}

    fn seed(&self) -> Option<u64> {
        None
    }

    fn set_seed(&mut self, _: u64) {}

    /// The words of the client: a worker may refuse some.
    fn texts(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The image it begins with.
    fn source(&self) -> Option<&SourceImage> {
        None
    }

    fn source_mut(&mut self) -> Option<&mut SourceImage> {
        None
    }

    /// The files it begins with, by their keys in the media store; on the link to a worker, by signed links.
    fn sources(&self) -> Vec<&str> {
        self.source().map(SourceImage::keys).unwrap_or_default()
    }

    fn sources_mut(&mut self) -> Vec<&mut String> {
        let source = self.source_mut();
        source.map(SourceImage::keys_mut).unwrap_or_default()
    }

    /// Width and height of an image output; 0 where unset.
    fn picture_size(&self) -> Option<(u32, u32)> {
        None
    }

    /// Passes of its model, where they are named.
    fn steps(&self) -> Option<u32> {
        None
    }

    /// Previews that the client wants at most.
    fn previews(&self) -> u32 {
        0
    }

    /// The paid length of an audio or video output; for an unbound request, the longest possible one.
    fn paid_millis(&self) -> u64 {
        0
    }

    /// The characters of a spoken text, which have a price.
    fn spoken_characters(&self) -> Option<u64> {
        None
    }

    /// The same of a text that the model may speak, or play as music.
    fn characters_of_possible_speech(&self) -> Option<u64> {
        None
    }

    /// The length of a transcribed sound, which has a price.
    fn transcribed_millis(&self) -> Option<u64> {
        None
    }

    /// Bytes of the texts whose values are computed; a token counts as four.
    fn read_bytes(&self) -> usize {
        0
    }

    /// Whether a network computes it, and not the tokenizer alone.
    fn is_computed(&self) -> bool {
        true
    }

    /// Seconds of sound that count in statistics, where the output is no file.
    fn sound_seconds(&self) -> Option<u64> {
        None
    }
}

/// The amount of work of this many generated tokens.
pub(super) fn work_of_tokens(tokens: u64) -> u64 {
    const TOKENS_OF_A_JOB: u64 = 356;
    tokens.saturating_mul(1000) / TOKENS_OF_A_JOB
}

/// The work of an output without a limit is that of twice a typical one.
pub(super) fn work_of_text(limits: &Limits) -> u64 {
    let output = limits.output_tokens.map_or(512, u64::from);
    work_of_tokens(u64::from(limits.prompt_tokens) / 10 + output)
}

impl dyn JobRequest {
    /// The file that the worker uploads; `None` if the output comes over the link.
    pub fn file(&self) -> Option<MediaFile> {
        match self.output() {
            OutputForm::File(file) => Some(file),
            OutputForm::Text | OutputForm::Values | OutputForm::Form => None,
        }
    }

    /// Whether its output comes as values.
    pub fn brings_values(&self) -> bool {
        self.output() == OutputForm::Values
    }
}
