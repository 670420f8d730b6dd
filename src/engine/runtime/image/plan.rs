//! A request with all defaults filled in and all limits checked, and its memory estimate.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};

use super::ImageDefaults;
use super::networks::DiffusionNetworks;
use super::prompt::{PromptVectors, PromptWindow, windows};
use super::tiles::TilePlan;
use crate::networks::adapter::InversionVectors;
use crate::networks::image::{AutoencoderSpec, UnetSpec};
use crate::runtime::diffusion::{DiffusionSampler, Schedule};
use crate::runtime::image::{ImageRequest, Inversion, LoraUse};
use crate::runtime::maker::{Cost, Pixels, Refusal, in_range};
use muster_kernels::Edges;

/// Fallbacks if neither the request nor the model has a value.
const STEPS: u32 = 25;
const CFG_SCALE: f32 = 7.0;
const SAMPLER: DiffusionSampler = DiffusionSampler::DpmPp2m;
const SCHEDULE: Schedule = Schedule::Karras;
/// Default width and height of models.
const SIZE: u32 = 512;

pub const MOST_STEPS: u32 = 500;
/// Levels of a schedule of which a part is run.
const MOST_LEVELS: f64 = 10_000.0;
const MOST_CFG_SCALE: f32 = 100.0;
const MOST_SIDE: u32 = 4096;
pub const MOST_PIXELS: u32 = 2048 * 2048;
/// A source and a mask may be larger than the image.
const MOST_SOURCE_PIXELS: u64 = 4096 * 4096;
/// Limit of a batch's index, since an image skips the noise of those before it.
const MOST_INDEX: u32 = 255;
/// At this strength and above the source image has no influence.
const FULL_STRENGTH: f64 = 0.9999;
/// More than a quotient of up to [`MOST_LEVELS`] is rounded by.
const ROUNDING: f64 = 1e-9;
const MOST_LORAS: usize = 16;
const MOST_INVERSIONS: usize = 32;
/// A larger image is decoded in tiles.
const MOST_PIXELS_AT_ONCE: u64 = 1024 * 1024;
/// Sizes that SDXL was trained with; the others are these turned.
const XL_SIZES: [[u32; 2]; 5] = [
    [1024, 1024],
    [1152, 896],
    [1216, 832],
    [1344, 768],
    [1536, 640],
];
const MOST_LORA_STRENGTH: f32 = 10.0;
/// Evaluations of the adaptive sampler, which decides itself.
const ADAPTIVE_EVALUATIONS: u64 = 40;

/// Everything a job needs to know.
#[derive(Debug, Clone)]
pub struct DrawingPlan {
    pub width: u32,
    pub height: u32,
    /// Per text encoder.
    pub prompt: Vec<Vec<PromptWindow>>,
    /// `None` without classifier-free guidance.
    pub negative: Option<Vec<Vec<PromptWindow>>>,
    pub cfg_scale: f32,
    pub sampler: DiffusionSampler,
    /// One pass, or two if the first has a smaller size.
    pub passes: Vec<SamplingPass>,
    /// Padding of convolutions.
    pub edges: Edges,
    pub skipped_layers: usize,
    pub seed: u64,
    pub index: u32,
    pub source: Option<Pixels>,
    pub mask: Option<Pixels>,
    pub loras: Vec<LoraUse>,
    pub wants_previews: bool,
}

/// A run through noise levels at one size.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingPass {
    pub width: u32,
    pub height: u32,
    /// Descending to 0; empty where the source stays as it is.
    pub sigmas: Vec<f64>,
}

impl SamplingPass {
    pub fn steps(&self) -> u32 {
        self.sigmas.len().saturating_sub(1) as u32
    }
}

impl ImageDefaults {
    /// A request that leaves open nothing but its size and how the text is read.
    pub fn fill(&self, request: ImageRequest) -> ImageRequest {
        ImageRequest {
            steps: request.steps.or(self.steps).or(Some(STEPS)),
            cfg_scale: request.cfg_scale.or(self.cfg_scale).or(Some(CFG_SCALE)),
            sampler: request.sampler.or(self.sampler).or(Some(SAMPLER)),
            schedule: request.schedule.or(self.schedule).or(Some(SCHEDULE)),
            clip_skip: request.clip_skip.or(self.clip_skip),
            seed: request.seed.or_else(|| Some(random_seed())),
            ..request
        }
    }
}

impl DrawingPlan {
    pub fn new(
        networks: &DiffusionNetworks,
        defaults: &ImageDefaults,
        request: ImageRequest,
    ) -> Result<Self, Refusal> {
        let request = defaults.fill(request);
        let [width, height] = size(networks, defaults, &request)?;
        let steps = request.steps.unwrap_or(STEPS);
        in_range("steps", steps, 1, MOST_STEPS)?;
        in_range("index", request.index, 0, MOST_INDEX)?;
        let cfg_scale = request.cfg_scale.unwrap_or(CFG_SCALE);
        between("cfg_scale", cfg_scale, MOST_CFG_SCALE)?;
        let clip_skip = request.clip_skip;
        let layers = networks.encoders.iter().map(|it| it.clip.spec().layers);
        let layers = layers.min().unwrap_or(1) as u32;
        in_range("clip_skip", clip_skip.unwrap_or(1), 1, layers)?;
        check_loras(&request.loras)?;
        check_pixels("source", request.source.as_ref())?;
        check_pixels("mask", request.mask.as_ref())?;
        if request.mask.is_some() && request.source.is_none() {
            let missing = "a mask needs an image that it covers; send the source as well";
            return Err(Refusal::Unsupported(missing.to_owned()));
        }
        let strength = match &request.source {
            Some(_) => request.strength.unwrap_or(1.0),
            None => 1.0,
        };
        between("strength", strength, 1.0)?;
        let sampler = request.sampler.unwrap_or(SAMPLER);
        let schedule = request.schedule.unwrap_or(SCHEDULE);
        let level = |steps, strength| sigmas(networks, sampler, schedule, (steps, strength));
        let mut passes = vec![SamplingPass {
            width,
            height,
            sigmas: level(steps, strength)?,
        }];
        if let Some(strength) = request.hires {
            between("hires", strength, 1.0)?;
            let native = own_size(defaults, networks.sample_size, networks.autoencoder.spec());
            let first = first_size(networks, native, [width, height]);
            if let Some([first_width, first_height]) = first.filter(|_| request.mask.is_none()) {
                passes[0].width = first_width;
                passes[0].height = first_height;
                let steps = second_steps(steps, strength, native, [width, height]);
                passes.push(SamplingPass {
                    width,
                    height,
                    sigmas: level(steps, strength)?,
                });
            }
        }
        let vectors = prompt_vectors(networks, &request.inversions)?;
        let negative = request.negative_prompt.as_deref().unwrap_or_default();
        let is_guided = (cfg_scale - 1.0).abs() > f32::EPSILON;
        Ok(Self {
            width,
            height,
            prompt: encoder_windows(networks, &request.prompt, &vectors)?,
            negative: match is_guided {
                true => Some(encoder_windows(networks, negative, &vectors)?),
                false => None,
            },
            cfg_scale,
            sampler,
            passes,
            edges: match request.tiles {
                true => Edges::Circular,
                false => Edges::Zeros,
            },
            skipped_layers: networks.skipped_layers(clip_skip),
            seed: request.seed.unwrap_or_else(random_seed),
            index: request.index,
            source: request.source,
            mask: request.mask,
            loras: request.loras,
            wants_previews: request.wants_previews,
        })
    }

    pub fn steps(&self) -> u32 {
        self.passes.iter().map(SamplingPass::steps).sum()
    }

    /// Number of network evaluations.
    fn evaluations(&self) -> u64 {
        let of_pass = |pass: &SamplingPass| {
            let steps = u64::from(pass.steps());
            match self.sampler {
                DiffusionSampler::DpmAdaptive if steps > 0 => ADAPTIVE_EVALUATIONS,
                // The last step is a single one.
                DiffusionSampler::Heun
                | DiffusionSampler::Dpm2
                | DiffusionSampler::Dpm2Ancestral
                | DiffusionSampler::DpmPp2sAncestral
                | DiffusionSampler::DpmPpSde => (2 * steps).saturating_sub(1),
                _ => steps,
            }
        };
        self.passes.iter().map(of_pass).sum()
    }

    pub fn cost(&self, networks: &DiffusionNetworks) -> Cost {
        let evaluations = self.evaluations();
        let prompts = 1 + u64::from(self.negative.is_some());
        let is_even =
            |negative: &Vec<Vec<PromptWindow>>| longest(negative) == longest(&self.prompt);
        let passes = match self.negative.as_ref().is_none_or(is_even) {
            true => 1,
            false => prompts,
        };
        let layers = networks
            .encoders
            .iter()
            .map(|it| it.clip.spec().layers as u64);
        let tiles = decoding_tiles(
            networks.autoencoder.spec(),
            [self.width, self.height],
            self.edges,
        );
        let mut blocks = prompts * layers.sum::<u64>()
            + evaluations * passes * networks.unet.blocks()
            + tiles * networks.autoencoder.decoder_blocks()
            + 1;
        if self.source.is_some() {
            blocks += networks.autoencoder.encoder_blocks();
        }
        if networks.paints() {
            blocks += networks.autoencoder.encoder_blocks();
        }
        if self.wants_previews {
            blocks += networks.autoencoder.encoder_blocks();
        }
        Cost {
            steps: self.steps(),
            blocks,
            memory_bytes: drawing_bytes(
                networks.unet.spec(),
                networks.autoencoder.spec(),
                [self.width, self.height],
                prompts / passes,
            ),
        }
    }
}

/// Memory of an image besides the weights: the larger of a denoising step and the decoder.
pub fn drawing_bytes(
    unet: &UnetSpec,
    autoencoder: &AutoencoderSpec,
    [width, height]: [u32; 2],
    batch: u64,
) -> u64 {
    let pixels = u64::from(width) * u64::from(height);
    let factor = autoencoder.factor() as u64;
    let places = pixels / (factor * factor);
    let step = batch * places * unet.floats_per_place();
    let at_once = pixels.min(MOST_PIXELS_AT_ONCE);
    let decoding = at_once * autoencoder.floats_per_pixel();
    4 * step.max(decoding)
}

/// Whether an image is decoded in tiles. Tiles that see the other end of the image would have to see all of it.
pub fn is_decoded_in_tiles([width, height]: [u32; 2], edges: Edges) -> bool {
    u64::from(width) * u64::from(height) > MOST_PIXELS_AT_ONCE && edges == Edges::Zeros
}

/// Tiles in which an image is decoded.
fn decoding_tiles(spec: &AutoencoderSpec, size: [u32; 2], edges: Edges) -> u64 {
    match is_decoded_in_tiles(size, edges) {
        true => {
            let places = size.map(|side| side as usize / spec.factor());
            places
                .map(|side| TilePlan::USUAL.starts(side).count() as u64)
                .iter()
                .product()
        }
        false => 1,
    }
}

/// The size of a first pass, about that of the model's training; none where the image is no larger.
fn first_size(
    networks: &DiffusionNetworks,
    native: [u32; 2],
    [width, height]: [u32; 2],
) -> Option<[u32; 2]> {
    let factor = networks.autoencoder.spec().factor() as u32;
    let side = native[0].min(native[1]);
    if width <= side || height <= side {
        return None;
    }
    if networks.is_xl() {
        let shape = |size: [u32; 2]| f64::from(size[0]) / f64::from(size[1]);
        let wanted = shape([width, height]).ln();
        let turned = XL_SIZES
            .iter()
            .flat_map(|&[long, short]| [[long, short], [short, long]]);
        let gap = |size: &[u32; 2]| (shape(*size).ln() - wanted).abs();
        let nearest = turned.min_by(|a, b| gap(a).total_cmp(&gap(b)))?;
        let scaled =
            nearest.map(|it| (it * side / XL_SIZES[0][0] / factor * factor).max(8 * factor));
        return Some(scaled);
    }
    let step = 8 * factor;
    let shorter = u64::from(width.min(height));
    let scaled = [width, height].map(|it| (u64::from(it) * u64::from(side) / shorter) as u32);
    Some(scaled.map(|it| (it / step * step).max(step)))
}

/// Steps of a second pass: fewer where more of the first one is kept.
fn second_steps(steps: u32, strength: f64, native: [u32; 2], [width, height]: [u32; 2]) -> u32 {
    let all = f64::from(steps);
    let native = f64::from(native[0].min(native[1]));
    let wanted = (3.0 + (all - 3.0) * strength.powi(2)).round();
    let larger = f64::from(width) * f64::from(height) / (native * native) / (3.0 * 512.0 / native);
    let mut found = (wanted * 0.5_f64.powf(larger) / 2.25).round();
    if steps <= 18 {
        found += 3.0;
    }
    (found.max(0.0) as u32).clamp(steps.min(6), steps)
}

/// The vectors of inversions for each encoder.
fn prompt_vectors(
    networks: &DiffusionNetworks,
    inversions: &[Inversion],
) -> Result<Vec<PromptVectors>, Refusal> {
    if inversions.len() > MOST_INVERSIONS {
        let found = inversions.len();
        return Err(Refusal::Unsupported(format!(
            "the request has {found} textual inversions, but the model takes at most {MOST_INVERSIONS}"
        )));
    }
    let encoders = networks.encoders.iter();
    let widths: Vec<usize> = encoders.map(|it| it.clip.spec().hidden_size).collect();
    let mut all = vec![PromptVectors::new(); widths.len()];
    for Inversion { name, file } in inversions {
        let read = || InversionVectors::read(file, &widths);
        let vectors = networks.adapters.inversions.get(file, read);
        let vectors = vectors.map_err(|error| Refusal::Unsupported(error.to_string()))?;
        for (index, known) in all.iter_mut().enumerate() {
            known.insert(name.clone(), vectors.for_encoder(index).to_vec());
        }
    }
    Ok(all)
}

/// Default width and height for requests without a size or a source.
pub fn own_size(
    defaults: &ImageDefaults,
    sample_size: Option<[usize; 2]>,
    autoencoder: &AutoencoderSpec,
) -> [u32; 2] {
    let trained = sample_size.map(|size| size.map(|side| (side * autoencoder.factor()) as u32));
    defaults.size.or(trained).unwrap_or([SIZE; 2])
}

fn longest(windows: &[Vec<PromptWindow>]) -> usize {
    windows.iter().map(Vec::len).max().unwrap_or(0)
}

fn encoder_windows(
    networks: &DiffusionNetworks,
    prompt: &str,
    vectors: &[PromptVectors],
) -> Result<Vec<Vec<PromptWindow>>, Refusal> {
    let encoders = networks.encoders.iter().zip(vectors);
    encoders
        .map(|(it, vectors)| windows(&it.tokenizer, prompt, it.clip.spec().positions, vectors))
        .collect()
}

/// The requested size; else that of the source, rounded to the model's multiples; else the model's default.
fn size(
    networks: &DiffusionNetworks,
    defaults: &ImageDefaults,
    request: &ImageRequest,
) -> Result<[u32; 2], Refusal> {
    let factor = networks.autoencoder.spec().factor() as u32;
    let least = 8 * factor;
    let own = own_size(defaults, networks.sample_size, networks.autoencoder.spec());
    let source = request.source.as_ref();
    let near = |side: u32| (side / factor * factor).clamp(least, MOST_SIDE);
    let default = source.map_or(own, |source| [near(source.width), near(source.height)]);
    let size = [
        ("width", request.width, default[0]),
        ("height", request.height, default[1]),
    ];
    for (setting, asked, default) in size {
        let side = asked.unwrap_or(default);
        in_range(setting, side, least, MOST_SIDE)?;
        if !side.is_multiple_of(factor) {
            return Err(Refusal::Unsupported(format!(
                "{setting} is {side}, but the model takes multiples of {factor}; use {} or {}",
                side / factor * factor,
                side.next_multiple_of(factor),
            )));
        }
    }
    let size = size.map(|(_, asked, default)| asked.unwrap_or(default));
    let pixels = u64::from(size[0]) * u64::from(size[1]);
    match pixels > u64::from(MOST_PIXELS) {
        true => Err(Refusal::Unsupported(format!(
            "{} by {} pixels are {pixels}, but the model takes at most {MOST_PIXELS}",
            size[0], size[1]
        ))),
        false => Ok(size),
    }
}

/// Noise levels of a run. With a strength below 1 they are the end of a longer schedule, so that all requested steps
/// are run.
fn sigmas(
    networks: &DiffusionNetworks,
    sampler: DiffusionSampler,
    schedule: Schedule,
    (steps, strength): (u32, f64),
) -> Result<Vec<f64>, Refusal> {
    if strength <= 0.0 {
        return Ok(Vec::new());
    }
    let all = schedule_levels(steps, strength);
    if all > MOST_LEVELS {
        let least = f64::from(steps) / MOST_LEVELS;
        return Err(Refusal::Unsupported(format!(
            "strength is {strength}, but {steps} steps take at least {least:.4}; use 0 to change nothing"
        )));
    }
    let levels = |count| schedule.sigmas(&networks.table, count);
    let mut sigmas = match sampler.drops_penultimate() {
        true => {
            let mut sigmas = levels(all as usize + 1);
            sigmas.remove(sigmas.len().saturating_sub(2));
            sigmas
        }
        false => levels(all as usize),
    };
    if strength <= FULL_STRENGTH {
        let first = sigmas.len().saturating_sub(steps as usize + 1);
        sigmas.drain(..first);
    }
    Ok(sigmas)
}

/// Length of the schedule whose end is run.
fn schedule_levels(steps: u32, strength: f64) -> f64 {
    match strength > FULL_STRENGTH {
        true => f64::from(steps),
        // 33 / 0.55 is 60, but a little less in binary.
        false => (f64::from(steps) / strength + ROUNDING).floor(),
    }
}

/// Each adds products to every layer.
fn check_loras(loras: &[LoraUse]) -> Result<(), Refusal> {
    if loras.len() > MOST_LORAS {
        let found = loras.len();
        return Err(Refusal::Unsupported(format!(
            "the request has {found} LoRAs, but the model takes at most {MOST_LORAS}"
        )));
    }
    let strengths = loras.iter().flat_map(|lora| [lora.model, lora.clip]);
    let is_odd = |strength: &f32| strength.is_nan() || strength.abs() > MOST_LORA_STRENGTH;
    match strengths.into_iter().find(is_odd) {
        None => Ok(()),
        Some(strength) => Err(Refusal::Unsupported(format!(
            "the strength of a LoRA is {strength}, but the model takes -{MOST_LORA_STRENGTH} to {MOST_LORA_STRENGTH}"
        ))),
    }
}

fn check_pixels(setting: &'static str, pixels: Option<&Pixels>) -> Result<(), Refusal> {
    let Some(pixels) = pixels else {
        return Ok(());
    };
    let count = u64::from(pixels.width) * u64::from(pixels.height);
    if !pixels.is_whole() || count == 0 {
        let broken = format!("the {setting} has fewer or more pixels than its size says");
        return Err(Refusal::Unsupported(broken));
    }
    match count > MOST_SOURCE_PIXELS {
        true => Err(Refusal::Unsupported(format!(
            "the {setting} has {count} pixels, but the model takes at most {MOST_SOURCE_PIXELS}"
        ))),
        false => Ok(()),
    }
}

fn between<T: Copy + PartialOrd + Display + From<u8>>(
    setting: &'static str,
    found: T,
    most: T,
) -> Result<(), Refusal> {
    match (T::from(0)..=most).contains(&found) {
        true => Ok(()),
        false => Err(Refusal::Unsupported(format!(
            "{setting} is {found}, but the model takes 0 to {most}"
        ))),
    }
}

/// A seed of 32 bits, as the start of an image takes, so that programs that keep no more can repeat it.
fn random_seed() -> u64 {
    RandomState::new().hash_one("seed") & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::schedule_levels;

    #[test]
    fn a_strength_takes_as_many_levels_as_exact_arithmetic() {
        for steps in 1..=50 {
            for twentieths in 1..=20 {
                // Rounded once from decimal, as in a request.
                let strength: f64 = format!("{}", f64::from(twentieths) / 20.0).parse().unwrap();
                let levels = schedule_levels(steps, strength);
                let exact = steps * 20 / twentieths;
                assert_eq!(levels, f64::from(exact), "{steps} steps at {strength}");
            }
        }
    }
}
