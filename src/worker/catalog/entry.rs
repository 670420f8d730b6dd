//! One model of the catalog, complete and checked.

use std::{collections::BTreeMap, path::PathBuf};

use super::{Component, Embedded};
use crate::hub;
use muster_protocol::job::Kind;

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key of the model everywhere inside.
    pub id: String,
    pub description: String,
    pub names: Names,
    pub family: Family,
    pub licence: String,
    pub facts: Facts,
    pub default_quantization: String,
    /// Where the weights are, by quantization.
    pub sources: BTreeMap<String, Source>,
    /// Components whose files are elsewhere, by the folder of the model that they stand for.
    pub components: BTreeMap<String, Component>,
}

/// Facts about a model of each kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Facts {
    Text(TextFacts),
    Image(ImageFacts),
    Transcription(TranscriptionFacts),
    Video(VideoFacts),
    Speech(SpeechFacts),
    Music(MusicFacts),
}

#[derive(Debug, Clone, PartialEq)]
pub struct TextFacts {
    /// The most tokens the model can attend to.
    pub context: u64,
    pub defaults: Defaults,
    pub shape: Shape,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ImageFacts {
    /// Of all components together.
    pub parameters: u64,
    pub defaults: DrawingDefaults,
}

/// Of a model that writes down what sounds say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptionFacts {
    pub parameters: u64,
}

/// Of a model that makes videos.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoFacts {
    /// Of all components together.
    pub parameters: u64,
    pub defaults: FilmingDefaults,
}

/// Of a model that speaks texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeechFacts {
    pub parameters: u64,
}

/// Of a model that makes music.
#[derive(Debug, Clone, PartialEq)]
pub struct MusicFacts {
    /// Of all components together.
    pub parameters: u64,
    pub defaults: ComposingDefaults,
}

/// Under which names a model is asked for, in each of the two worlds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub v1: Vec<String>,
    pub legacy: Vec<String>,
}

/// Which network a model is; one word per decoder that `networks` can build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Llama,
    Ministral3,
    Qwen2,
    Qwen3,
    Gemma2,
    Gemma3,
    /// Phi 4 as well.
    Phi3,
    Olmo2,
    Granite,
    SmolLm3,
    StableDiffusion1,
    StableDiffusion2,
    StableDiffusionXl,
    Whisper,
    Wan,
    Kokoro,
    AceStep,
}

impl Family {
    pub const ALL: &[(&'static str, Self)] = &[
        ("llama", Self::Llama),
        ("qwen2", Self::Qwen2),
        ("qwen3", Self::Qwen3),
        ("ministral3", Self::Ministral3),
        ("gemma2", Self::Gemma2),
        ("gemma3", Self::Gemma3),
        ("phi3", Self::Phi3),
        ("olmo2", Self::Olmo2),
        ("granite", Self::Granite),
        ("smollm3", Self::SmolLm3),
        ("stable-diffusion-1", Self::StableDiffusion1),
        ("stable-diffusion-2", Self::StableDiffusion2),
        ("stable-diffusion-xl", Self::StableDiffusionXl),
        ("whisper", Self::Whisper),
        ("wan", Self::Wan),
        ("kokoro", Self::Kokoro),
        ("ace_step", Self::AceStep),
    ];

    pub fn kind(self) -> Kind {
        match self {
            Self::StableDiffusion1 | Self::StableDiffusion2 | Self::StableDiffusionXl => {
                Kind::Image
            }
            Self::Whisper => Kind::Transcription,
            Self::Wan => Kind::Video,
            Self::Kokoro => Kind::Speech,
            Self::AceStep => Kind::Music,
            _ => Kind::Text,
        }
    }
}

/// The kinds of models that the catalog has, by the word in an entry.
pub const KINDS: &[(&str, Kind)] = &[
    (Kind::Text.name(), Kind::Text),
    (Kind::Image.name(), Kind::Image),
    (Kind::Transcription.name(), Kind::Transcription),
    (Kind::Video.name(), Kind::Video),
    (Kind::Speech.name(), Kind::Speech),
    (Kind::Music.name(), Kind::Music),
];

/// The word of earlier versions for models that transcribe.
const EARLIER_TRANSCRIPTION: &str = "hearing";

impl Family {
    /// The word that stands for this in an entry.
    pub fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, value)| *value == self);
        found.map_or("", |(word, _)| word)
    }
}

/// The kind of this word.
pub fn kind_named(word: &str) -> Option<Kind> {
    let word = match word {
        EARLIER_TRANSCRIPTION => Kind::Transcription.name(),
        word => word,
    };
    let found = KINDS.iter().find(|(name, _)| *name == word);
    found.map(|(_, kind)| *kind)
}

/// How tokens are chosen when a request does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
}

/// How an image is drawn when a request does not say. Samplers and schedules are words of the engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawingDefaults {
    /// Width and height.
    pub size: Option<[u32; 2]>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub sampler: Option<String>,
    pub schedule: Option<String>,
    pub clip_skip: Option<u32>,
}

/// How a video is made when a request does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FilmingDefaults {
    /// Width and height.
    pub size: Option<[u32; 2]>,
    pub frames: Option<u32>,
    /// Frames per second.
    pub rate: Option<f32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
}

/// How a song is made when a request does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ComposingDefaults {
    pub seconds: Option<f32>,
    pub steps: Option<u32>,
    /// Of models with guidance.
    pub cfg_scale: Option<f32>,
}

/// What memory is counted from before the weights are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub parameters: u64,
    pub layers: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Hub(hub::Source),
    /// A file or a folder on this machine.
    Path(PathBuf),
    /// A folder inside this program, to be unpacked.
    Embedded(&'static Embedded),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{model} has no quantization {found}; available: {}", .known.join(", "))]
pub struct UnknownQuantization {
    pub model: String,
    pub found: String,
    pub known: Vec<String>,
}

/// What a quantization costs, in thousandths of a bit per weight. Files mix types, so the numbers of the mixed
/// ones are what whole files of 1 to 8 billion parameters come to.
pub(super) const QUANTIZATIONS: &[(&str, u64)] = &[
    ("f32", 32_000),
    ("f16", 16_000),
    ("bf16", 16_000),
    ("q8_0", 8_500),
    ("q6_k", 6_600),
    ("q5_k_m", 5_800),
    ("q5_k_s", 5_650),
    ("q5_0", 5_700),
    ("q4_k_m", 5_200),
    ("q4_k_s", 4_900),
    ("q4_0", 4_850),
    ("q3_k_m", 4_200),
    ("q2_k", 3_500),
];

/// The context that the stated memory leaves room for.
pub const MINIMUM_CONTEXT: u64 = 4096;

const USUAL_SIZE: [u32; 2] = [512, 512];
const USUAL_VIDEO_SIZE: [u32; 2] = [832, 480];
const USUAL_FRAMES: u32 = 81;

/// The widest layer of Stable Diffusion's decoder, and around it.
const DRAWING_BYTES_PER_PIXEL: u64 = 4096;

/// The widest level of Wan's decoder with the frames that it remembers.
const FILMING_BYTES_PER_PIXEL: u64 = 14_000;
/// A patch of Wan's transformer stands for 1,024 pixels, of which it holds some 97 KB at once.
const FILMING_BYTES_PER_PIXEL_AND_FRAME: u64 = 95;

/// The widest level of Oobleck's decoder over a tile, and the keys of lyrics.
const COMPOSING_BYTES: u64 = 1 << 30;
/// Samples of a song, and the state of ACE-Step's transformer.
const COMPOSING_BYTES_PER_SECOND: u64 = 2 << 20;
const USUAL_SECONDS: f32 = 60.0;

/// Activations, logits and the program itself.
pub const WORKSPACE_BYTES: u64 = 256 * 1024 * 1024;

impl Entry {
    /// Where the weights of a quantization are; those of the default one for `None`.
    pub fn source(
        &self,
        quantization: Option<&str>,
    ) -> Result<(&str, &Source), UnknownQuantization> {
        let wanted = quantization.unwrap_or(&self.default_quantization);
        let found = self
            .sources
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found
            .map(|(name, source)| (name.as_str(), source))
            .ok_or_else(|| UnknownQuantization {
                model: self.id.clone(),
                found: wanted.to_owned(),
                known: self.sources.keys().cloned().collect(),
            })
    }

    /// The source of the quantization that the owner prefers, where the model has it.
    pub fn preferred(&self, quantization: Option<&str>) -> Option<(&str, &Source)> {
        self.source(Some(quantization?)).ok()
    }

    /// Memory for weights, `MINIMUM_CONTEXT` tokens or one drawing, and the work itself. An estimate from the model's shape;
    /// the fit before loading counts from the file's own header.
    pub fn minimum_memory_bytes(&self, quantization: &str) -> Option<u64> {
        let weights = self.weight_bytes(quantization)?;
        let facts = match &self.facts {
            Facts::Text(facts) => facts,
            others => return weights.checked_add(others.workspace_bytes()),
        };
        let context = facts.context.min(MINIMUM_CONTEXT);
        let shape = facts.shape;
        let numbers_per_token = [2, shape.layers, shape.kv_heads, shape.head_dim]
            .iter()
            .try_fold(1, |product: u64, factor| product.checked_mul(*factor))?;
        let kv = numbers_per_token.checked_mul(2)?.checked_mul(context)?;
        weights.checked_add(kv)?.checked_add(WORKSPACE_BYTES)
    }

    pub fn kind(&self) -> Kind {
        match self.facts {
            Facts::Text(_) => Kind::Text,
            Facts::Image(_) => Kind::Image,
            Facts::Transcription(_) => Kind::Transcription,
            Facts::Video(_) => Kind::Video,
            Facts::Speech(_) => Kind::Speech,
            Facts::Music(_) => Kind::Music,
        }
    }

    pub fn parameters(&self) -> u64 {
        match &self.facts {
            Facts::Text(facts) => facts.shape.parameters,
            Facts::Image(facts) => facts.parameters,
            Facts::Transcription(facts) => facts.parameters,
            Facts::Video(facts) => facts.parameters,
            Facts::Speech(facts) => facts.parameters,
            Facts::Music(facts) => facts.parameters,
        }
    }

    /// What the weights of a quantization take: as stated for the files, or counted from the parameters.
    pub fn weight_bytes(&self, quantization: &str) -> Option<u64> {
        self.source(Some(quantization)).ok()?;
        let sources = self.sources_of(quantization);
        let mut stated = sources.iter().map(|it| match it.source {
            Source::Hub(source) => stated_bytes(source),
            Source::Path(_) | Source::Embedded(_) => None,
        });
        let stated = stated.try_fold(0, |sum: u64, bytes| sum.checked_add(bytes?));
        stated.or_else(|| {
            let (_, milli_bits) = QUANTIZATIONS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(quantization))?;
            Some(self.parameters().checked_mul(*milli_bits)? / 8000)
        })
    }
}

impl Facts {
    /// Beside the weights, for one job of the usual size.
    pub fn workspace_bytes(&self) -> u64 {
        match self {
            Self::Text(_) | Self::Transcription(_) | Self::Speech(_) => WORKSPACE_BYTES,
            Self::Image(facts) => facts.drawing_bytes(),
            Self::Video(facts) => facts.filming_bytes(),
            Self::Music(facts) => facts.composing_bytes(),
        }
    }
}

impl ImageFacts {
    /// Beside the weights, for one drawing of the usual size.
    pub fn drawing_bytes(&self) -> u64 {
        let [width, height] = self.defaults.size.unwrap_or(USUAL_SIZE);
        u64::from(width) * u64::from(height) * DRAWING_BYTES_PER_PIXEL
    }
}

impl VideoFacts {
    /// Beside the weights, for one video of the usual size and length.
    pub fn filming_bytes(&self) -> u64 {
        let [width, height] = self.defaults.size.unwrap_or(USUAL_VIDEO_SIZE);
        let pixels = u64::from(width) * u64::from(height);
        let frames = u64::from(self.defaults.frames.unwrap_or(USUAL_FRAMES));
        pixels * FILMING_BYTES_PER_PIXEL.max(frames * FILMING_BYTES_PER_PIXEL_AND_FRAME)
    }
}

impl MusicFacts {
    /// Beside the weights, for one song of the usual length.
    pub fn composing_bytes(&self) -> u64 {
        let seconds = self.defaults.seconds.unwrap_or(USUAL_SECONDS).ceil() as u64;
        COMPOSING_BYTES + seconds * COMPOSING_BYTES_PER_SECOND
    }
}

fn stated_bytes(source: &hub::Source) -> Option<u64> {
    let weights = source.files.iter().filter(|file| file.path.is_weights());
    weights
        .map(|file| file.size_bytes)
        .try_fold(0, |sum: u64, size| sum.checked_add(size?))
}
