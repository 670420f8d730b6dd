//! The autoencoder between images and latents, an eighth of the size on each side.

use candle_core::{D, Tensor};
use serde::Deserialize;

use super::unet::{Resnet, ResnetShape, same};
use crate::networks::adapter::Pass;
use crate::networks::blocks::{
    AffineNorm, ComponentReader, ComponentSource, ConvolutionLayer, Layout, Projection, block_end,
};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Edges, Mask, Resampling, dense_attention, resample, silu};

const NORM_EPS: f64 = 1e-6;

/// The sizes of an autoencoder, and how its latents are scaled.
#[derive(Debug, Clone, PartialEq)]
pub struct AutoencoderSpec {
    /// From the full size to the smallest.
    pub channels: Vec<usize>,
    pub latent_channels: usize,
    /// Residual blocks of a level of the encoder; the decoder has one more.
    pub blocks: usize,
    pub groups: usize,
    /// Latents are `scale * (z - shift)`.
    pub scale: f64,
    pub shift: f64,
    /// Convolutions between latents and the networks, which Flux and its like leave out.
    pub has_quantizer: bool,
}

/// `config.json` of diffusers.
#[derive(Deserialize)]
struct AutoencoderJson {
    in_channels: usize,
    out_channels: usize,
    block_out_channels: Vec<usize>,
    layers_per_block: usize,
    latent_channels: usize,
    norm_num_groups: usize,
    act_fn: Option<String>,
    /// The first files leave out that of Stable Diffusion 1.
    #[serde(default = "first_scale")]
    scaling_factor: f64,
    shift_factor: Option<f64>,
    use_quant_conv: Option<bool>,
    use_post_quant_conv: Option<bool>,
    mid_block_add_attention: Option<bool>,
    down_block_types: Vec<String>,
}

fn first_scale() -> f64 {
    AutoencoderSpec::stable_diffusion().scale
}

/// Red, green, blue.
const COLORS: usize = 3;

impl AutoencoderSpec {
    /// Stable Diffusion 1 and 2.
    pub fn stable_diffusion() -> Self {
        Self {
            channels: vec![128, 256, 512, 512],
            latent_channels: 4,
            blocks: 2,
            groups: 32,
            scale: 0.18215,
            shift: 0.0,
            has_quantizer: true,
        }
    }

    pub fn stable_diffusion_xl() -> Self {
        Self {
            scale: 0.13025,
            ..Self::stable_diffusion()
        }
    }

    /// Reads the `config.json` of diffusers' AutoencoderKL.
    pub fn read(value: &serde_json::Value) -> Result<Self, Flaw> {
        let json: AutoencoderJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "an AutoencoderKL"))?;
        if (json.in_channels, json.out_channels) != (COLORS, COLORS) {
            let found = format!("{} to {}", json.in_channels, json.out_channels);
            return Err(Flaw::unsupported(
                "in_channels and out_channels",
                found,
                "3 to 3",
            ));
        }
        if let Some(other) = json.act_fn.as_deref().filter(|&name| name != "silu") {
            return Err(Flaw::unsupported("act_fn", other, "silu"));
        }
        let kinds = json.down_block_types.iter();
        if let Some(other) = kinds.clone().find(|name| *name != "DownEncoderBlock2D") {
            return Err(Flaw::unsupported(
                "down_block_types",
                other,
                "DownEncoderBlock2D",
            ));
        }
        if let Some(name) = ["latents_mean", "latents_std"]
            .into_iter()
            .find(|name| !value[*name].is_null())
        {
            return Err(Flaw::unsupported(
                name,
                &value[name],
                "null: one scale for all channels",
            ));
        }
        if json.mid_block_add_attention == Some(false) {
            return Err(Flaw::unsupported("mid_block_add_attention", false, "true"));
        }
        let quantizers = [json.use_quant_conv, json.use_post_quant_conv];
        let quantizers = quantizers.map(|has| has.unwrap_or(true));
        if quantizers[0] != quantizers[1] {
            let found = format!("{quantizers:?}");
            return Err(Flaw::unsupported("use_quant_conv", found, "both or none"));
        }
        let groups = json.norm_num_groups;
        let widths = json.block_out_channels.iter();
        if groups == 0 || widths.clone().any(|width| !width.is_multiple_of(groups)) {
            let wanted = "a divisor of all channels";
            return Err(Flaw::broken("norm_num_groups", groups, wanted));
        }
        if json.block_out_channels.is_empty() {
            return Err(Flaw::broken(
                "block_out_channels",
                "none",
                "one level at least",
            ));
        }
        Ok(Self {
            channels: json.block_out_channels,
            latent_channels: json.latent_channels,
            blocks: json.layers_per_block,
            groups,
            scale: json.scaling_factor,
            shift: json.shift_factor.unwrap_or(0.0),
            has_quantizer: quantizers[0],
        })
    }

    /// Numbers that decoding holds at once for each pixel: the first block at full size.
    pub fn floats_per_pixel(&self) -> u64 {
        let first = self.channels[0];
        let wide = self.channels.get(1).unwrap_or(&first);
        (3 * wide + 2 * first) as u64
    }

    /// Multiply-adds of decoding a latent with this many positions.
    pub fn decode_operations(&self, places: u64) -> u64 {
        let convolution = |n: u64, inputs: u64, outputs: u64| 9 * n * inputs * outputs;
        let resnet = |n: u64, inputs: u64, outputs: u64| {
            let shortcut = if inputs == outputs {
                0
            } else {
                n * inputs * outputs
            };
            convolution(n, inputs, outputs) + convolution(n, outputs, outputs) + shortcut
        };
        let widths = self.channels.iter().rev().map(|width| *width as u64);
        let mut n = places;
        let mut channels = self.channels.last().map_or(0, |width| *width as u64);
        let mut sum = convolution(n, self.latent_channels as u64, channels);
        sum += 2 * resnet(n, channels, channels);
        sum += 4 * n * channels * channels + 2 * n * n * channels;
        for (index, width) in widths.enumerate() {
            if index > 0 {
                n *= 4;
                sum += convolution(n, channels, channels);
            }
            for _ in 0..=self.blocks {
                sum += resnet(n, channels, width);
                channels = width;
            }
        }
        2 * (sum + convolution(n, channels, COLORS as u64))
    }

    /// Pixels per side of a latent's position.
    pub fn factor(&self) -> usize {
        1 << (self.channels.len() - 1)
    }
}

/// An autoencoder on a device.
pub struct Autoencoder {
    spec: AutoencoderSpec,
    encoder: Half,
    decoder: Half,
    quantizers: Option<[Projection; 2]>,
}

/// An encoder or a decoder: levels, and the middle block after or before them.
struct Half {
    inward: ConvolutionLayer,
    levels: Vec<AutoencoderLevel>,
    middle: AutoencoderMiddle,
    norm: AffineNorm,
    outward: ConvolutionLayer,
}

struct AutoencoderLevel {
    blocks: Vec<Resnet>,
    resize: Option<ConvolutionLayer>,
}

struct AutoencoderMiddle {
    first: Resnet,
    norm: AffineNorm,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    second: Resnet,
}

impl Autoencoder {
    pub fn load(spec: AutoencoderSpec, source: ComponentSource) -> Result<Self, Flaw> {
        let levels = spec.channels.len();
        let rename = |name: &str| match source.layout {
            Layout::Folder => name.to_owned(),
            Layout::SingleFile => single_file(name, levels),
        };
        let mut reader = ComponentReader::new(source, rename);
        let autoencoder = Self::read(spec.clone(), &mut reader)?;
        reader.check_nothing_was_ignored(|name| match source.layout {
            Layout::Folder => true,
            Layout::SingleFile => name.starts_with(PREFIX),
        })?;
        Ok(autoencoder)
    }

    fn read(spec: AutoencoderSpec, reader: &mut ComponentReader) -> Result<Self, Flaw> {
        let (latent, widths) = (spec.latent_channels, &spec.channels);
        let (first, last) = (widths[0], widths[widths.len() - 1]);
        // The padding is at the right and at the bottom alone.
        let halve = Axis {
            stride: 2,
            padding: [0, 1],
            ..Axis::default()
        };
        let encoder = Half {
            inward: reader.convolution("encoder.conv_in", [first, COLORS, 3], same())?,
            levels: levels(
                reader,
                &spec,
                ("encoder.down_blocks", "downsamplers", halve),
                widths,
                spec.blocks,
            )?,
            middle: AutoencoderMiddle::load(reader, "encoder.mid_block", last, &spec)?,
            norm: reader.norm("encoder.conv_norm_out", last, NORM_EPS)?,
            outward: reader.convolution("encoder.conv_out", [2 * latent, last, 3], same())?,
        };
        let upward: Vec<usize> = widths.iter().rev().copied().collect();
        let decoder = Half {
            inward: reader.convolution("decoder.conv_in", [last, latent, 3], same())?,
            middle: AutoencoderMiddle::load(reader, "decoder.mid_block", last, &spec)?,
            levels: levels(
                reader,
                &spec,
                ("decoder.up_blocks", "upsamplers", same()),
                &upward,
                spec.blocks + 1,
            )?,
            norm: reader.norm("decoder.conv_norm_out", first, NORM_EPS)?,
            outward: reader.convolution("decoder.conv_out", [COLORS, first, 3], same())?,
        };
        let quantizers = match spec.has_quantizer {
            true => Some([
                reader.projection("quant_conv", (2 * latent, 2 * latent), true)?,
                reader.projection("post_quant_conv", (latent, latent), true)?,
            ]),
            false => None,
        };
        Ok(Self {
            encoder,
            decoder,
            quantizers,
            spec,
        })
    }

    pub fn spec(&self) -> &AutoencoderSpec {
        &self.spec
    }

    /// Blocks of [`encode`](Self::encode).
    pub fn encoder_blocks(&self) -> u64 {
        let blocks = self.encoder.levels.iter().map(|level| level.blocks.len());
        1 + blocks.sum::<usize>() as u64
    }

    /// Blocks of [`decode`](Self::decode).
    pub fn decoder_blocks(&self) -> u64 {
        let levels = self.decoder.levels.iter();
        let blocks = levels.map(|level| level.blocks.len() + usize::from(level.resize.is_some()));
        1 + blocks.sum::<usize>() as u64
    }

    /// Mean and logarithm of the variance, unscaled, of images `[batch, height, width, 3]` in -1 to 1.
    pub async fn encode(
        &self,
        image: &Tensor,
        edges: Edges,
    ) -> candle_core::Result<(Tensor, Tensor)> {
        let (groups, pass) = (self.spec.groups, Pass::plain(edges));
        let mut x = self.encoder.inward.forward(image, pass)?;
        for level in &self.encoder.levels {
            for block in &level.blocks {
                x = block.forward(&x, None, pass)?;
                block_end().await;
            }
            if let Some(resize) = &level.resize {
                x = resize.forward(&x, pass)?;
            }
        }
        x = self.encoder.middle.forward(&x, groups, pass)?;
        block_end().await;
        x = silu(&self.encoder.norm.of_groups(&x, groups)?)?;
        x = self.encoder.outward.forward(&x, pass)?;
        if let Some([quantizer, _]) = &self.quantizers {
            x = quantizer.forward(&x, pass)?;
        }
        let latent = self.spec.latent_channels;
        let mean = x.narrow(D::Minus1, 0, latent)?;
        Ok((mean, x.narrow(D::Minus1, latent, latent)?))
    }

    /// Images `[batch, height, width, 3]`, about -1 to 1, of unscaled latents.
    pub async fn decode(&self, z: &Tensor, edges: Edges) -> candle_core::Result<Tensor> {
        let (groups, pass) = (self.spec.groups, Pass::plain(edges));
        let mut x = match &self.quantizers {
            Some([_, quantizer]) => quantizer.forward(z, pass)?,
            None => z.clone(),
        };
        x = self.decoder.inward.forward(&x, pass)?;
        x = self.decoder.middle.forward(&x, groups, pass)?;
        block_end().await;
        for level in &self.decoder.levels {
            for block in &level.blocks {
                x = block.forward(&x, None, pass)?;
                block_end().await;
            }
            if let Some(resize) = &level.resize {
                let size = [2 * x.dim(1)?, 2 * x.dim(2)?];
                x = resize.forward(&resample(&x, size, Resampling::Nearest)?, pass)?;
                block_end().await;
            }
        }
        x = silu(&self.decoder.norm.of_groups(&x, groups)?)?;
        self.decoder.outward.forward(&x, pass)
    }
}

fn levels(
    reader: &mut ComponentReader,
    spec: &AutoencoderSpec,
    (name, resizer, axis): (&str, &str, Axis),
    widths: &[usize],
    count: usize,
) -> Result<Vec<AutoencoderLevel>, Flaw> {
    let mut channels = widths[0];
    let mut levels = Vec::with_capacity(widths.len());
    for (index, &width) in widths.iter().enumerate() {
        let mut blocks = Vec::with_capacity(count);
        for block in 0..count {
            let name = format!("{name}.{index}.resnets.{block}");
            blocks.push(Resnet::load(
                reader,
                &name,
                (channels, width),
                spec.resnets(),
            )?);
            channels = width;
        }
        let resize = match index + 1 == widths.len() {
            true => None,
            false => {
                let name = format!("{name}.{index}.{resizer}.0.conv");
                Some(reader.convolution(&name, [width, width, 3], axis)?)
            }
        };
        levels.push(AutoencoderLevel { blocks, resize });
    }
    Ok(levels)
}

impl AutoencoderSpec {
    fn resnets(&self) -> ResnetShape {
        ResnetShape {
            groups: self.groups,
            norm_eps: NORM_EPS,
            time_width: None,
        }
    }
}

impl AutoencoderMiddle {
    fn load(
        reader: &mut ComponentReader,
        name: &str,
        channels: usize,
        spec: &AutoencoderSpec,
    ) -> Result<Self, Flaw> {
        let square = (channels, channels);
        let resnet = |reader: &mut ComponentReader, index: usize| {
            let name = format!("{name}.resnets.{index}");
            Resnet::load(reader, &name, square, spec.resnets())
        };
        let attention = format!("{name}.attentions.0");
        let projection = |reader: &mut ComponentReader, part: &str| {
            reader.projection(&format!("{attention}.{part}"), square, true)
        };
        Ok(Self {
            first: resnet(reader, 0)?,
            norm: reader.norm(&format!("{attention}.group_norm"), channels, NORM_EPS)?,
            query: projection(reader, "to_q")?,
            key: projection(reader, "to_k")?,
            value: projection(reader, "to_v")?,
            output: projection(reader, "to_out.0")?,
            second: resnet(reader, 1)?,
        })
    }

    fn forward(&self, x: &Tensor, groups: usize, pass: Pass) -> candle_core::Result<Tensor> {
        let x = self.first.forward(x, None, pass)?;
        let (batch, height, width, channels) = x.dims4()?;
        let normed = self.norm.of_groups(&x, groups)?;
        let rows = normed.reshape((batch, height * width, channels))?;
        // A single head with all channels.
        let one_head = |projection: &Projection| projection.forward(&rows, pass)?.unsqueeze(2);
        let scale = (channels as f32).powf(-0.5);
        let (q, k, v) = (
            one_head(&self.query)?,
            one_head(&self.key)?,
            one_head(&self.value)?,
        );
        let attended = dense_attention(&q, &k, &v, scale, Mask::None)?.squeeze(2)?;
        let attended = self.output.forward(&attended, pass)?.reshape(x.dims())?;
        self.second.forward(&(x + attended)?, None, pass)
    }
}

const PREFIX: &str = "first_stage_model.";

/// A name of the folder layout as single files have it, where decoders count their levels from the full size.
fn single_file(name: &str, levels: usize) -> String {
    let parts = [
        ("mid_block.resnets.0", "mid.block_1"),
        ("mid_block.resnets.1", "mid.block_2"),
        ("mid_block.attentions.0.group_norm", "mid.attn_1.norm"),
        ("mid_block.attentions.0.to_q", "mid.attn_1.q"),
        ("mid_block.attentions.0.to_k", "mid.attn_1.k"),
        ("mid_block.attentions.0.to_v", "mid.attn_1.v"),
        ("mid_block.attentions.0.to_out.0", "mid.attn_1.proj_out"),
        ("conv_norm_out", "norm_out"),
        ("conv_shortcut", "nin_shortcut"),
        (".resnets.", ".block."),
        (".downsamplers.0.", ".downsample."),
        (".upsamplers.0.", ".upsample."),
        ("down_blocks.", "down."),
    ];
    let mut name = name.to_owned();
    if let Some(rest) = name.strip_prefix("decoder.up_blocks.")
        && let Some((index, rest)) = rest.split_once('.')
        && let Ok(index) = index.parse::<usize>()
    {
        name = format!("decoder.up.{}.{rest}", levels - 1 - index);
    }
    for (from, to) in parts {
        name = name.replace(from, to);
    }
    format!("{PREFIX}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_published_files() {
        let check = |folder: &str, single: &str| {
            assert_eq!(single_file(folder, 4), format!("{PREFIX}{single}"));
        };
        check("encoder.conv_in.weight", "encoder.conv_in.weight");
        check("quant_conv.bias", "quant_conv.bias");
        check(
            "encoder.down_blocks.1.resnets.0.conv_shortcut.bias",
            "encoder.down.1.block.0.nin_shortcut.bias",
        );
        check(
            "encoder.down_blocks.2.downsamplers.0.conv.bias",
            "encoder.down.2.downsample.conv.bias",
        );
        check(
            "decoder.up_blocks.0.resnets.2.norm1.bias",
            "decoder.up.3.block.2.norm1.bias",
        );
        check(
            "decoder.up_blocks.2.upsamplers.0.conv.weight",
            "decoder.up.1.upsample.conv.weight",
        );
        check(
            "decoder.mid_block.attentions.0.to_out.0.weight",
            "decoder.mid.attn_1.proj_out.weight",
        );
        check(
            "decoder.mid_block.resnets.1.conv2.weight",
            "decoder.mid.block_2.conv2.weight",
        );
        check("decoder.conv_norm_out.weight", "decoder.norm_out.weight");
    }
}
