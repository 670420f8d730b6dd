//! The sizes of a video autoencoder, and how its latents are scaled.

use serde::Deserialize;

use super::super::sized;
use crate::networks::weights::Flaw;

#[derive(Debug, Clone, PartialEq)]
pub struct VideoAutoencoderSpec {
    /// Channels of the first level.
    pub encoder_width: usize,
    pub decoder_width: usize,
    pub latent_channels: usize,
    /// Channels of each level from the full size down, in first widths.
    pub multiples: Vec<usize>,
    /// Residual blocks of a level of the encoder; the decoder has one more.
    pub blocks: usize,
    /// Which of the steps between levels halve the time as well.
    pub halves_time: Vec<bool>,
    /// Levels have a path around them: Wan 2.2.
    pub is_residual: bool,
    /// Side of pixel squares that are folded into channels first.
    pub patch: usize,
    /// Latents are `(z - mean) / deviation`, for each channel.
    pub mean: Vec<f64>,
    pub deviation: Vec<f64>,
}

/// `config.json` of diffusers.
#[derive(Deserialize)]
struct VideoAutoencoderJson {
    base_dim: usize,
    decoder_base_dim: Option<usize>,
    z_dim: usize,
    dim_mult: Vec<usize>,
    num_res_blocks: usize,
    #[serde(default)]
    attn_scales: Vec<f64>,
    temperal_downsample: Vec<bool>,
    latents_mean: Vec<f64>,
    latents_std: Vec<f64>,
    #[serde(default)]
    is_residual: bool,
    in_channels: Option<usize>,
    out_channels: Option<usize>,
    patch_size: Option<usize>,
    scale_factor_temporal: Option<usize>,
    scale_factor_spatial: Option<usize>,
}

/// Red, green, blue.
const COLORS: usize = 3;
const MOST_LEVELS: usize = 8;
const MOST_MULTIPLE: usize = 64;
const MOST_BLOCKS: usize = 64;
const MOST_WIDTH: usize = 1 << 14;
const MOST_PATCH: usize = 16;

impl VideoAutoencoderSpec {
    /// Reads the `config.json` of diffusers' AutoencoderKLWan.
    pub fn read(value: &serde_json::Value) -> Result<Self, Flaw> {
        let json: VideoAutoencoderJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "an AutoencoderKLWan"))?;
        let within = |name: &str, value: usize, most: usize| match sized(name, value)? <= most {
            true => Ok(value),
            false => Err(Flaw::broken(name, value, format!("1 to {most}"))),
        };
        let patch = within("patch_size", json.patch_size.unwrap_or(1), MOST_PATCH)?;
        let colors = COLORS * patch * patch;
        for (name, found) in [
            ("in_channels", json.in_channels),
            ("out_channels", json.out_channels),
        ] {
            let found = found.unwrap_or(COLORS);
            if found != colors {
                return Err(Flaw::unsupported(name, found, colors.to_string()));
            }
        }
        if !json.attn_scales.is_empty() {
            let found = format!("{:?}", json.attn_scales);
            return Err(Flaw::unsupported("attn_scales", found, "none"));
        }
        within("the number of dim_mult", json.dim_mult.len(), MOST_LEVELS)?;
        for &multiple in &json.dim_mult {
            within("dim_mult", multiple, MOST_MULTIPLE)?;
        }
        let steps = json.temperal_downsample.len();
        if steps + 1 != json.dim_mult.len() {
            let wanted = format!(
                "{} values, one for each step between levels",
                json.dim_mult.len() - 1
            );
            return Err(Flaw::broken(
                "temperal_downsample",
                format!("{steps} values"),
                wanted,
            ));
        }
        let latent_channels = within("z_dim", json.z_dim, MOST_WIDTH)?;
        for (name, values) in [
            ("latents_mean", &json.latents_mean),
            ("latents_std", &json.latents_std),
        ] {
            if values.len() != latent_channels || values.iter().any(|value| !value.is_finite()) {
                let wanted = format!("{latent_channels} numbers, one for each channel");
                return Err(Flaw::broken(
                    name,
                    format!("{} values", values.len()),
                    wanted,
                ));
            }
        }
        if json.latents_std.contains(&0.0) {
            return Err(Flaw::broken("latents_std", 0, "numbers above 0"));
        }
        let encoder_width = within("base_dim", json.base_dim, MOST_WIDTH)?;
        let decoder_width = json.decoder_base_dim.unwrap_or(encoder_width);
        let spec = Self {
            encoder_width,
            decoder_width: within("decoder_base_dim", decoder_width, MOST_WIDTH)?,
            latent_channels,
            multiples: json.dim_mult,
            blocks: within("num_res_blocks", json.num_res_blocks, MOST_BLOCKS)?,
            halves_time: json.temperal_downsample,
            is_residual: json.is_residual,
            patch,
            mean: json.latents_mean,
            deviation: json.latents_std,
        };
        for (name, found, computed) in [
            (
                "scale_factor_spatial",
                json.scale_factor_spatial,
                spec.factor(),
            ),
            (
                "scale_factor_temporal",
                json.scale_factor_temporal,
                spec.time_factor(),
            ),
        ] {
            if let Some(found) = found.filter(|&found| found != computed) {
                return Err(Flaw::broken(
                    name,
                    found,
                    format!("{computed}, as the levels give"),
                ));
            }
        }
        Ok(spec)
    }

    /// Pixels per side of a latent's position.
    pub fn factor(&self) -> usize {
        self.patch << self.halves_time.len()
    }

    /// Frames per latent frame after the first.
    pub fn time_factor(&self) -> usize {
        1 << self.halves_time.iter().filter(|&&halves| halves).count()
    }

    /// Channels of one pixel, or of a patch of them.
    pub fn colors(&self) -> usize {
        COLORS * self.patch * self.patch
    }

    /// Channels before and after each level, the first one at full size.
    pub fn encoder_widths(&self) -> Vec<usize> {
        let levels = self
            .multiples
            .iter()
            .map(|multiple| multiple * self.encoder_width);
        std::iter::once(self.encoder_width).chain(levels).collect()
    }

    /// Channels before and after each level, the first one at the size of latents.
    pub fn decoder_widths(&self) -> Vec<usize> {
        let levels = self.multiples.iter().rev();
        let levels = levels.map(|multiple| multiple * self.decoder_width);
        let first = levels.clone().next();
        first.into_iter().chain(levels).collect()
    }

    /// Numbers that decoding holds at once for each pixel of a frame: a convolution at full size and the frames that it
    /// joins, and the frames that later convolutions remember.
    pub fn floats_per_pixel(&self) -> u64 {
        let full = self.multiples.first().unwrap_or(&1) * self.decoder_width;
        let convolutions = 2 * (self.blocks as u64 + 1);
        let at_full = full as u64 * (6 + 2 * convolutions);
        // The level below has at most twice the channels on a quarter of the places.
        (at_full * 2) / (self.patch * self.patch) as u64 + COLORS as u64
    }

    /// Steps in which a frame is decoded.
    pub fn decoder_stages(&self) -> u64 {
        (self.multiples.len() * (self.blocks + 2) + 6) as u64
    }
}
