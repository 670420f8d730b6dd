//! Transcription jobs.

use serde::{Deserialize, Serialize};

use super::{JobRequest, KindFacts, OutputForm, PriceUnit, Rate};
use crate::job::{Capabilities, Formats, Limits};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "transcription",
    word: "audio",
    ability: "transcription",
    job_type: "text",
    task: Some("transcribe"),
    is_relayed: true,
    modality: Some("text"),
    route: Some("/v1/audio/transcriptions"),
    limits: &[],
    rate: Some(Rate {
        name: "per_minute_heard_usd",
        unit: PriceUnit::Minute,
    }),
};

/// A sound to write down.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TranscriptionRequest {
    /// A FLAC of one channel at 16 kHz, by its key in the media store; on the link to a worker, by a signed link.
    pub sound: String,
    /// How long it is.
    pub seconds: f64,
    /// Two or three letters. None: the model finds out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The languages among which the model finds out; among all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Into English.
    #[serde(skip_serializing_if = "is_false")]
    pub translate: bool,
    /// Text that came before, or words that are said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Texts that a beam search keeps. None: the likeliest token is taken each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beam_size: Option<u32>,
    /// With the time of each word.
    #[serde(skip_serializing_if = "is_false")]
    pub words: bool,
    /// With the log probability of each token.
    #[serde(skip_serializing_if = "is_false")]
    pub logprobs: bool,
}

/// A transcript, or a part of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transcript {
    /// Two or three letters.
    pub language: String,
    pub segments: Vec<TranscriptSegment>,
}

/// Times are seconds from the beginning of the sound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TranscriptSegment {
    pub start: f64,
    pub end: f64,
    pub text: String,
    pub tokens: Vec<u32>,
    /// Start of the segment's window, in hundredths of a second.
    pub seek: u32,
    pub temperature: f32,
    pub avg_logprob: f32,
    pub compression_ratio: f32,
    pub no_speech_prob: f32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<TranscriptWord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<HeardLogprob>,
}

/// A token of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeardLogprob {
    pub token: String,
    /// A part of a character where the token is one.
    pub bytes: Vec<u8>,
    pub logprob: f32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TranscriptWord {
    /// With the space before it.
    pub word: String,
    pub start: f64,
    pub end: f64,
    pub probability: f32,
}

/// Positions that a network hears of each second.
const POSITIONS_PER_SECOND: f64 = 50.0;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl TranscriptionRequest {
    /// The length of the sound.
    pub fn millis(&self) -> u64 {
        (self.seconds.max(0.0) * 1000.0).ceil() as u64
    }

    /// Workers of earlier versions search for nothing, report no log probabilities and choose among all languages.
    pub fn requires(&self) -> Capabilities {
        let searches = self.beam_size.is_some_and(|size| size > 1);
        Capabilities::default()
            .with_if(searches, Capabilities::BEAM_SEARCH)
            .with_if(self.logprobs, Capabilities::TRANSCRIPT_LOGPROBS)
            .with_if(!self.languages.is_empty(), Capabilities::NAMED_LANGUAGES)
    }

    /// The counted tokens: positions of the network's audio input.
    pub fn tokens(&self) -> u64 {
        self.tokens_until(self.seconds).max(1)
    }

    /// The same of the sound up to there.
    pub fn tokens_until(&self, seconds: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sound has less than 2^53 positions, and never fewer than none"
        )]
        let positions = (seconds.min(self.seconds).max(0.0) * POSITIONS_PER_SECOND).ceil() as u64;
        positions
    }
}

impl JobRequest for TranscriptionRequest {
    fn output(&self) -> OutputForm {
        OutputForm::Values
    }

    fn size(&self) -> u64 {
        self.tokens()
    }

    fn limits(&self) -> Limits {
        Limits {
            formats: Formats::NEUTRAL,
            requires: self.requires(),
            ..Limits::default()
        }
    }

    fn sources(&self) -> Vec<&str> {
        vec![&self.sound]
    }

    fn sources_mut(&mut self) -> Vec<&mut String> {
        vec![&mut self.sound]
    }

    fn transcribed_millis(&self) -> Option<u64> {
        Some(self.millis())
    }

    fn read_bytes(&self) -> usize {
        self.prompt.as_ref().map_or(0, String::len)
    }

    fn sound_seconds(&self) -> Option<u64> {
        Some(self.millis().div_ceil(1000))
    }
}

impl Transcript {
    /// Appends the next part.
    pub fn absorb(&mut self, part: Self) {
        if self.language.is_empty() {
            self.language = part.language;
        }
        self.segments.extend(part.segments);
    }

    /// All that is said.
    pub fn text(&self) -> String {
        let texts = self.segments.iter().map(|segment| segment.text.as_str());
        texts.collect::<String>().trim().to_owned()
    }

    /// Tokens that were written.
    pub fn written(&self) -> u64 {
        let tokens = self
            .segments
            .iter()
            .map(|segment| segment.tokens.len() as u64);
        tokens.sum()
    }

    /// About as many bytes as it takes in memory.
    pub fn weight(&self) -> usize {
        let segments = self.segments.iter().map(|segment| {
            let words = segment.words.iter().map(|word| word.word.len() + 24);
            let logprobs = segment.logprobs.iter();
            let logprobs = logprobs.map(|one| one.token.len() + one.bytes.len() + 64);
            let aside = words.sum::<usize>() + logprobs.sum::<usize>() + 64;
            segment.text.len() + 4 * segment.tokens.len() + aside
        });
        segments.sum()
    }
}
