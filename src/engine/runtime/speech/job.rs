//! Synthesizes one text, passage after passage: an asynchronous function that yields after each part of the network.

use std::sync::Arc;

use candle_core::Result;

use super::passages::Passage;
use super::voices::VoiceMix;
use super::{SPEECH_RATE, SpeechModel};
use crate::networks::sound::SpeechText;
use crate::runtime::diffusion::noise;
use crate::runtime::maker::{Advance, Output, PassReports, Pcm};

/// A text and how to speak it.
pub struct SpeechTask {
    pub passages: Vec<Passage>,
    pub voice: VoiceMix,
    pub speed: f32,
    pub seed: u64,
    pub index: u32,
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
    for (at, tokens) in (0..count).zip(&task.passages) {
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
        let samples = model.network.speak(&text).await?;
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
        news.put(Advance::Made(Output::Sound(pcm)));
    }
    Ok(())
}
