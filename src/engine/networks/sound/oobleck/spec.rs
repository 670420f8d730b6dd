//! The sizes of Oobleck.

use serde::Deserialize;
use serde_json::Value;

use crate::networks::weights::{Flaw, sized};

#[derive(Debug, Clone, PartialEq)]
pub struct OobleckSpec {
    /// Numbers of a frame of latents.
    pub latent_channels: usize,
    /// Channels of the sound.
    pub channels: usize,
    /// Samples of a channel per second.
    pub rate: u32,
    /// The width of the last level of the decoder.
    pub width: usize,
    /// Per level of the decoder, the factors of length and of width.
    pub levels: Vec<OobleckLevelSpec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OobleckLevelSpec {
    pub stride: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// `config.json` of diffusers.
#[derive(Deserialize)]
struct OobleckJson {
    downsampling_ratios: Vec<usize>,
    channel_multiples: Vec<usize>,
    decoder_channels: usize,
    decoder_input_channels: usize,
    audio_channels: usize,
    sampling_rate: u32,
}

const MOST_STRIDE: usize = 64;
const MOST_LEVELS: usize = 8;
const MOST_CHANNELS: usize = 8;
const MOST_RATE: u32 = 192_000;
/// Kernel and dilations of the convolutions of a unit.
pub const KERNEL: usize = 7;
pub const DILATIONS: [usize; 3] = [1, 3, 9];

impl OobleckSpec {
    /// Reads the `config.json` of diffusers' AutoencoderOobleck.
    pub fn read(value: &Value) -> Result<Self, Flaw> {
        let json: OobleckJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "an Oobleck autoencoder"))?;
        let strides = json.downsampling_ratios;
        // Odd strides would give fewer samples than the latent's length implies.
        let is_known = |stride: &usize| stride.is_multiple_of(2) && *stride <= MOST_STRIDE;
        let is_counted = (1..=MOST_LEVELS).contains(&strides.len());
        if !is_counted || strides.contains(&0) || !strides.iter().all(is_known) {
            let wanted = format!("1 to {MOST_LEVELS} even numbers from 2 to {MOST_STRIDE}");
            return Err(Flaw::broken(
                "downsampling_ratios",
                format!("{strides:?}"),
                wanted,
            ));
        }
        if json.channel_multiples.len() != strides.len() {
            let found = format!("{:?}", json.channel_multiples);
            let wanted = format!("{} numbers, one for each ratio", strides.len());
            return Err(Flaw::broken("channel_multiples", found, wanted));
        }
        let width = sized("decoder_channels", json.decoder_channels)?;
        let mut widths = vec![width];
        for many in json.channel_multiples {
            let product = sized("channel_multiples", many)?.saturating_mul(width);
            widths.push(sized("channel_multiples times decoder_channels", product)?);
        }
        if !(1..=MOST_CHANNELS).contains(&json.audio_channels) {
            let wanted = format!("1 to {MOST_CHANNELS}");
            return Err(Flaw::broken("audio_channels", json.audio_channels, wanted));
        }
        if !(1..=MOST_RATE).contains(&json.sampling_rate) {
            let wanted = format!("1 to {MOST_RATE}");
            return Err(Flaw::broken("sampling_rate", json.sampling_rate, wanted));
        }
        let levels = strides.iter().zip(widths.windows(2)).rev();
        let levels = levels.filter_map(|(&stride, widths)| match widths {
            [outputs, inputs] => Some(OobleckLevelSpec {
                stride,
                inputs: *inputs,
                outputs: *outputs,
            }),
            _ => None,
        });
        let spec = Self {
            latent_channels: sized("decoder_input_channels", json.decoder_input_channels)?,
            channels: json.audio_channels,
            rate: json.sampling_rate,
            width,
            levels: levels.collect(),
        };
        sized("the product of downsampling_ratios", spec.hop())?;
        Ok(spec)
    }

    /// Samples of a frame of latents.
    pub fn hop(&self) -> usize {
        let strides = self.levels.iter().map(|level| level.stride);
        strides.fold(1, usize::saturating_mul)
    }

    /// The width of the first level.
    pub fn first_width(&self) -> usize {
        self.levels.first().map_or(self.width, |level| level.inputs)
    }

    /// Frames of latents on each side of a frame that its samples depend on.
    pub fn reach(&self) -> usize {
        let around = |kernel: usize| kernel / 2;
        let unit: usize = DILATIONS
            .iter()
            .map(|dilation| around(KERNEL) * dilation)
            .sum();
        let levels = self.levels.iter().rev();
        let reach = levels.fold(around(KERNEL), |reach, level| {
            // The transposed convolution reads one position more than the two neighbours.
            (reach + unit).div_ceil(level.stride) + 1
        });
        reach + around(KERNEL)
    }

    /// Multiply-adds of decoding this many latent frames.
    pub fn decode_operations(&self, frames: u64) -> u64 {
        let (first, width) = (self.first_width() as u64, self.width as u64);
        let kernel = KERNEL as u64;
        let mut sum = kernel * frames * self.latent_channels as u64 * first;
        let mut length = frames;
        for level in &self.levels {
            let (inputs, outputs) = (level.inputs as u64, level.outputs as u64);
            // The kernel is two strides long: each sample sees two places.
            length *= level.stride as u64;
            sum += 2 * length * inputs * outputs;
            sum += DILATIONS.len() as u64 * (kernel + 1) * length * outputs * outputs;
        }
        2 * (sum + kernel * length * width * self.channels as u64)
    }

    /// Numbers that decoding holds at once for each frame of latents: a handful of the widest maps.
    pub fn floats_per_frame(&self) -> u64 {
        let mut length = 1_u64;
        let maps = self.levels.iter().map(|level| {
            length = length.saturating_mul(level.stride as u64);
            length.saturating_mul(level.outputs as u64)
        });
        5 * maps.max().unwrap_or(0)
    }
}
