//! Voice activity detection: the parts of a sound with speech. The detector is a small recurrent network of the crate
//! `earshot`, which scores 16 ms at a time; the rule for spans is that of faster-whisper.

use std::ops::Range;

use earshot::Detector;

/// Sample rate of the detector.
pub const SPEECH_RATE: u32 = 16_000;
const SAMPLES_PER_MILLI: u64 = SPEECH_RATE as u64 / 1000;
/// Samples of one score.
const FRAME: usize = 256;
/// Speech goes on down to this much below the threshold at which it begins.
const HYSTERESIS: f32 = 0.15;
const LEAST_THRESHOLD: f32 = 0.01;
/// Kept of a sound without speech, since no codec and no model takes an empty one.
const OPENING: usize = SPEECH_RATE as usize;

/// Which parts of a sound count as speech.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeechRule {
    /// Score at which speech begins, from 0 to 1.
    pub threshold: f32,
    /// Shorter silence inside of speech is kept.
    pub silence_millis: u32,
    /// Kept before and after speech.
    pub padding_millis: u32,
}

/// Drops the parts of a sound without speech, block by block. The sound has one channel at [`SPEECH_RATE`].
pub struct SpeechFilter {
    detector: Box<Detector>,
    rule: SpeechRule,
    /// Samples of an incomplete frame.
    frame: Vec<f32>,
    /// Samples since `pending_from` that are neither kept nor dropped.
    pending: Vec<f32>,
    pending_from: u64,
    /// End of the last frame with speech, while speech lasts.
    spoken_until: Option<u64>,
    spans: Vec<Range<u64>>,
    /// Empty once there was speech.
    opening: Vec<f32>,
}

/// The end of a filtered sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeechSpans {
    /// Sample positions of the kept parts, in order. Empty without speech, when the first second is kept.
    pub spans: Vec<Range<u64>>,
    /// Number of samples that were kept.
    pub kept: u64,
}

impl Default for SpeechRule {
    /// The defaults of faster-whisper.
    fn default() -> Self {
        Self {
            threshold: 0.5,
            silence_millis: 2000,
            padding_millis: 400,
        }
    }
}

impl SpeechFilter {
    pub fn new(rule: SpeechRule) -> Self {
        Self {
            detector: Detector::default_boxed(),
            rule,
            frame: Vec::with_capacity(FRAME),
            pending: Vec::new(),
            pending_from: 0,
            spoken_until: None,
            spans: Vec::new(),
            opening: Vec::new(),
        }
    }

    /// The samples that are kept, of these and earlier ones.
    pub fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        let mut kept = Vec::new();
        let mut rest = samples;
        while !rest.is_empty() {
            let (taken, left) = rest.split_at(rest.len().min(FRAME - self.frame.len()));
            self.frame.extend(taken);
            rest = left;
            if self.frame.len() == FRAME {
                let frame = std::mem::take(&mut self.frame);
                self.take(&frame, frame.len(), &mut kept);
                self.frame = frame;
                self.frame.clear();
            }
        }
        kept
    }

    /// The last samples, and all spans.
    pub fn finish(mut self) -> (Vec<f32>, SpeechSpans) {
        let mut kept = Vec::new();
        let mut frame = std::mem::take(&mut self.frame);
        let found = frame.len();
        if found > 0 {
            frame.resize(FRAME, 0.0);
            self.take(&frame, found, &mut kept);
        }
        if self.spoken_until.is_some() {
            self.keep(self.pending.len(), &mut kept);
        }
        let lengths = self.spans.iter().map(|span| span.end - span.start);
        let mut spans = SpeechSpans {
            kept: lengths.sum(),
            spans: self.spans,
        };
        if spans.spans.is_empty() {
            spans.kept = self.opening.len() as u64;
            kept = self.opening;
        }
        (kept, spans)
    }

    /// A frame whose first `found` samples are of the sound.
    fn take(&mut self, frame: &[f32], found: usize, kept: &mut Vec<f32>) {
        let clipped: Vec<f32> = frame.iter().map(|sample| clip(*sample)).collect();
        let score = self.detector.predict_f32(&clipped);
        let frame = &frame[..found];
        if self.spans.is_empty() {
            let left = OPENING.saturating_sub(self.opening.len());
            self.opening.extend(&frame[..found.min(left)]);
        }
        self.pending.extend(frame);
        let until = self.pending_from + self.pending.len() as u64;
        let threshold = match self.spoken_until {
            Some(_) => (self.rule.threshold - HYSTERESIS).max(LEAST_THRESHOLD),
            None => self.rule.threshold,
        };
        if score >= threshold {
            self.begin(until - found as u64);
            self.keep(self.pending.len(), kept);
            self.spoken_until = Some(until);
        } else if let Some(spoken) = self.spoken_until
            && until - spoken >= samples(self.rule.silence_millis)
        {
            let padding = (spoken + samples(self.rule.padding_millis)).min(until);
            self.keep(index(padding - self.pending_from), kept);
            self.spoken_until = None;
        }
        if self.spoken_until.is_none() {
            let padding = index(samples(self.rule.padding_millis));
            self.drop_pending(self.pending.len().saturating_sub(padding));
        }
    }

    /// Begins a span before speech that was found at this position, unless one lasts.
    fn begin(&mut self, found: u64) {
        if self.spoken_until.is_some() {
            return;
        }
        let from = found.saturating_sub(samples(self.rule.padding_millis));
        self.drop_pending(index(from.saturating_sub(self.pending_from)));
        let from = self.pending_from;
        if self.spans.last().is_none_or(|last| last.end != from) {
            self.spans.push(from..from);
        }
        self.opening = Vec::new();
    }

    fn keep(&mut self, count: usize, kept: &mut Vec<f32>) {
        kept.extend(self.pending.drain(..count));
        self.pending_from += count as u64;
        if let Some(span) = self.spans.last_mut() {
            span.end = self.pending_from;
        }
    }

    fn drop_pending(&mut self, count: usize) {
        self.pending.drain(..count);
        self.pending_from += count as u64;
    }
}

fn samples(millis: u32) -> u64 {
    u64::from(millis) * SAMPLES_PER_MILLI
}

fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Not a number becomes silence.
fn clip(sample: f32) -> f32 {
    match sample.is_nan() {
        true => 0.0,
        false => sample.clamp(-1.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{SPEECH_RATE, SpeechFilter, SpeechRule, SpeechSpans};
    use crate::sound::listen;

    /// `demo-speech` says a sentence.
    const SPEECH: &[u8] = include_bytes!("../../../models/demo-hearing/reference.wav");

    fn speech() -> Vec<f32> {
        let sound = listen(SPEECH, SPEECH_RATE, 60.0).unwrap();
        sound.into_samples()
    }

    fn silence(seconds: f64) -> Vec<f32> {
        vec![0.0; (seconds * f64::from(SPEECH_RATE)) as usize]
    }

    fn filtered(samples: &[f32], block: usize) -> (Vec<f32>, SpeechSpans) {
        let mut filter = SpeechFilter::new(SpeechRule::default());
        let mut kept = Vec::new();
        for part in samples.chunks(block) {
            kept.extend(filter.push(part));
        }
        let (last, spans) = filter.finish();
        kept.extend(last);
        (kept, spans)
    }

    #[test]
    fn silence_around_speech_is_dropped_and_the_rest_is_unchanged() {
        let speech = speech();
        let seconds = speech.len() as f64 / f64::from(SPEECH_RATE);
        let sound = [
            silence(8.0),
            speech.clone(),
            silence(6.0),
            speech.clone(),
            silence(5.0),
        ]
        .concat();
        let (kept, found) = filtered(&sound, 1000);
        assert_eq!(found.spans.len(), 2, "{found:?}");
        let whole: Vec<f32> = found
            .spans
            .iter()
            .flat_map(|span| sound[span.start as usize..span.end as usize].to_vec())
            .collect();
        assert_eq!(kept, whole);
        assert_eq!(found.kept, kept.len() as u64);
        let kept = kept.len() as f64 / f64::from(SPEECH_RATE);
        assert!(
            kept > 1.4 * seconds && kept < 2.0 * seconds + 3.2,
            "{kept} s of {seconds}"
        );
        let from = found.spans[0].start as f64 / f64::from(SPEECH_RATE);
        assert!((7.4..8.4).contains(&from), "{from}");
    }

    #[test]
    fn blocks_do_not_matter_and_speech_at_both_ends_is_kept() {
        let speech = speech();
        let (kept, found) = filtered(&speech, 37);
        assert_eq!((kept, found.clone()), filtered(&speech, speech.len()));
        assert_eq!(found.spans.len(), 1, "{found:?}");
    }

    #[test]
    fn without_speech_the_first_second_is_left_and_no_span() {
        for sound in [silence(3.0), silence(0.5), vec![f32::NAN; 40_000]] {
            let (kept, found) = filtered(&sound, 500);
            assert!(found.spans.is_empty(), "{found:?}");
            assert_eq!(kept.len(), sound.len().min(SPEECH_RATE as usize));
            assert_eq!(found.kept, kept.len() as u64);
        }
    }
}
