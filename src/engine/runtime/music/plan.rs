//! A request with all defaults filled in and all limits checked, and its memory estimate.

use std::hash::{BuildHasher, RandomState};

use super::MusicDefaults;
use super::networks::MusicNetworks;
use super::texts::SongText;
use crate::networks::sound::{AceStepSpec, OobleckSpec, SongConditionSpec, TILE_FRAMES};
use crate::runtime::diffusion::even_levels;
use crate::runtime::maker::{Cost, Refusal, SoundRequest, in_range};
use crate::runtime::text::PromptTokenizer;

const MOST_STEPS: u32 = 100;
const MOST_CFG_SCALE: f32 = 100.0;
/// The stored silence is as long.
pub const MOST_SECONDS: u32 = 600;
const LEAST_SECONDS: f32 = 0.5;
const MOST_BPM: u32 = 400;
/// Limit of a batch's index, since a song skips the noise of those before it.
const MOST_INDEX: u32 = 15;
/// Longer texts are refused before they are cut into tokens.
const MOST_TEXT_BYTES: usize = 1 << 16;
/// Limit of a key, a time signature or a language.
const MOST_NAME_BYTES: usize = 64;
/// The limits of the networks' training.
pub const MOST_TEXT_TOKENS: usize = 256;
pub const MOST_LYRICS_TOKENS: usize = 2048;
/// The model's shift of noise levels towards noise.
const SHIFT: f64 = 3.0;
/// Shorter parts of a frame are ignored.
const LEAST_FRAME: f64 = 1e-3;
/// Seconds of a reference sound.
const TIMBRE_SECONDS: f64 = 30.0;

/// Everything a job needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct MusicPlan {
    /// Frames of latents.
    pub frames: usize,
    pub description: Vec<u32>,
    pub lyrics: Vec<u32>,
    /// Noise levels, from 1 to 0.
    pub levels: Vec<f64>,
    /// Guidance scale; `None` without guidance.
    pub cfg_scale: Option<f64>,
    pub seed: u64,
    pub index: u32,
}

impl MusicPlan {
    pub fn new(
        networks: &MusicNetworks,
        defaults: &MusicDefaults,
        request: &SoundRequest,
    ) -> Result<Self, Refusal> {
        refuse_settings(request)?;
        let is_turbo = networks.transformer.spec().is_turbo;
        let steps = request.steps.unwrap_or_else(|| defaults.steps(is_turbo));
        in_range("steps", steps, 1, MOST_STEPS)?;
        in_range("index", request.index, 0, MOST_INDEX)?;
        if let Some(bpm) = request.bpm {
            in_range("bpm", bpm, 1, MOST_BPM)?;
        }
        let seconds = request.seconds.unwrap_or_else(|| defaults.seconds());
        if !(LEAST_SECONDS..=MOST_SECONDS as f32).contains(&seconds) {
            return Err(Refusal::Unsupported(format!(
                "seconds is {seconds}, but the model takes {LEAST_SECONDS} to {MOST_SECONDS}"
            )));
        }
        let named = |setting: &str, name: &Option<String>| match name {
            Some(name) if name.len() > MOST_NAME_BYTES || name.contains('\n') => {
                Err(Refusal::Unsupported(format!(
                    "{setting} must be one line of at most {MOST_NAME_BYTES} bytes, found {}",
                    name.len()
                )))
            }
            _ => Ok(()),
        };
        named("key_scale", &request.key_scale)?;
        named("time_signature", &request.time_signature)?;
        named("vocal_language", &request.vocal_language)?;
        let lyrics = request.lyrics.as_deref().unwrap_or_default();
        short_enough("prompt", &request.prompt)?;
        short_enough("lyrics", lyrics)?;
        let text = SongText {
            prompt: &request.prompt,
            lyrics,
            seconds,
            bpm: request.bpm,
            key_scale: request.key_scale.as_deref(),
            time_signature: request.time_signature.as_deref(),
            vocal_language: request.vocal_language.as_deref(),
        };
        let tokens = |setting, text: String, most| {
            let known = networks.vocabulary();
            tokens(&networks.tokenizer, (setting, &text), most, known)
        };
        Ok(Self {
            frames: frames(networks.autoencoder.spec(), seconds),
            description: tokens("prompt", text.description(), MOST_TEXT_TOKENS)?,
            lyrics: tokens("lyrics", text.lyrics(), MOST_LYRICS_TOKENS)?,
            levels: even_levels(SHIFT, steps),
            cfg_scale: cfg_scale(networks, defaults, request)?,
            seed: request.seed.unwrap_or_else(random_seed),
            index: request.index,
        })
    }

    pub fn steps(&self) -> usize {
        self.levels.len().saturating_sub(1)
    }

    pub fn cost(&self, networks: &MusicNetworks) -> Cost {
        let (transformer, conditions) = (networks.transformer.spec(), networks.conditions.spec());
        let (steps, layers) = (self.steps() as u64, transformer.layers.len() as u64);
        let encoders = conditions.lyrics.len() + conditions.timbre.len();
        let tiles = self.frames.div_ceil(TILE_FRAMES) as u64;
        let passes = 1 + u64::from(self.cfg_scale.is_some());
        let states = self.description.len() + self.lyrics.len() + 1;
        Cost {
            steps: self.steps() as u32,
            blocks: 1
                + encoders as u64
                + passes * layers
                + steps * passes * (layers + 1)
                + tiles * networks.autoencoder.stops(),
            memory_bytes: song_bytes(
                (transformer, conditions, networks.autoencoder.spec()),
                self.frames,
                states,
            ),
        }
    }
}

/// Frames of latents of a song.
pub fn frames(spec: &OobleckSpec, seconds: f32) -> usize {
    let frames = f64::from(seconds) * f64::from(spec.rate) / spec.hop() as f64;
    // Seconds such as 1.2 are a little more in f32.
    ((frames - LEAST_FRAME).ceil() as usize).max(1)
}

/// Frames of latents that the timbre is taken from.
pub fn timbre_frames(spec: &OobleckSpec) -> usize {
    frames(spec, TIMBRE_SECONDS as f32)
}

/// Memory of a song besides the weights: the largest of its networks' activations, plus the keys of the conditions and
/// the samples.
pub fn song_bytes(
    (transformer, conditions, autoencoder): (&AceStepSpec, &SongConditionSpec, &OobleckSpec),
    frames: usize,
    states: usize,
) -> u64 {
    let keys = states as u64 * transformer.floats_per_condition();
    let step = transformer.places(frames) as u64 * transformer.layer.floats_per_place();
    let longest = states.max(timbre_frames(autoencoder)) as u64;
    let encoding = longest * conditions.layer.floats_per_place();
    let tile = frames.min(TILE_FRAMES + 2 * autoencoder.reach()) as u64;
    let decoding = tile * autoencoder.floats_per_frame();
    // The song itself, once more while it is leveled, and a few latents in f64.
    let samples = 2 * frames as u64 * (autoencoder.hop() * autoencoder.channels) as u64;
    let latents = 8 * 2 * frames as u64 * autoencoder.latent_channels as u64;
    4 * (keys + step.max(encoding).max(decoding) + samples) + latents
}

/// Names a setting that a model of music does not have.
fn refuse_settings(request: &SoundRequest) -> Result<(), Refusal> {
    let set = [
        ("negative_prompt", request.negative_prompt.is_some()),
        ("voice", request.voice.is_some()),
        ("speed", request.speed.is_some()),
    ];
    match set.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(Refusal::Unsupported(format!(
            "{name} is not for this model of music; remove it"
        ))),
        None => Ok(()),
    }
}

/// Turbo models hold the guidance in their weights.
fn cfg_scale(
    networks: &MusicNetworks,
    defaults: &MusicDefaults,
    request: &SoundRequest,
) -> Result<Option<f64>, Refusal> {
    let is_turbo = networks.transformer.spec().is_turbo;
    match request.cfg_scale {
        None if is_turbo => return Ok(None),
        Some(scale) if is_turbo && scale != 1.0 => {
            let what = "cfg_scale is not for turbo models of music; remove it";
            return Err(Refusal::Unsupported(what.to_owned()));
        }
        _ => {}
    }
    let scale = request.cfg_scale.unwrap_or_else(|| defaults.cfg_scale());
    match (0.0..=MOST_CFG_SCALE).contains(&scale) {
        true => Ok((scale > 1.0).then_some(f64::from(scale))),
        false => Err(Refusal::Unsupported(format!(
            "cfg_scale is {scale}, but the model takes 0 to {MOST_CFG_SCALE}"
        ))),
    }
}

fn short_enough(setting: &str, text: &str) -> Result<(), Refusal> {
    match text.len() > MOST_TEXT_BYTES {
        false => Ok(()),
        true => Err(Refusal::Unsupported(format!(
            "{setting} has {} bytes, but the model takes at most {MOST_TEXT_BYTES}; shorten it",
            text.len()
        ))),
    }
}

fn tokens(
    tokenizer: &PromptTokenizer,
    (setting, text): (&str, &str),
    most: usize,
    known: usize,
) -> Result<Vec<u32>, Refusal> {
    let tokens = tokenizer.encode_exactly(text);
    let tokens = tokens.map_err(|error| Refusal::Unsupported(error.to_string()))?;
    if tokens.len() > most {
        return Err(Refusal::Unsupported(format!(
            "{setting} has more than the {most} tokens that the model reads, settings counted in; shorten it"
        )));
    }
    if tokens.is_empty() || tokens.iter().any(|&token| token as usize >= known) {
        return Err(Refusal::Unsupported(format!(
            "the model's tokenizer gives no tokens for {setting}, or others than the {known} of its text encoder; \
             use another model"
        )));
    }
    Ok(tokens)
}

/// A seed of 32 bits, as the start of a song takes, so that programs that keep no more can repeat it.
fn random_seed() -> u64 {
    RandomState::new().hash_one("seed") & u64::from(u32::MAX)
}
