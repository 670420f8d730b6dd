//! A request for a transcript. `None` leaves a setting to the model.

use crate::runtime::maker::{MediaRequest, Pcm};

/// A transcription request.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptRequest {
    /// Mono at 16 kHz.
    pub sound: Pcm,
    /// Codes of two or three letters. A single code is the language that is spoken; among several codes, or all where none
    /// is given, the model finds the likeliest.
    pub languages: Vec<String>,
    /// Translates speech of any language to English.
    pub is_translated: bool,
    /// Previous text, or words of the recording.
    pub prompt: Option<String>,
    pub temperature: Option<f32>,
    /// Texts that a beam search keeps; without, the likeliest token is taken each time.
    pub beams: Option<usize>,
    pub seed: Option<u64>,
    /// Find the time of each word.
    pub wants_words: bool,
    /// Report the log probability of each token.
    pub wants_logprobs: bool,
}

impl MediaRequest for TranscriptRequest {
    const MAKES: &'static str = "a transcript";
}
