//! Writing one window: again, and less sure of itself, where the text repeats itself or the model doubts it.

use candle_core::{Result, Tensor};
use muster_kernels::cpu::{largest, log_sum_exp};

use super::HearingModel;
use super::rules::forbid;
use crate::networks::image::block_end;
use crate::networks::sound::{DecoderCache, SpokenText, WindowKeys};
use crate::runtime::sampling::uniform;

/// Tokens of one window at most, in parts of the decoder's context.
const SHARE_OF_CONTEXT: usize = 2;
const TEMPERATURES: [f32; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Texts that are drawn, of which the likeliest stays.
const CANDIDATES: usize = 5;
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

struct WindowCandidate {
    cache: DecoderCache,
    tokens: Vec<u32>,
    logprob: f32,
    has_ended: bool,
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
    cross: &WindowKeys,
    task: &WindowTask<'_>,
) -> Result<WindowText> {
    let only = task.temperature.filter(|&temperature| temperature > 0.0);
    let temperatures = match &only {
        Some(temperature) => std::slice::from_ref(temperature),
        None => &TEMPERATURES[..],
    };
    let mut found = WindowText::default();
    for &temperature in temperatures {
        found = attempt(model, cross, task, temperature).await?;
        if !found.is_poor() {
            break;
        }
    }
    Ok(found)
}

async fn attempt(
    model: &HearingModel,
    cross: &WindowKeys,
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

    let mut cache = model.network.cache()?;
    let states = model.network.read(&mut [SpokenText {
        cache: &mut cache,
        cross,
        tokens: &prompt,
    }])?;
    let at_start = model.network.logits(&states.narrow(0, start, 1)?)?;
    let at_start = at_start.flatten_all()?.to_vec1::<f32>()?;
    let silence = (at_start[vocabulary.silence as usize] - log_sum_exp(&at_start)).exp();
    block_end().await;

    let count = if temperature > 0.0 { CANDIDATES } else { 1 };
    let mut candidates = Vec::with_capacity(count);
    for _ in 1..count {
        candidates.push(WindowCandidate::new(cache.fork()?));
    }
    candidates.push(WindowCandidate::new(cache));
    let last = states.narrow(0, prompt.len() - 1, 1)?;
    let mut scores = vec![scores_of(model, &last)?.remove(0); count];
    for step in 0..most {
        let mut row = scores.iter_mut();
        for (index, candidate) in candidates.iter_mut().enumerate() {
            if candidate.has_ended {
                continue;
            }
            let Some(scores) = row.next() else { break };
            forbid(scores, &candidate.tokens, vocabulary);
            let place =
                u64::from(task.index) << 32 | ((temperature * 100.0) as u64) << 16 | step as u64;
            let draw = uniform(task.seed, index as u32, place);
            let (token, logprob) = choose(scores, temperature, draw);
            candidate.logprob += logprob;
            match token == vocabulary.end {
                true => candidate.has_ended = true,
                false => candidate.tokens.push(token),
            }
        }
        if step + 1 == most || candidates.iter().all(|candidate| candidate.has_ended) {
            break;
        }
        scores = advance(model, cross, &mut candidates)?;
        block_end().await;
    }
    let mean =
        |candidate: &WindowCandidate| candidate.logprob / candidate.tokens.len().max(1) as f32;
    let best = candidates
        .into_iter()
        .max_by(|a, b| mean(a).total_cmp(&mean(b)));
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

/// The last token of each text that goes on.
fn advance(
    model: &HearingModel,
    cross: &WindowKeys,
    candidates: &mut [WindowCandidate],
) -> Result<Vec<Vec<f32>>> {
    let going = candidates
        .iter_mut()
        .filter(|candidate| !candidate.has_ended);
    let mut texts: Vec<SpokenText> = going
        .map(|candidate| {
            let from = candidate.tokens.len().saturating_sub(1);
            SpokenText {
                cache: &mut candidate.cache,
                cross,
                tokens: &candidate.tokens[from..],
            }
        })
        .collect();
    let states = model.network.read(&mut texts)?;
    scores_of(model, &states)
}

fn scores_of(model: &HearingModel, states: &Tensor) -> Result<Vec<Vec<f32>>> {
    model.network.logits(states)?.to_vec2()
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
    fn new(cache: DecoderCache) -> Self {
        Self {
            cache,
            tokens: Vec::new(),
            logprob: 0.0,
            has_ended: false,
        }
    }
}
