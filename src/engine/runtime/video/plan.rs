//! A request with all defaults filled in and all limits checked, and its memory estimate.

use std::hash::{BuildHasher, RandomState};

use super::VideoDefaults;
use super::networks::{MOST_TEXT_TOKENS, VideoNetworks};
use crate::networks::video::{VideoAutoencoderSpec, WanSpec};
use crate::runtime::diffusion::FlowLevels;
use crate::runtime::maker::{Cost, Pixels, Refusal, UNREAD_FRAMES, in_range};
use crate::runtime::video::VideoRequest;

const MOST_STEPS: u32 = 500;
const MOST_CFG_SCALE: f32 = 100.0;
const MOST_SIDE: u32 = 4096;
pub const MOST_PIXELS: u32 = 2048 * 2048;
const MOST_SOURCE_PIXELS: u64 = 4096 * 4096;
pub const MOST_FRAMES: u32 = 257;
const RATES: [f32; 2] = [1.0, 60.0];
/// Limit of a batch's index, since a video skips the noise of those before it.
const MOST_INDEX: u32 = 15;
/// A longer prompt is refused before it is cut into tokens.
const MOST_PROMPT_BYTES: usize = 1 << 16;

/// Everything a job needs to know.
#[derive(Debug, Clone)]
pub struct VideoPlan {
    pub width: u32,
    pub height: u32,
    /// Requested frames: the last latent frame may decode to more.
    pub frames: u32,
    pub rate: f32,
    /// Frames, height and width of the latent.
    pub latent: [usize; 3],
    pub prompt: Vec<u32>,
    /// `None` without classifier-free guidance.
    pub negative: Option<Vec<u32>>,
    pub cfg_scale: f64,
    pub levels: FlowLevels,
    pub seed: u64,
    pub index: u32,
    pub source: Option<Pixels>,
    pub wants_previews: bool,
}

impl VideoPlan {
    pub fn new(
        networks: &VideoNetworks,
        defaults: &VideoDefaults,
        request: VideoRequest,
    ) -> Result<Self, Refusal> {
        let [width, height] = size(networks, defaults, &request)?;
        let steps = request.steps.unwrap_or_else(|| defaults.steps());
        in_range("steps", steps, 1, MOST_STEPS)?;
        let frames = request.frames.unwrap_or_else(|| defaults.frames());
        in_range("frames", frames, 1, MOST_FRAMES)?;
        in_range("index", request.index, 0, MOST_INDEX)?;
        let cfg_scale = request.cfg_scale.unwrap_or_else(|| defaults.cfg_scale());
        between("cfg_scale", cfg_scale, [0.0, MOST_CFG_SCALE])?;
        let rate = request.rate.unwrap_or_else(|| defaults.rate());
        between("rate", rate, RATES)?;
        check_source(networks, request.source.as_ref())?;
        let spec = networks.autoencoder.spec();
        let latent = latent_sizes(spec, [width, height], frames);
        check_places(networks.transformer.spec(), latent)?;
        let negative = request.negative_prompt.as_deref().unwrap_or_default();
        Ok(Self {
            width,
            height,
            frames,
            rate,
            latent,
            prompt: tokens(networks, "prompt", &request.prompt)?,
            negative: match cfg_scale > 1.0 {
                true => Some(tokens(networks, "negative_prompt", negative)?),
                false => None,
            },
            cfg_scale: f64::from(cfg_scale),
            levels: networks.schedule.levels(steps as usize),
            seed: request.seed.unwrap_or_else(random_seed),
            index: request.index,
            source: request.source,
            wants_previews: request.wants_previews,
        })
    }

    pub fn cost(&self, networks: &VideoNetworks) -> Cost {
        let (transformer, autoencoder) = (networks.transformer.spec(), networks.autoencoder.spec());
        let steps = self.levels.steps() as u64;
        let passes = 1 + u64::from(self.negative.is_some());
        let texts = passes * (networks.text.spec().layers as u64);
        let previews = if self.wants_previews { steps } else { 0 };
        // Most stages of the decoder see each frame of the video.
        let decoded = u64::from(self.frames) + previews;
        Cost {
            steps: self.levels.steps() as u32,
            blocks: texts
                + steps * passes * (transformer.layers as u64 + 1)
                + decoded * autoencoder.decoder_stages()
                + 1,
            memory_bytes: video_bytes(
                transformer,
                autoencoder,
                [self.width, self.height],
                self.frames,
            ),
        }
    }
}

/// Frames, height and width of the latent of a video: the first frame is separate.
fn latent_sizes(spec: &VideoAutoencoderSpec, size: [u32; 2], frames: u32) -> [usize; 3] {
    let [width, height] = size.map(|side| side as usize / spec.factor());
    let later = (frames.max(1) - 1) as usize;
    [1 + later.div_ceil(spec.time_factor()), height, width]
}

/// Memory of a video besides the weights: the larger of a denoising step and the decoder, plus frames that wait for
/// their reader.
pub fn video_bytes(
    transformer: &WanSpec,
    autoencoder: &VideoAutoencoderSpec,
    size: [u32; 2],
    frames: u32,
) -> u64 {
    let [latent_frames, height, width] = latent_sizes(autoencoder, size, frames);
    let [_, rows, columns] = transformer.patch;
    let places = (latent_frames * height * width) as u64;
    let tokens = places / (rows * columns).max(1) as u64 + MOST_TEXT_TOKENS as u64;
    let step = tokens * transformer.floats_per_token();
    let pixels = u64::from(size[0]) * u64::from(size[1]);
    let decoding = pixels * autoencoder.floats_per_pixel();
    // The sampler keeps a few latents in f64.
    let latents = 8 * 8 * places * autoencoder.latent_channels as u64;
    // A frame of a latent gives several at once.
    let waiting = (UNREAD_FRAMES + autoencoder.time_factor()) as u64;
    4 * step.max(decoding) + latents + 3 * pixels * waiting.min(frames.into())
}

fn tokens(networks: &VideoNetworks, setting: &str, prompt: &str) -> Result<Vec<u32>, Refusal> {
    if prompt.len() > MOST_PROMPT_BYTES {
        let found = prompt.len();
        return Err(Refusal::Unsupported(format!(
            "{setting} has {found} bytes, but the model takes at most {MOST_PROMPT_BYTES}; shorten it"
        )));
    }
    let tokens = networks.tokenizer.encode(prompt);
    let tokens = tokens.map_err(|error| Refusal::Unsupported(error.to_string()))?;
    let known = networks.text.spec().vocab_size;
    if tokens.is_empty() || tokens.iter().any(|&token| token as usize >= known) {
        return Err(Refusal::Unsupported(format!(
            "the model's tokenizer gives no tokens for {setting}, or others than the {known} of its text encoder; \
             use another model"
        )));
    }
    Ok(tokens)
}

/// The requested size; else that of the source, rounded to the model's multiples; else the model's default.
fn size(
    networks: &VideoNetworks,
    defaults: &VideoDefaults,
    request: &VideoRequest,
) -> Result<[u32; 2], Refusal> {
    let patch = networks.pixels_per_patch();
    let near =
        |side: u32, patch: u32| (side / patch * patch).clamp(patch, MOST_SIDE / patch * patch);
    let own = match &request.source {
        Some(source) => [source.width, source.height],
        None => defaults.size(),
    };
    let mut size = [0; 2];
    for (axis, (setting, asked)) in [("width", request.width), ("height", request.height)]
        .into_iter()
        .enumerate()
    {
        let patch = patch[axis];
        let side = asked.unwrap_or_else(|| near(own[axis], patch));
        in_range(setting, side, patch, MOST_SIDE)?;
        if !side.is_multiple_of(patch) {
            return Err(Refusal::Unsupported(format!(
                "{setting} is {side}, but the model takes multiples of {patch}; use {} or {}",
                side / patch * patch,
                side.next_multiple_of(patch),
            )));
        }
        size[axis] = side;
    }
    let pixels = u64::from(size[0]) * u64::from(size[1]);
    match pixels > u64::from(MOST_PIXELS) {
        true => Err(Refusal::Unsupported(format!(
            "{} by {} pixels are {pixels}, but the model takes at most {MOST_PIXELS}; ask for a smaller video",
            size[0], size[1]
        ))),
        false => Ok(size),
    }
}

/// Checks the transformer's limit of positions per axis.
fn check_places(spec: &WanSpec, latent: [usize; 3]) -> Result<(), Refusal> {
    let axes = ["frames", "height", "width"]
        .into_iter()
        .zip(latent)
        .zip(spec.patch);
    for ((axis, size), patch) in axes {
        let (places, most) = (size / patch.max(1), spec.positions);
        if places > most {
            return Err(Refusal::Unsupported(format!(
                "the video's {axis} are {places} places to the model, which knows {most}; ask for a smaller video"
            )));
        }
    }
    Ok(())
}

fn check_source(networks: &VideoNetworks, source: Option<&Pixels>) -> Result<(), Refusal> {
    let Some(pixels) = source else {
        return Ok(());
    };
    if !networks.takes_first_frame {
        let cannot = "the model makes videos from text alone; leave out the first frame, or use another model";
        return Err(Refusal::Unsupported(cannot.to_owned()));
    }
    let count = u64::from(pixels.width) * u64::from(pixels.height);
    if !pixels.is_whole() || count == 0 || count > MOST_SOURCE_PIXELS {
        return Err(Refusal::Unsupported(format!(
            "the first frame has {count} pixels, or fewer or more than its size says; the model takes 1 to \
             {MOST_SOURCE_PIXELS}"
        )));
    }
    Ok(())
}

fn between(setting: &'static str, found: f32, [least, most]: [f32; 2]) -> Result<(), Refusal> {
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(Refusal::Unsupported(format!(
            "{setting} is {found}, but the model takes {least} to {most}"
        ))),
    }
}

/// A seed of 32 bits, as the start of a video takes, so that programs that keep no more can repeat it.
fn random_seed() -> u64 {
    RandomState::new().hash_one("seed") & u64::from(u32::MAX)
}
