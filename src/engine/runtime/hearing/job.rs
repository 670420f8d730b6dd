//! Transcribes one recording, window after window: an asynchronous function that yields after each layer and token.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::HearingModel;
use super::segments::cut;
use super::together::TextAhead;
use super::window::{WindowTask, write};
use super::words::add_words;
use crate::networks::blocks::block_end;
use crate::networks::sound::{Features, LONGEST_WINDOW, WindowKeys, leveled};
use crate::runtime::hearing::TranscriptRequest;
use crate::runtime::maker::{Advance, Output, PassReports, TranscriptPart};

/// Above this temperature a text is no good as the beginning of the next.
const LEAST_TRUSTED: f32 = 0.5;
const FRAMES_PER_SECOND: usize = 100;

pub async fn hear(
    model: Arc<HearingModel>,
    request: TranscriptRequest,
    news: PassReports,
) -> Result<()> {
    let vocabulary = &model.vocabulary;
    let samples = request.sound.samples.as_slice();
    let sound = HeardSound::open(&model, samples).await?;
    let mut first = None;
    let named = request.languages.iter();
    let named = named.map(|code| vocabulary.language(code).map_err(candle_core::Error::msg));
    let named: Vec<Option<u32>> = named.collect::<Result<_>>()?;
    let language = match named.as_slice() {
        [language] => *language,
        _ if !vocabulary.is_multilingual() => None,
        several => {
            let among: Vec<u32> = match several {
                [] => vocabulary.language_tokens().collect(),
                several => several.iter().copied().flatten().collect(),
            };
            let cross = sound.window(0).await?;
            let language = detect(&model, &cross, &among).await?;
            first = Some(cross);
            Some(language)
        }
    };
    let code = language.and_then(|token| vocabulary.language_code(token));
    let code = code.unwrap_or("en").to_owned();
    let task = match request.is_translated {
        true => vocabulary.translate,
        false => vocabulary.transcribe,
    };
    let opening = match language {
        Some(language) => vec![vocabulary.start, language, task],
        None => vec![vocabulary.start],
    };
    let mut written = match &request.prompt {
        Some(prompt) if !prompt.trim().is_empty() => {
            let text = format!(" {}", prompt.trim());
            let tokens = vocabulary.encode(&text);
            tokens.map_err(candle_core::Error::msg)?
        }
        _ => Vec::new(),
    };
    let mut reset = 0;
    let (mut seek, mut index) = (0, 0);
    let mut last_word = 0.0;
    let seconds = |frames: usize| frames.div_ceil(FRAMES_PER_SECOND) as u32;
    news.put(Advance::Made(Output::Transcript(TranscriptPart {
        language: code.clone(),
        segments: Vec::new(),
    })));
    while seek < sound.frames {
        let cross = match first.take() {
            Some(cross) => cross,
            None => sound.window(seek).await?,
        };
        let frames = sound.window_frames().min(sound.frames - seek);
        let task = WindowTask {
            opening: &opening,
            earlier: &written[reset..],
            temperature: request.temperature,
            beams: request.beams.unwrap_or(1),
            seed: request.seed.unwrap_or(0),
            index,
        };
        let text = write(&model, &cross, &task).await?;
        index += 1;
        if text.is_silent() {
            seek += frames;
            news.put(step(seconds(seek), seconds(sound.frames)));
            continue;
        }
        let (mut segments, mut advanced) = cut(&text, seek, frames, vocabulary);
        if request.wants_words {
            let ends = ends_alone(&text.tokens, vocabulary);
            add_words(&model, &cross, &opening, frames, &mut segments, last_word)?;
            let last = segments.iter().flat_map(|segment| &segment.words).last();
            if let Some(last) = last {
                last_word = last.to;
                let offset = seek as f64 / FRAMES_PER_SECOND as f64;
                if !ends && last.to > offset {
                    advanced = ((last.to - offset) * FRAMES_PER_SECOND as f64).round() as usize;
                }
            }
        }
        // A window that would begin again where it began never ends.
        seek += if advanced == 0 { frames } else { advanced };
        segments.retain(|segment| !segment.is_empty());
        if !request.wants_logprobs {
            segments
                .iter_mut()
                .for_each(|segment| segment.heard.clear());
        }
        written.extend(segments.iter().flat_map(|segment| &segment.tokens));
        if text.temperature > LEAST_TRUSTED {
            reset = written.len();
        }
        if !segments.is_empty() {
            let language = code.clone();
            let part = TranscriptPart { language, segments };
            news.put(Advance::Made(Output::Transcript(part)));
        }
        news.put(step(seconds(seek.min(sound.frames)), seconds(sound.frames)));
    }
    Ok(())
}

fn ends_alone(tokens: &[u32], vocabulary: &super::vocabulary::HearingVocabulary) -> bool {
    let mut last = tokens.iter().rev().map(|&token| vocabulary.is_time(token));
    last.next() == Some(true) && last.next() == Some(false)
}

fn step(at: u32, of: u32) -> Advance {
    Advance::Step {
        at: at.min(of),
        of,
        preview: None,
    }
}

/// The likeliest language of a window, as a token of these.
async fn detect(model: &HearingModel, window: &Arc<WindowKeys>, among: &[u32]) -> Result<u32> {
    let begun = TextAhead {
        cache: model.network.cache()?,
        tokens: vec![model.vocabulary.start],
        wanted: vec![0],
    };
    let scores = model.read_one(window, begun).await?.scores.concat();
    let score = |token: &u32| scores[*token as usize];
    let best = among.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
    best.copied()
        .ok_or_else(|| candle_core::Error::msg("the model knows no languages"))
}

/// A recording with its maximum level. Features are computed per window: those of hours would take more memory than the
/// samples.
struct HeardSound<'a> {
    model: &'a HearingModel,
    samples: &'a [f32],
    frames: usize,
    loudest: f32,
}

impl<'a> HeardSound<'a> {
    async fn open(model: &'a HearingModel, samples: &'a [f32]) -> Result<Self> {
        let frames = Features::frames(samples.len());
        let mut loudest = f32::MIN;
        // Includes the padding of silence, like the reference.
        for from in (0..frames + 2).step_by(LONGEST_WINDOW) {
            let to = (from + LONGEST_WINDOW).min(frames + 2);
            let logarithms = model.features.logarithms(samples, from, to);
            loudest = logarithms.into_iter().fold(loudest, f32::max);
            block_end().await;
        }
        Ok(Self {
            model,
            samples,
            frames: frames.max(1),
            loudest,
        })
    }

    fn window_frames(&self) -> usize {
        self.model.network.spec().window_frames()
    }

    /// The decoder's cross-attention keys of the window that begins at a frame.
    async fn window(&self, from: usize) -> Result<Arc<WindowKeys>> {
        let features = &self.model.features;
        let window = self.window_frames();
        let to = (from + window).min(self.frames);
        let mut values = features.logarithms(self.samples, from, to);
        for value in &mut values {
            *value = leveled(*value, self.loudest);
        }
        values.resize(window * features.bands(), 0.0);
        let shape = (1, window, features.bands());
        let features = Tensor::from_vec(values, shape, &self.model.device)?;
        let states = self.model.network.encode(&features).await?;
        self.model.network.cross(&states).map(Arc::new)
    }
}
