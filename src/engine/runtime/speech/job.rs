//! Synthesizes one text, passage after passage: an asynchronous function that yields after each part of the network.

use std::sync::Arc;

use candle_core::Result;

use super::passages::Passage;
use super::voices::VoiceMix;
use super::{SPEECH_RATE, SpeechModel};
use crate::networks::sound::{SpeechText, SpokenSound};
use crate::runtime::diffusion::noise;
use crate::runtime::maker::{Advance, Output, PassReports, Pcm, SpokenWord};

/// A text and how to speak it.
pub struct SpeechTask {
    pub passages: Vec<Passage>,
    pub voice: VoiceMix,
    pub speed: f32,
    pub seed: u64,
    pub index: u32,
    /// Times of the words come before each sound.
    pub wants_words: bool,
}

/// Silence for a text without words, in samples.
const PAUSE: usize = SPEECH_RATE as usize / 4;

pub async fn speak(model: Arc<SpeechModel>, task: SpeechTask, news: PassReports) -> Result<()> {
    if task.passages.is_empty() {
        news.put(Advance::Step {
            at: 1,
            of: 1,
            preview: None,
        });
        news.put(Advance::Made(Output::Sound(Pcm {
            rate: SPEECH_RATE,
            channels: 1,
            samples: vec![0.0; PAUSE],
        })));
    }
    let count = task.passages.len() as u32;
    let mut spoken_samples = 0;
    for (at, passage) in (0..count).zip(&task.passages) {
        let tokens = &passage.tokens;
        // Distinct noise per passage and per index of a batch.
        let draw = task.index.wrapping_mul(1 << 16).wrapping_add(at);
        let noise = |count: usize| -> Vec<f32> {
            let numbers = noise::counted(task.seed, draw, 0, count).into_iter();
            numbers.map(|number| number as f32).collect()
        };
        let text = SpeechText {
            tokens,
            voice: &model.voices.vector(&task.voice, tokens.len()),
            speed: task.speed,
            noise: &noise,
        };
        let SpokenSound { samples, durations } = model.network.speak(&text).await?;
        news.put(Advance::Step {
            at: at + 1,
            of: count,
            preview: None,
        });
        let pcm = Pcm {
            rate: SPEECH_RATE,
            channels: 1,
            samples,
        };
        if let Some(at) = pcm.flaw() {
            candle_core::bail!("the network spoke a sample that is no number, at {at}");
        }
        if task.wants_words && !passage.words.is_empty() {
            let words = timed(passage, &durations, (spoken_samples, pcm.samples.len()));
            news.put(Advance::Made(Output::SpokenWords(words)));
        }
        spoken_samples += pcm.samples.len();
        news.put(Advance::Made(Output::Sound(pcm)));
    }
    Ok(())
}

/// The times of a passage's words. `begin` samples were spoken before its `count` samples.
fn timed(
    passage: &Passage,
    durations: &[usize],
    (begin, count): (usize, usize),
) -> Vec<SpokenWord> {
    let frames: usize = durations.iter().sum();
    let samples_per_frame = count as f64 / frames.max(1) as f64;
    // The first duration is that of the padding before the text.
    let until = |token: usize| -> f64 {
        let frames: usize = durations.iter().take(token + 1).sum();
        (begin as f64 + frames as f64 * samples_per_frame) / f64::from(SPEECH_RATE)
    };
    let words = passage.words.iter().map(|word| SpokenWord {
        word: word.text.clone(),
        from: until(word.tokens.start),
        to: until(word.tokens.end),
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::{Passage, timed};
    use crate::runtime::speech::passages::PassageWord;

    #[test]
    fn words_sound_while_their_tokens_do() {
        let word = |text: &str, tokens| PassageWord {
            text: text.to_owned(),
            tokens,
        };
        let passage = Passage {
            tokens: vec![1, 2, 3, 4],
            words: vec![word("a", 0..2), word("b", 3..4)],
        };
        // Ten frames of 2,400 samples, after a second of sound.
        let durations = [1, 2, 1, 1, 3, 2];
        let words = timed(&passage, &durations, (24_000, 24_000));
        let times = words.iter().map(|word| (word.from, word.to));
        assert_eq!(times.collect::<Vec<_>>(), [(1.1, 1.4), (1.5, 1.8)]);
    }
}
