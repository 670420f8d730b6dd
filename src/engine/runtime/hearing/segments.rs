//! Splits the tokens of a window into segments with timestamps.

use std::ops::Range;

use super::vocabulary::HearingVocabulary;
use super::window::WindowText;
use super::words::TimedWord;

/// Frames of one step between time tokens.
const STEP_FRAMES: usize = 2;
const FRAMES_PER_SECOND: f64 = 100.0;

/// A part of a transcript. Times are seconds from the beginning of the sound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TranscriptSegment {
    pub from: f64,
    pub to: f64,
    pub text: String,
    pub tokens: Vec<u32>,
    /// Start of its window, in hundredths of a second.
    pub seek: usize,
    pub temperature: f32,
    pub average_logprob: f32,
    pub compression: f32,
    /// Probability of silence.
    pub silence: f32,
    pub words: Vec<TimedWord>,
    /// The tokens of the text, where their log probabilities were asked for.
    pub heard: Vec<HeardToken>,
}

/// A token of a transcript, which may be a part of a character.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeardToken {
    pub bytes: Vec<u8>,
    pub logprob: f32,
}

/// The segments of a window that begins at `seek` and has `frames` of the sound, and how many frames on the next begins.
pub fn cut(
    text: &WindowText,
    seek: usize,
    frames: usize,
    vocabulary: &HearingVocabulary,
) -> (Vec<TranscriptSegment>, usize) {
    let offset = seek as f64 / FRAMES_PER_SECOND;
    let segment = |place: Range<usize>, from: f64, to: f64| TranscriptSegment {
        from: offset + from,
        to: offset + to,
        text: vocabulary.decode(&text.tokens[place.clone()]),
        tokens: text.tokens[place.clone()].to_vec(),
        heard: heard(text, place, vocabulary),
        seek,
        temperature: text.temperature,
        average_logprob: text.average_logprob,
        compression: text.compression,
        silence: text.silence,
        words: Vec::new(),
    };
    let tokens = text.tokens.as_slice();
    let is_time = |at: usize| vocabulary.is_time(tokens[at]);
    let ends_alone = tokens.len() > 1 && !is_time(tokens.len() - 2) && is_time(tokens.len() - 1);
    let mut cuts: Vec<usize> = (1..tokens.len())
        .filter(|&at| is_time(at - 1) && is_time(at))
        .collect();
    if cuts.is_empty() {
        let mut times = tokens.iter().filter(|&&token| vocabulary.is_time(token));
        let last = times
            .next_back()
            .filter(|&&token| token != vocabulary.first_time);
        let to = last.map_or(frames as f64 / FRAMES_PER_SECOND, |&token| {
            vocabulary.seconds(token)
        });
        return (vec![segment(0..tokens.len(), 0.0, to)], frames);
    }
    if ends_alone {
        cuts.push(tokens.len());
    }
    let mut from = 0;
    let mut segments = Vec::with_capacity(cuts.len());
    for &to in &cuts {
        let part = &tokens[from..to];
        let times = part.first().zip(part.last());
        let [first, last] = times.map_or([0.0; 2], |(&first, &last)| {
            [first, last].map(|token| vocabulary.seconds(token))
        });
        segments.push(segment(from..to, first, last));
        from = to;
    }
    let advanced = match ends_alone {
        true => frames,
        // Speech continues: the next window begins at the end of the last complete segment.
        false => tokens[from - 1].saturating_sub(vocabulary.first_time) as usize * STEP_FRAMES,
    };
    (segments, advanced)
}

/// The tokens of text among those at a place.
fn heard(
    text: &WindowText,
    place: Range<usize>,
    vocabulary: &HearingVocabulary,
) -> Vec<HeardToken> {
    let tokens = text.tokens[place.clone()].iter();
    let logprobs = text.logprobs.iter().skip(place.start);
    let tokens = tokens.zip(logprobs);
    let spoken = tokens.filter(|(token, _)| **token < vocabulary.end);
    let heard = spoken.map(|(token, logprob)| HeardToken {
        bytes: vocabulary.bytes(*token).to_vec(),
        logprob: *logprob,
    });
    heard.collect()
}

impl TranscriptSegment {
    /// Whether it has no duration or no text.
    pub fn is_empty(&self) -> bool {
        self.from >= self.to || self.text.trim().is_empty()
    }
}
