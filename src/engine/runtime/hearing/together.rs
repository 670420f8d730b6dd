//! Batches the decoder passes of all jobs, so that the weights are read from memory once for all of them.
//!
//! A job queues its texts and yields. If no other job has scored them by its next turn, it does so itself, together
//! with the texts queued meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use candle_core::{Error, Result, Tensor, bail};

use crate::networks::blocks::block_end;
use crate::networks::sound::{DecoderCache, SpokenText, Whisper, WindowKeys};

/// An unfinished text of a window.
pub struct TextAhead {
    pub cache: DecoderCache,
    pub tokens: Vec<u32>,
    /// Indices of the tokens whose scores are requested.
    pub wanted: Vec<usize>,
}

/// The text's KV cache afterwards, and scores of all tokens after each requested one.
pub struct TextScores {
    pub cache: DecoderCache,
    pub scores: Vec<Vec<f32>>,
}

/// The queue of texts to score.
#[derive(Default)]
pub struct SharedReading(Mutex<Vec<LeftTexts>>);

/// The texts of one window, and the slot for their scores.
struct LeftTexts {
    window: Arc<WindowKeys>,
    texts: Vec<TextAhead>,
    found: Weak<FoundScores>,
}

type FoundScores = Mutex<Option<Result<Vec<TextScores>>>>;

impl SharedReading {
    /// A separate block.
    pub async fn read(
        &self,
        network: &Whisper,
        window: &Arc<WindowKeys>,
        texts: Vec<TextAhead>,
    ) -> Result<Vec<TextScores>> {
        let most = network.spec().context;
        let length = |text: &TextAhead| text.cache.length() + text.tokens.len();
        if let Some(long) = texts.iter().map(length).find(|&length| length > most) {
            bail!("a text has {long} tokens, but the decoder reads {most}");
        }
        let found = Arc::new(FoundScores::default());
        lock(&self.0).push(LeftTexts {
            window: Arc::clone(window),
            texts,
            found: Arc::downgrade(&found),
        });
        block_end().await;
        let by_others = lock(&found).take();
        if let Some(found) = by_others {
            return found;
        }
        self.read_all(network);
        let own = lock(&found).take();
        own.unwrap_or_else(|| Err(Error::msg("a text was left, but not read")))
    }

    #[cfg(test)]
    pub fn left(&self) -> usize {
        lock(&self.0).len()
    }

    /// All that was left by jobs that are still there.
    fn read_all(&self, network: &Whisper) {
        let mut left = std::mem::take(&mut *lock(&self.0));
        left.retain(|one| one.found.strong_count() > 0);
        let mut read = scores_of(network, &mut left).map(Vec::into_iter);
        for LeftTexts { texts, found, .. } in left {
            let scores = match &mut read {
                Ok(rows) => {
                    let texts = texts.into_iter().map(|text| TextScores {
                        scores: rows.take(text.wanted.len()).collect(),
                        cache: text.cache,
                    });
                    Ok(texts.collect())
                }
                Err(error) => Err(Error::msg(error.to_string())),
            };
            if let Some(found) = found.upgrade() {
                *lock(&found) = Some(scores);
            }
        }
    }
}

/// A row per requested token, text after text.
fn scores_of(network: &Whisper, left: &mut [LeftTexts]) -> Result<Vec<Vec<f32>>> {
    let mut wanted = Vec::new();
    let mut spoken = Vec::new();
    let mut start = 0;
    for LeftTexts { window, texts, .. } in left {
        for text in texts {
            wanted.extend(text.wanted.iter().map(|row| (start + row) as u32));
            start += text.tokens.len();
            spoken.push(SpokenText {
                cache: &mut text.cache,
                cross: window,
                tokens: &text.tokens,
            });
        }
    }
    let states = network.read(&mut spoken)?;
    let rows = Tensor::new(wanted, states.device())?;
    network.logits(&states.index_select(&rows, 0)?)?.to_vec2()
}

/// A panic leaves no value half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
