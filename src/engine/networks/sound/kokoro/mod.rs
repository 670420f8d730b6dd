//! Kokoro: a text of phonemes, spoken. After *StyleTTS 2* (Li et al., 2023) and *iSTFTNet* (Kaneko et al., 2022).
//!
//! An ALBERT reads the phonemes, the predictor gives them frames, pitch and energy, and the decoder makes the sound of
//! them. A voice is a vector of two styles, for the sound and for the delivery.

mod albert;
mod blocks;
mod decoder;
mod prosody;
mod recurrence;
mod source;
mod spec;
mod text;

pub use self::prosody::Prosody;
pub use self::spec::{AlbertSpec, GeneratorSpec, KokoroSpec};

use std::path::Path;

use candle_core::{Device, Result, Tensor, bail};

use self::albert::Albert;
use self::decoder::SpeechDecoder;
use self::prosody::{Predictor, places};
use self::text::PhonemeEncoder;
use super::folded::FoldedTensors;
use crate::networks::blocks::{ComponentReader, ComponentSource, Projection};
use crate::networks::weights::{Checkpoint, Flaw};

/// The parts of a file: the first component of each name.
const PARTS: [&str; 5] = [
    "bert",
    "bert_encoder",
    "predictor",
    "text_encoder",
    "decoder",
];
/// Between the part and the name of a tensor, where the part was trained on several GPUs.
const WRAPPER: &str = "module.";

/// Samples a second of the sound.
pub const SPEECH_RATE: u32 = 24_000;

/// The network on a device.
pub struct Kokoro {
    spec: KokoroSpec,
    device: Device,
    albert: Albert,
    narrow: Projection,
    predictor: Predictor,
    phonemes: PhonemeEncoder,
    decoder: SpeechDecoder,
}

/// A text to speak.
pub struct SpeechText<'a> {
    /// Phoneme tokens, without the padding tokens.
    pub tokens: &'a [u32],
    /// Two styles: of the sound, then of the delivery.
    pub voice: &'a [f32],
    pub speed: f32,
    /// Returns normal numbers.
    pub noise: &'a (dyn Fn(usize) -> Vec<f32> + Sync),
}

/// A text that was spoken.
pub struct SpokenSound {
    /// At [`SPEECH_RATE`].
    pub samples: Vec<f32>,
    /// Frames of each token, with those of the padding before and after them. All frames have the same length.
    pub durations: Vec<usize>,
}

impl Kokoro {
    /// Whether a file has the tensors of a Kokoro.
    pub fn is_named_in(path: &Path) -> bool {
        let names = Checkpoint::names_in_any(path).unwrap_or_default();
        let has = |part: &str| {
            names
                .iter()
                .any(|name| name.starts_with(&format!("{part}.")))
        };
        PARTS.into_iter().all(has)
    }

    pub fn load(spec: KokoroSpec, source: ComponentSource) -> std::result::Result<Self, Flaw> {
        let tensors = FoldedTensors::new(source.tensors, plain)?;
        let device = source.device.clone();
        let source = ComponentSource {
            tensors: &tensors,
            ..source
        };
        let mut reader = ComponentReader::new(source, str::to_owned);
        let albert = Albert::load(spec.albert, spec.tokens, &mut reader)?;
        let shape = (spec.hidden, spec.albert.width);
        let narrow = reader.projection("bert_encoder", shape, true)?;
        let predictor = Predictor::load(&spec, &mut reader)?;
        let phonemes = PhonemeEncoder::load(&spec, &mut reader)?;
        let decoder = SpeechDecoder::load(&spec, &tensors, &mut reader)?;
        // The summary of a text, for other uses of an ALBERT.
        reader.check_nothing_was_ignored(|name| !name.starts_with("bert.pooler."))?;
        Ok(Self {
            spec,
            device,
            albert,
            narrow,
            predictor,
            phonemes,
            decoder,
        })
    }

    pub fn spec(&self) -> &KokoroSpec {
        &self.spec
    }

    /// Phonemes of one text at most.
    pub fn longest_text(&self) -> usize {
        self.spec.albert.positions - 2
    }

    pub async fn speak(&self, text: &SpeechText<'_>) -> Result<SpokenSound> {
        let (count, most) = (text.tokens.len(), self.longest_text());
        if count == 0 || count > most {
            bail!("a text has {count} phonemes, but the network takes 1 to {most}");
        }
        let tokens = text.tokens.iter().copied();
        let ids: Vec<u32> = [0].into_iter().chain(tokens).chain([0]).collect();
        if ids.iter().any(|&id| id as usize >= self.spec.tokens) {
            bail!("a token is above the {} of the network", self.spec.tokens);
        }
        let ids = Tensor::new(ids, &self.device)?;
        let [sound, delivery] = self.styles(text.voice)?;
        let prosody = self.prosody(&ids, &delivery, text.speed).await?;
        let states = self.phonemes.forward(&ids).await?;
        let places = Tensor::new(places(&prosody.durations), &self.device)?;
        let states = states.index_select(&places, 0)?;
        let samples = self
            .decoder
            .forward(&states, &prosody, &sound, text.noise)
            .await?;
        Ok(SpokenSound {
            samples,
            durations: prosody.durations,
        })
    }

    async fn prosody(&self, ids: &Tensor, style: &Tensor, speed: f32) -> Result<Prosody> {
        let states = self.narrow.apply(&self.albert.forward(ids).await?)?;
        self.predictor.forward(&states, style, speed).await
    }

    fn styles(&self, voice: &[f32]) -> Result<[Tensor; 2]> {
        let size = self.spec.style;
        let Some((sound, delivery)) = voice
            .split_at_checked(size)
            .filter(|(_, rest)| rest.len() == size)
        else {
            let wanted = 2 * size;
            bail!(
                "a voice has {} numbers, but the network takes {wanted}",
                voice.len()
            );
        };
        let style = |values| Tensor::from_slice(values, (1, size), &self.device);
        Ok([style(sound)?, style(delivery)?])
    }
}

/// A name without the wrapper's.
fn plain(name: &str) -> String {
    let wrapped = name
        .split_once('.')
        .filter(|(part, _)| PARTS.contains(part));
    match wrapped.and_then(|(part, rest)| Some((part, rest.strip_prefix(WRAPPER)?))) {
        Some((part, rest)) => format!("{part}.{rest}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod golden;
