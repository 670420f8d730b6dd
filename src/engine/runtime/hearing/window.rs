//! Writing one window: again, and less sure of itself, where the text repeats itself or the model doubts it. Where no text
//! is any good, the best of them stays.

use std::sync::Arc;

use candle_core::{Error, Result};
use muster_kernels::cpu::{largest, log_sum_exp};

use super::HearingModel;
use super::rules::forbid;
use super::together::{TextAhead, TextScores};
use crate::networks::sound::WindowKeys;
use crate::runtime::sampling::uniform;

/// Tokens of one window at most, in parts of the decoder's context.
const SHARE_OF_CONTEXT: usize = 2;
const TEMPERATURES: [f32; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Texts that are drawn, of which the likeliest stays.
pub const CANDIDATES: usize = 5;
const MOST_COMPRESSION: f32 = 2.4;
const LEAST_LOGPROB: f32 = -1.0;
const SILENCE: f32 = 0.6;

/// What a window is asked for.
pub struct WindowTask<'a> {
    /// Start, language, task.
    pub opening: &'a [u32],
    /// Text before this window.
    pub earlier: &'a [u32],
    /// Only this, instead of the usual row.
    pub temperature: Option<f32>,
    pub seed: u64,
    /// Which window of its sound.
    pub index: u32,
}

/// The text of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowText {
    /// Text and times, without opening and end.
    pub tokens: Vec<u32>,
    pub average_logprob: f32,
    /// Probability of silence.
    pub silence: f32,
    pub temperature: f32,
    pub compression: f32,
}

#[derive(Default)]
struct WindowCandidate {
    index: u32,
    tokens: Vec<u32>,
    logprob: f32,
}

impl WindowText {
    /// The window is silent, and the text no good either.
    pub fn is_silent(&self) -> bool {
        self.silence > SILENCE && self.average_logprob <= LEAST_LOGPROB
    }

    fn is_poor(&self) -> bool {
        let is_unsure = self.average_logprob < LEAST_LOGPROB;
        (self.compression > MOST_COMPRESSION || is_unsure) && !(self.silence > SILENCE && is_unsure)
    }
}

pub async fn write(
    model: &HearingModel,
    window: &Arc<WindowKeys>,
    task: &WindowTask<'_>,
) -> Result<WindowText> {
    let only = task.temperature.filter(|&temperature| temperature > 0.0);
    let temperatures = match &only {
        Some(temperature) => std::slice::from_ref(temperature),
        None => &TEMPERATURES[..],
    };
    let mut tried: Vec<WindowText> = Vec::with_capacity(temperatures.len());
    for &temperature in temperatures {
        let found = attempt(model, window, task, temperature).await?;
        if !found.is_poor() {
            return Ok(found);
        }
        tried.push(found);
    }
    Ok(best_of_poor(tried))
}

/// The likeliest of those that do not repeat themselves, or else of all. Counts as drawn at the last temperature: it is
/// no good as the beginning of the next.
fn best_of_poor(tried: Vec<WindowText>) -> WindowText {
    let last = tried.last().map_or(0.0, |text| text.temperature);
    let rank = |text: &WindowText| (text.compression <= MOST_COMPRESSION, text.average_logprob);
    let best = tried.into_iter().max_by(|a, b| {
        let ((a, a_logprob), (b, b_logprob)) = (rank(a), rank(b));
        a.cmp(&b).then(a_logprob.total_cmp(&b_logprob))
    });
    WindowText {
        temperature: last,
        ..best.unwrap_or_default()
    }
}

async fn attempt(
    model: &HearingModel,
    window: &Arc<WindowKeys>,
    task: &WindowTask<'_>,
    temperature: f32,
) -> Result<WindowText> {
    let vocabulary = &model.vocabulary;
    let most = model.network.spec().context / SHARE_OF_CONTEXT;
    let mut prompt = Vec::new();
    if !task.earlier.is_empty() {
        prompt.push(vocabulary.earlier);
        let from = task.earlier.len().saturating_sub(most - 1);
        prompt.extend(&task.earlier[from..]);
    }
    let start = prompt.len();
    prompt.extend(task.opening);

    let last = prompt.len() - 1;
    let opened = TextAhead {
        cache: model.network.cache()?,
        tokens: prompt,
        wanted: vec![start, last],
    };
    let TextScores { cache, scores } = model.read_one(window, opened).await?;
    let [at_start, at_end] = <[_; 2]>::try_from(scores)
        .map_err(|_| Error::msg("two tokens were asked for, and not read"))?;
    let silence = (at_start[vocabulary.silence as usize] - log_sum_exp(&at_start)).exp();

    let count = if temperature > 0.0 { CANDIDATES } else { 1 };
    let mut caches = Vec::with_capacity(count);
    for _ in 1..count {
        caches.push(cache.fork()?);
    }
    caches.push(cache);
    let mut read: Vec<TextScores> = caches
        .into_iter()
        .map(|cache| TextScores {
            cache,
            scores: vec![at_end.clone()],
        })
        .collect();
    let mut going: Vec<WindowCandidate> = (0..count as u32).map(WindowCandidate::new).collect();
    let mut ended = Vec::with_capacity(count);
    for step in 0..most {
        let mut ahead = Vec::with_capacity(going.len());
        let mut still = Vec::with_capacity(going.len());
        for (mut candidate, text) in going.into_iter().zip(read) {
            let TextScores { cache, mut scores } = text;
            let Some(scores) = scores.first_mut() else {
                continue;
            };
            forbid(scores, &candidate.tokens, vocabulary);
            let place =
                u64::from(task.index) << 32 | ((temperature * 100.0) as u64) << 16 | step as u64;
            let draw = uniform(task.seed, candidate.index, place);
            let (token, logprob) = choose(scores, temperature, draw);
            candidate.logprob += logprob;
            if token == vocabulary.end {
                ended.push(candidate);
                continue;
            }
            candidate.tokens.push(token);
            still.push(candidate);
            ahead.push(TextAhead {
                cache,
                tokens: vec![token],
                wanted: vec![0],
            });
        }
        going = still;
        if step + 1 == most || going.is_empty() {
            break;
        }
        read = model.read(window, ahead).await?;
    }
    let mean =
        |candidate: &WindowCandidate| candidate.logprob / candidate.tokens.len().max(1) as f32;
    ended.extend(going);
    ended.sort_by_key(|candidate| candidate.index);
    let best = ended.into_iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    let Some(best) = best else {
        return Ok(WindowText::default());
    };
    let text = vocabulary.decode(&best.tokens);
    Ok(WindowText {
        average_logprob: best.logprob / (best.tokens.len() + 1) as f32,
        compression: compression(text.trim()),
        tokens: best.tokens,
        silence,
        temperature,
    })
}

/// A token and its log probability: the likeliest, or one drawn at a temperature.
fn choose(scores: &[f32], temperature: f32, draw: f64) -> (u32, f32) {
    let norm = log_sum_exp(scores);
    let likeliest = || {
        let best = largest(scores);
        scores.iter().position(|&score| score == best).unwrap_or(0)
    };
    let at = match temperature > 0.0 {
        false => likeliest(),
        true => {
            let scaled: Vec<f32> = scores.iter().map(|score| score / temperature).collect();
            let norm = log_sum_exp(&scaled);
            let mut left = draw;
            let found = scaled.iter().position(|score| {
                left -= f64::from(score - norm).exp();
                left < 0.0
            });
            found.unwrap_or_else(likeliest)
        }
    };
    (at as u32, scores[at] - norm)
}

/// How much shorter a text becomes: one that repeats itself becomes very short.
fn compression(text: &str) -> f32 {
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), 6);
    text.len() as f32 / packed.len() as f32
}

impl WindowCandidate {
    fn new(index: u32) -> Self {
        Self {
            index,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WindowText, best_of_poor};

    fn text(temperature: f32, average_logprob: f32, compression: f32) -> WindowText {
        WindowText {
            temperature,
            average_logprob,
            compression,
            ..WindowText::default()
        }
    }

    #[test]
    fn the_likeliest_text_that_does_not_repeat_itself_is_kept() {
        let best = best_of_poor(vec![
            text(0.0, -0.2, 6.0),
            text(0.2, -1.2, 1.5),
            text(0.4, -1.4, 1.2),
            text(1.0, -4.0, 1.1),
        ]);
        assert_eq!(best, text(1.0, -1.2, 1.5));
    }

    #[test]
    fn where_all_repeat_themselves_the_likeliest_is_kept() {
        let best = best_of_poor(vec![text(0.0, -0.2, 6.0), text(1.0, -0.6, 6.0)]);
        assert_eq!(best, text(1.0, -0.2, 6.0));
    }
}
