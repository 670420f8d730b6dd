//! One text, passage after passage: an asynchronous function that stops after each part of the network.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use candle_core::Result;

use super::passages::Passage;
use super::voices::VoiceMix;
use super::{SPEECH_RATE, SpeechModel};
use crate::networks::sound::SpeechText;
use crate::runtime::diffusion::noise;
use crate::runtime::maker::{Advance, Making, Output, Pcm};
use crate::runtime::{Failure, model};

/// A text and how to speak it.
pub struct SpeechTask {
    pub passages: Vec<Passage>,
    pub voice: VoiceMix,
    pub speed: f32,
    pub seed: u64,
    pub index: u32,
}

/// A text on its way.
pub struct SpeechJob {
    speech: Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>>,
    news: SpeechNews,
}

/// News that were not delivered yet.
#[derive(Clone, Default)]
struct SpeechNews(Arc<Mutex<VecDeque<Advance>>>);

impl SpeechJob {
    pub fn new(model: Arc<SpeechModel>, task: SpeechTask) -> Self {
        let news = SpeechNews::default();
        let speech = Box::pin(speak(model, task, news.clone()));
        Self {
            speech: Some(speech),
            news,
        }
    }
}

impl Making for SpeechJob {
    fn advance(&mut self) -> std::result::Result<Advance, Failure> {
        if let Some(news) = self.news.take() {
            return Ok(news);
        }
        let Some(speech) = &mut self.speech else {
            return Ok(Advance::Done);
        };
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(spoken) = speech.as_mut().poll(&mut context) {
            self.speech = None;
            spoken.map_err(|error| Failure::internal(model::plain(&error)))?;
        }
        Ok(self.news.take().unwrap_or(Advance::Busy))
    }
}

impl SpeechNews {
    fn take(&self) -> Option<Advance> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    fn put(&self, news: Advance) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(news);
    }
}

async fn speak(model: Arc<SpeechModel>, task: SpeechTask, news: SpeechNews) -> Result<()> {
    let count = task.passages.len() as u32;
    for (at, tokens) in (0..count).zip(&task.passages) {
        // A draw for each passage of each sound of a series.
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
        news.put(Advance::Made(Output::Sound(Pcm {
            rate: SPEECH_RATE,
            channels: 1,
            samples,
        })));
    }
    Ok(())
}
