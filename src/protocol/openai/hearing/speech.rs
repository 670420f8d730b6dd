//! Sounds of which only speech is transcribed: times of the transcript become those of the whole sound again.

use crate::job::{Transcript, TranscriptSegment};

/// Which parts of a sound count as speech.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeechSettings {
    /// From 0 to 1: the certainty at which speech begins.
    pub threshold: f64,
    /// Shorter silence inside of speech is kept.
    pub silence_millis: u32,
    /// Kept before and after speech.
    pub padding_millis: u32,
}

/// The parts of a sound that were transcribed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptSpeech {
    /// From and to, in milliseconds of the whole sound, in order. Empty where there was no speech.
    pub spans: Vec<(u64, u64)>,
    /// Length of the transcribed sound.
    pub millis: u64,
}

/// Whether a time begins or ends something: between two spans it belongs to the later or to the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}

impl Default for SpeechSettings {
    /// The defaults of faster-whisper.
    fn default() -> Self {
        Self {
            threshold: 0.5,
            silence_millis: 2000,
            padding_millis: 400,
        }
    }
}

impl KeptSpeech {
    /// The transcript with times of the whole sound; without speech, an empty one.
    pub fn restored(&self, transcript: Transcript) -> Transcript {
        let segments = match self.spans.is_empty() {
            true => Vec::new(),
            false => transcript.segments,
        };
        let segments = segments.into_iter().map(|segment| self.segment(segment));
        Transcript {
            segments: segments.collect(),
            ..transcript
        }
    }

    fn segment(&self, mut segment: TranscriptSegment) -> TranscriptSegment {
        segment.start = self.time(segment.start, Edge::Start);
        segment.end = self.time(segment.end, Edge::End).max(segment.start);
        let seek = self.time(f64::from(segment.seek) / 100.0, Edge::Start);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sound has fewer hundredths of a second than there are numbers"
        )]
        let seek = (seek * 100.0).round() as u32;
        segment.seek = seek;
        for word in &mut segment.words {
            word.start = self.time(word.start, Edge::Start);
            word.end = self.time(word.end, Edge::End).max(word.start);
        }
        segment
    }

    fn time(&self, seconds: f64, edge: Edge) -> f64 {
        let wanted = seconds * 1000.0;
        let (mut kept, mut end) = (0.0, 0.0);
        for &(from, to) in &self.spans {
            let length = to.saturating_sub(from) as f64;
            let inside = wanted - kept;
            if inside < length || (edge == Edge::End && inside <= length) {
                return (from as f64 + inside.max(0.0)) / 1000.0;
            }
            kept += length;
            end = to as f64;
        }
        end / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Edge, KeptSpeech};
    use crate::job::{Transcript, TranscriptSegment, TranscriptWord};

    fn kept() -> KeptSpeech {
        KeptSpeech {
            spans: vec![(5000, 8000), (20_000, 21_000)],
            millis: 4000,
        }
    }

    #[test]
    fn times_are_those_of_the_whole_sound() {
        let check = |seconds: f64, edge: Edge, expected: f64| {
            assert_eq!(kept().time(seconds, edge), expected, "{seconds} {edge:?}");
        };
        check(0.0, Edge::Start, 5.0);
        check(2.5, Edge::Start, 7.5);
        check(3.0, Edge::Start, 20.0);
        check(3.0, Edge::End, 8.0);
        check(3.5, Edge::End, 20.5);
        check(9.0, Edge::End, 21.0);
    }

    #[test]
    fn segments_and_words_are_restored_and_none_is_left_without_speech() {
        let segment = TranscriptSegment {
            start: 2.0,
            end: 3.5,
            seek: 300,
            words: vec![TranscriptWord {
                word: " a".to_owned(),
                start: 2.0,
                end: 3.0,
                probability: 1.0,
            }],
            ..TranscriptSegment::default()
        };
        let transcript = Transcript {
            language: "en".to_owned(),
            segments: vec![segment],
        };
        let restored = kept().restored(transcript.clone());
        let found = &restored.segments[0];
        assert_eq!((found.start, found.end, found.seek), (7.0, 20.5, 2000));
        assert_eq!((found.words[0].start, found.words[0].end), (7.0, 8.0));
        let silent = KeptSpeech::default().restored(transcript);
        assert_eq!((silent.segments.len(), &*silent.language), (0, "en"));
    }
}
