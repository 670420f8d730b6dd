//! Decodes a window, with rising temperatures while the text repeats itself or has low probability. If all attempts
//! fail, the best of them stays.

use std::sync::Arc;

use candle_core::{Error, Result};
use muster_kernels::cpu::{largest, log_sum_exp};

use super::HearingModel;
use super::beams::{Beam, Beams};
use super::rules::forbid;
use super::together::{TextAhead, TextScores};
use crate::networks::sound::{DecoderCache, WindowKeys};
use crate::runtime::sampling::uniform;

/// Tokens of one window at most, in parts of the decoder's context.
const SHARE_OF_CONTEXT: usize = 2;
const TEMPERATURES: [f32; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Sampled candidates, of which the likeliest stays.
pub const CANDIDATES: usize = 5;
const MOST_COMPRESSION: f32 = 2.4;
const LEAST_LOGPROB: f32 = -1.0;
const SILENCE: f32 = 0.6;

/// Parameters of a window.
pub struct WindowTask<'a> {
    /// Start, language, task.
    pub opening: &'a [u32],
    /// Text before this window.
    pub earlier: &'a [u32],
    /// Replaces the usual sequence of temperatures.
    pub temperature: Option<f32>,
    /// Texts that a search keeps at temperature 0; 1 takes the likeliest token each time.
    pub beams: usize,
    pub seed: u64,
    /// Which window of its sound.
    pub index: u32,
}

/// The text of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowText {
    /// Text and times, without opening and end.
    pub tokens: Vec<u32>,
    /// Log probability of each token.
    pub logprobs: Vec<f32>,
    pub average_logprob: f32,
    /// Probability of silence.
    pub silence: f32,
    pub temperature: f32,
    pub compression: f32,
}

#[derive(Default)]
struct WindowCandidate {
    index: u32,
    text: Beam,
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

/// The likeliest text without repetition, or else the likeliest of all. Counts as sampled at the last temperature, so
/// that the next window does not continue from it.
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

pub async fn attempt(
    model: &HearingModel,
    window: &Arc<WindowKeys>,
    task: &WindowTask<'_>,
    temperature: f32,
) -> Result<WindowText> {
    let opened = open(model, window, task).await?;
    let silence = opened.silence;
    let best = match temperature > 0.0 || task.beams < 2 {
        true => draw(model, window, opened, (task, temperature)).await?,
        false => search(model, window, opened, task.beams).await?,
    };
    let Some(best) = best else {
        return Ok(WindowText::default());
    };
    let text = model.vocabulary.decode(&best.tokens);
    Ok(WindowText {
        average_logprob: best.logprob / (best.tokens.len() + 1) as f32,
        compression: compression(text.trim()),
        tokens: best.tokens,
        logprobs: best.logprobs,
        silence,
        temperature,
    })
}

/// A window after prefill of its prompt.
struct OpenedWindow {
    cache: DecoderCache,
    /// After the opening.
    scores: Vec<f32>,
    /// Probability of silence.
    silence: f32,
}

async fn open(
    model: &HearingModel,
    window: &Arc<WindowKeys>,
    task: &WindowTask<'_>,
) -> Result<OpenedWindow> {
    let vocabulary = &model.vocabulary;
    let mut prompt = Vec::new();
    if !task.earlier.is_empty() {
        prompt.push(vocabulary.earlier);
        let from = task.earlier.len().saturating_sub(most_tokens(model) - 1);
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
    Ok(OpenedWindow {
        cache,
        silence: (at_start[vocabulary.silence as usize] - log_sum_exp(&at_start)).exp(),
        scores: at_end,
    })
}

/// Limit of a window's text.
fn most_tokens(model: &HearingModel) -> usize {
    model.network.spec().context / SHARE_OF_CONTEXT
}

/// The likeliest token after the other, or the likeliest of several texts that are sampled at a temperature.
async fn draw(
    model: &HearingModel,
    window: &Arc<WindowKeys>,
    opened: OpenedWindow,
    (task, temperature): (&WindowTask<'_>, f32),
) -> Result<Option<Beam>> {
    let vocabulary = &model.vocabulary;
    let most = most_tokens(model);
    let count = if temperature > 0.0 { CANDIDATES } else { 1 };
    let mut caches = Vec::with_capacity(count);
    for _ in 1..count {
        caches.push(opened.cache.fork()?);
    }
    caches.push(opened.cache);
    let mut read: Vec<TextScores> = caches
        .into_iter()
        .map(|cache| TextScores {
            cache,
            scores: vec![opened.scores.clone()],
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
            forbid(scores, &candidate.text.tokens, vocabulary);
            let place =
                u64::from(task.index) << 32 | ((temperature * 100.0) as u64) << 16 | step as u64;
            let draw = uniform(task.seed, candidate.index, place);
            let (token, logprob) = choose(scores, temperature, draw);
            candidate.text.logprob += logprob;
            if token == vocabulary.end {
                ended.push(candidate);
                continue;
            }
            candidate.text.tokens.push(token);
            candidate.text.logprobs.push(logprob);
            still.push(candidate);
            ahead.push(next(cache, token));
        }
        going = still;
        if step + 1 == most || going.is_empty() {
            break;
        }
        read = model.read(window, ahead).await?;
    }
    ended.extend(going);
    ended.sort_by_key(|candidate| candidate.index);
    let texts = ended.into_iter().map(|candidate| candidate.text);
    Ok(texts.max_by(|a, b| a.mean_logprob().total_cmp(&b.mean_logprob())))
}

/// The likeliest text that a beam search finds.
async fn search(
    model: &HearingModel,
    window: &Arc<WindowKeys>,
    opened: OpenedWindow,
    size: usize,
) -> Result<Option<Beam>> {
    let vocabulary = &model.vocabulary;
    let most = most_tokens(model);
    let mut beams = Beams::new(size, vocabulary.end);
    let mut read = vec![TextScores {
        cache: opened.cache,
        scores: vec![opened.scores],
    }];
    for step in 0..most {
        let (mut caches, mut scores) = (Vec::with_capacity(size), Vec::with_capacity(size));
        for (beam, text) in beams.going().iter().zip(read) {
            let mut after = text.scores.concat();
            forbid(&mut after, &beam.tokens, vocabulary);
            caches.push(Some(text.cache));
            scores.push(after);
        }
        let sources = beams.advance(&scores);
        if step + 1 == most || beams.is_complete() {
            break;
        }
        let mut ahead = Vec::with_capacity(size);
        for (index, (&source, beam)) in sources.iter().zip(beams.going()).enumerate() {
            // The last text that comes from another takes its cache along.
            let cache = match sources[index + 1..].contains(&source) {
                true => caches[source]
                    .as_ref()
                    .map(DecoderCache::fork)
                    .transpose()?,
                false => caches[source].take(),
            };
            if let (Some(cache), Some(&token)) = (cache, beam.tokens.last()) {
                ahead.push(next(cache, token));
            }
        }
        read = model.read(window, ahead).await?;
    }
    Ok(beams.best())
}

fn next(cache: DecoderCache, token: u32) -> TextAhead {
    TextAhead {
        cache,
        tokens: vec![token],
        wanted: vec![0],
    }
}

/// A token and its log probability: the likeliest, or a sample at a temperature.
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
