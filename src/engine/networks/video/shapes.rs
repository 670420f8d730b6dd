//! Infers the `config.json` of networks in files without one from the shapes of their tensors. Other parameters are
//! facts of the family, which is identified by the number of latent channels: [`WanFacts`].

use serde_json::{Value, json};

use super::original::{AUTOENCODER_MARK, TransformerNames};
use crate::networks::text_encoder::TextNames;
use crate::networks::weights::{Flaw, TensorSource};

/// Facts that no tensor's shape implies.
#[derive(Debug, Clone, PartialEq)]
pub struct WanFacts {
    pub head_size: usize,
    /// How much longer a run stays at high noise levels.
    pub shift: f64,
    /// The transformer knows each frame's own time, so that a first frame can be given.
    pub takes_first_frame: bool,
    /// Latents are `(z - mean) / deviation`, for each channel.
    pub mean: Vec<f64>,
    pub deviation: Vec<f64>,
}

/// Finds facts by the number of latent channels.
pub type FactsOf = fn(usize) -> Result<WanFacts, Flaw>;

/// Published with the autoencoder of Wan 2.1.
#[rustfmt::skip]
const MEAN_2_1: [f64; 16] = [
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
    0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921,
];
#[rustfmt::skip]
const DEVIATION_2_1: [f64; 16] = [
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
    3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160,
];
/// Published with the autoencoder of Wan 2.2 TI2V.
#[rustfmt::skip]
const MEAN_2_2: [f64; 48] = [
    -0.2289, -0.0052, -0.1323, -0.2339, -0.2799, 0.0174, 0.1838, 0.1557,
    -0.1382, 0.0542, 0.2813, 0.0891, 0.1570, -0.0098, 0.0375, -0.1825,
    -0.2246, -0.1207, -0.0698, 0.5109, 0.2665, -0.2108, -0.2158, 0.2502,
    -0.2055, -0.0322, 0.1109, 0.1567, -0.0729, 0.0899, -0.2799, -0.1230,
    -0.0313, -0.1649, 0.0117, 0.0723, -0.2839, -0.2083, -0.0520, 0.3748,
    0.0152, 0.1957, 0.1433, -0.2944, 0.3573, -0.0548, -0.1681, -0.0667,
];
#[rustfmt::skip]
const DEVIATION_2_2: [f64; 48] = [
    0.4765, 1.0364, 0.4514, 1.1677, 0.5313, 0.4990, 0.4818, 0.5013,
    0.8158, 1.0344, 0.5894, 1.0901, 0.6885, 0.6165, 0.8454, 0.4978,
    0.5759, 0.3523, 0.7135, 0.6804, 0.5833, 1.4146, 0.8986, 0.5659,
    0.7069, 0.5338, 0.4889, 0.4917, 0.4069, 0.4999, 0.6866, 0.4093,
    0.5709, 0.6065, 0.6415, 0.4944, 0.5726, 1.2042, 0.5458, 1.6887,
    0.3971, 1.0600, 0.3943, 0.5537, 0.5444, 0.4089, 0.7468, 0.7744,
];

/// Patch size for GGUF files, where the patch weights have fewer axes.
const USUAL_PATCH: [usize; 3] = [1, 2, 2];
const COLORS: usize = 3;

impl WanFacts {
    pub fn of(latent_channels: usize) -> Result<Self, Flaw> {
        match latent_channels {
            16 => Ok(Self {
                head_size: 128,
                shift: 3.0,
                takes_first_frame: false,
                mean: MEAN_2_1.to_vec(),
                deviation: DEVIATION_2_1.to_vec(),
            }),
            48 => Ok(Self {
                head_size: 128,
                shift: 5.0,
                takes_first_frame: true,
                mean: MEAN_2_2.to_vec(),
                deviation: DEVIATION_2_2.to_vec(),
            }),
            found => Err(Flaw::unsupported(
                "the number of latent channels",
                found,
                "16, as Wan 2.1, and 48, as Wan 2.2 TI2V",
            )),
        }
    }
}

/// Describes a transformer as diffusers does.
pub fn transformer_config(tensors: &dyn TensorSource, facts: FactsOf) -> Result<Value, Flaw> {
    let names = TransformerNames::of(tensors);
    let shape = |name: &str| shape(tensors, &names.name(name));
    let patches = shape("patch_embedding.weight")?;
    let (width, inputs, patch) = match *patches {
        [width, inputs, frames, rows, columns] => (width, inputs, [frames, rows, columns]),
        [width, inputs] => (
            width,
            inputs / USUAL_PATCH.iter().product::<usize>(),
            USUAL_PATCH,
        ),
        _ => {
            let wanted = "[width, channels, frames, rows, columns]";
            return Err(Flaw::broken(
                "patch_embedding.weight",
                format!("{patches:?}"),
                wanted,
            ));
        }
    };
    let volume = patch.iter().product::<usize>().max(1);
    // Image-to-video networks see more channels than they make.
    let outputs = first(shape("proj_out.weight")?) / volume;
    let head_size = facts(outputs)?.head_size;
    if !width.is_multiple_of(head_size) {
        let wanted = format!("a multiple of {head_size}, the size of a head");
        return Err(Flaw::unsupported("the width of the network", width, wanted));
    }
    let is_there = |name: &str| tensors.header(&names.name(name)).is_some();
    let layers = count(|layer| is_there(&format!("blocks.{layer}.attn1.to_q.weight")));
    Ok(json!({
        "patch_size": patch,
        "num_attention_heads": width / head_size,
        "attention_head_dim": head_size,
        "in_channels": inputs,
        "out_channels": outputs,
        "text_dim": last(shape("condition_embedder.text_embedder.linear_1.weight")?),
        "freq_dim": last(shape("condition_embedder.time_embedder.linear_1.weight")?),
        "ffn_dim": first(shape("blocks.0.ffn.net.0.proj.weight")?),
        "num_layers": layers,
        "cross_attn_norm": is_there("blocks.0.norm2.weight"),
        "qk_norm": "rms_norm_across_heads",
        "eps": 1e-6,
    }))
}

/// Describes a text encoder as transformers does.
pub fn text_config(tensors: &dyn TensorSource) -> Result<Value, Flaw> {
    let names = TextNames::of(tensors);
    let shape = |name: &str| shape(tensors, &names.name(name));
    let table = shape("shared.weight").or_else(|_| shape("encoder.embed_tokens.weight"))?;
    let layer = |index: usize, part: &str| format!("encoder.block.{index}.layer.{part}.weight");
    let is_there = |name: String| tensors.header(&names.name(&name)).is_some();
    let layers = count(|index| is_there(layer(index, "0.SelfAttention.q")));
    let biases = "0.SelfAttention.relative_attention_bias";
    // T5 has them in its first layer alone.
    for index in 0..layers {
        shape(&layer(index, biases))?;
    }
    // Present in the last of several files.
    shape("encoder.final_layer_norm.weight")?;
    let heads = last(shape(&layer(0, biases))?);
    Ok(json!({
        "model_type": "umt5",
        "feed_forward_proj": "gated-gelu",
        "vocab_size": first(table),
        "d_model": last(table),
        "num_heads": heads,
        "d_kv": first(shape(&layer(0, "0.SelfAttention.q"))?) / heads.max(1),
        "d_ff": first(shape(&layer(0, "1.DenseReluDense.wi_0"))?),
        "num_layers": layers,
        "relative_attention_num_buckets": first(shape(&layer(0, biases))?),
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
    }))
}

/// Describes an autoencoder with the published names as diffusers does.
pub fn autoencoder_config(tensors: &dyn TensorSource, facts: FactsOf) -> Result<Value, Flaw> {
    let shape = |name: &str| shape(tensors, name);
    let last_width = first(shape(AUTOENCODER_MARK)?);
    let latent_channels = first(shape("conv2.weight")?);
    let facts = facts(latent_channels)?;
    let inward = shape("encoder.conv1.weight")?;
    let (base, colors) = (first(inward), inward.get(1).copied().unwrap_or(0));
    let levels = EncoderLevels::of(tensors)?;
    let multiples: Vec<usize> = levels
        .widths
        .iter()
        .map(|width| width / base.max(1))
        .collect();
    if levels.widths.last() != Some(&last_width)
        || levels.widths.iter().any(|width| width % base.max(1) != 0)
    {
        let found = format!("levels of {:?} channels", levels.widths);
        let wanted = format!("multiples of {base}, the last one {last_width}");
        return Err(Flaw::broken("the encoder", found, wanted));
    }
    let decoded = first(shape("decoder.head.0.gamma")?) / multiples[0].max(1);
    Ok(json!({
        "base_dim": base,
        "decoder_base_dim": decoded,
        "z_dim": latent_channels,
        "dim_mult": multiples,
        "num_res_blocks": levels.blocks,
        "temperal_downsample": levels.halves_time,
        "latents_mean": facts.mean,
        "latents_std": facts.deviation,
        "is_residual": levels.is_residual,
        "in_channels": colors,
        "out_channels": colors,
        "patch_size": (colors / COLORS).isqrt(),
    }))
}

/// The levels of an encoder with the published names.
struct EncoderLevels {
    widths: Vec<usize>,
    /// Residual blocks of each level.
    blocks: usize,
    halves_time: Vec<bool>,
    is_residual: bool,
}

impl EncoderLevels {
    fn of(tensors: &dyn TensorSource) -> Result<Self, Flaw> {
        let has = |name: String| tensors.header(&name).is_some();
        let is_part = |stem: &str| {
            has(format!("{stem}.residual.2.weight")) || has(format!("{stem}.resample.1.weight"))
        };
        let parts = |stem: &str| -> Vec<String> {
            let part = |index| format!("{stem}.{index}");
            (0..count(|index| is_part(&part(index))))
                .map(part)
                .collect()
        };
        let inner = |level: usize| parts(&format!("encoder.downsamples.{level}.downsamples"));
        let is_residual = !inner(0).is_empty();
        let parts = match is_residual {
            true => (0..count(|level| !inner(level).is_empty()))
                .flat_map(inner)
                .collect(),
            false => parts("encoder.downsamples"),
        };
        let (mut widths, mut halves_time, mut counts) = (Vec::new(), Vec::new(), vec![0]);
        for stem in parts {
            match tensors.header(&format!("{stem}.residual.2.weight")) {
                Some(block) => {
                    widths.resize(counts.len(), 0);
                    widths[counts.len() - 1] = first(&block.shape);
                    counts[halves_time.len()] += 1;
                }
                None => {
                    halves_time.push(has(format!("{stem}.time_conv.weight")));
                    counts.push(0);
                }
            }
        }
        let blocks = counts[0];
        match blocks > 0 && counts.iter().all(|count| *count == blocks) {
            true => Ok(Self {
                widths,
                blocks,
                halves_time,
                is_residual,
            }),
            false => {
                let found = format!("levels of {counts:?} residual blocks");
                Err(Flaw::unsupported(
                    "the encoder",
                    found,
                    "as many in each level",
                ))
            }
        }
    }
}

fn shape<'a>(tensors: &'a dyn TensorSource, name: &str) -> Result<&'a [usize], Flaw> {
    match tensors.header(name) {
        Some(header) => Ok(&header.shape),
        None => Err(Flaw::broken(
            format!("the tensor {name:?}"),
            "nothing",
            "one",
        )),
    }
}

fn first(shape: &[usize]) -> usize {
    shape.first().copied().unwrap_or(0)
}

fn last(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(0)
}

/// Number of consecutive ones from 0 on.
fn count(is_there: impl Fn(usize) -> bool) -> usize {
    (0..).take_while(|index| is_there(*index)).count()
}
