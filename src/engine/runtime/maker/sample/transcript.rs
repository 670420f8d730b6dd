//! The loudness of each second.

use super::SampleRequest;
use crate::runtime::hearing::{HeardToken, TimedWord, TranscriptRequest, TranscriptSegment};
use crate::runtime::maker::{Output, TranscriptPart};

impl SampleRequest for TranscriptRequest {
    fn output(&self) -> Output {
        Output::Transcript(ticks(self))
    }
}

/// A segment per second of the recording, whose text is the maximum level in hundredths.
fn ticks(transcript: &TranscriptRequest) -> TranscriptPart {
    let sound = &transcript.sound;
    let seconds = sound.samples.chunks(sound.rate.max(1) as usize).enumerate();
    let segments = seconds.map(|(at, samples)| {
        let loudest = samples
            .iter()
            .fold(0.0f32, |most, sample| most.max(sample.abs()));
        let text = format!(" {}", (loudest * 100.0).round());
        let (from, to) = (
            at as f64,
            at as f64 + samples.len() as f64 / f64::from(sound.rate),
        );
        let word = TimedWord {
            word: text.clone(),
            from,
            to,
            probability: 1.0,
        };
        let token = HeardToken {
            bytes: text.clone().into_bytes(),
            logprob: -0.25,
        };
        TranscriptSegment {
            from,
            to,
            text,
            words: if transcript.wants_words {
                vec![word]
            } else {
                Vec::new()
            },
            heard: if transcript.wants_logprobs {
                vec![token]
            } else {
                Vec::new()
            },
            ..TranscriptSegment::default()
        }
    });
    TranscriptPart {
        // The last of several, so that a test sees the whole list.
        language: transcript
            .languages
            .last()
            .cloned()
            .unwrap_or_else(|| "en".to_owned()),
        segments: segments.collect(),
    }
}
