//! Maps Wan's published tensor names, used in files with a single network, to those of the folder layout.

use crate::networks::blocks::replaced;
use crate::networks::weights::TensorSource;

/// Before the names of a transformer, in files of some programs.
const PREFIXES: [&str; 2] = ["", "model.diffusion_model."];
const TRANSFORMER_MARK: &str = "head.modulation";
/// The same with the names of the folder layout.
const FOLDER_MARK: &str = "condition_embedder.time_proj.weight";
pub const AUTOENCODER_MARK: &str = "encoder.head.0.gamma";

/// Names outside the blocks of a transformer.
const TRANSFORMER: [(&str, &str); 7] = [
    (
        "condition_embedder.time_embedder.linear_1.",
        "time_embedding.0.",
    ),
    (
        "condition_embedder.time_embedder.linear_2.",
        "time_embedding.2.",
    ),
    ("condition_embedder.time_proj.", "time_projection.1."),
    (
        "condition_embedder.text_embedder.linear_1.",
        "text_embedding.0.",
    ),
    (
        "condition_embedder.text_embedder.linear_2.",
        "text_embedding.2.",
    ),
    ("scale_shift_table", TRANSFORMER_MARK),
    ("proj_out.", "head.head."),
];
/// The same inside a block.
const BLOCK: [(&str, &str); 14] = [
    ("attn1.to_q.", "self_attn.q."),
    ("attn1.to_k.", "self_attn.k."),
    ("attn1.to_v.", "self_attn.v."),
    ("attn1.to_out.0.", "self_attn.o."),
    ("attn1.norm_", "self_attn.norm_"),
    ("attn2.to_q.", "cross_attn.q."),
    ("attn2.to_k.", "cross_attn.k."),
    ("attn2.to_v.", "cross_attn.v."),
    ("attn2.to_out.0.", "cross_attn.o."),
    ("attn2.norm_", "cross_attn.norm_"),
    ("norm2.", "norm3."),
    ("scale_shift_table", "modulation"),
    ("ffn.net.0.proj.", "ffn.0."),
    ("ffn.net.2.", "ffn.2."),
];

/// Parts of an autoencoder outside its levels.
const AUTOENCODER: [(&str, &str); 6] = [
    ("mid_block.resnets.0.", "middle.0."),
    ("mid_block.attentions.0.", "middle.1."),
    ("mid_block.resnets.1.", "middle.2."),
    ("conv_in.", "conv1."),
    ("norm_out.", "head.0."),
    ("conv_out.", "head.2."),
];
const QUANTIZERS: [(&str, &str); 2] = [("quant_conv.", "conv1."), ("post_quant_conv.", "conv2.")];
/// Parts of a residual block.
const RESNET: [(&str, &str); 5] = [
    ("norm1.", "residual.0."),
    ("conv1.", "residual.2."),
    ("norm2.", "residual.3."),
    ("conv2.", "residual.6."),
    ("conv_shortcut.", "shortcut."),
];

/// How the tensors of a transformer are called in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransformerNames {
    Folder,
    /// Published names after a prefix.
    Original(&'static str),
}

/// How the tensors of an autoencoder are called in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoencoderNames {
    Folder,
    /// Published names, with this many residual blocks per level of the encoder.
    Original {
        blocks: usize,
        is_residual: bool,
    },
}

impl TransformerNames {
    /// Whether a file with these tensors holds a transformer.
    pub fn are_in(names: &[String]) -> bool {
        let is_mark = |name: &str| {
            let published = PREFIXES
                .iter()
                .filter_map(|prefix| name.strip_prefix(prefix));
            name == FOLDER_MARK || published.into_iter().any(|rest| rest == TRANSFORMER_MARK)
        };
        names.iter().any(|name| is_mark(name))
    }

    pub fn of(tensors: &dyn TensorSource) -> Self {
        let has = |prefix: &&str| {
            let mark = format!("{prefix}{TRANSFORMER_MARK}");
            tensors.headers().iter().any(|header| header.name == mark)
        };
        let found = PREFIXES.into_iter().find(|prefix| has(prefix));
        found.map_or(Self::Folder, Self::Original)
    }

    /// The name in the file.
    pub fn name(self, name: &str) -> String {
        let Self::Original(prefix) = self else {
            return name.to_owned();
        };
        let block = name.strip_prefix("blocks.").and_then(|rest| {
            let (index, part) = rest.split_once('.')?;
            let renamed = BLOCK.iter().find_map(|pair| replaced(part, pair))?;
            Some(format!("blocks.{index}.{renamed}"))
        });
        let other = || TRANSFORMER.iter().find_map(|pair| replaced(name, pair));
        let renamed = block.or_else(other).unwrap_or_else(|| name.to_owned());
        format!("{prefix}{renamed}")
    }
}

impl AutoencoderNames {
    pub fn of(tensors: &dyn TensorSource, blocks: usize, is_residual: bool) -> Self {
        let mut names = tensors.headers().iter().map(|header| header.name.as_str());
        match names.any(|name| name == AUTOENCODER_MARK) {
            true => Self::Original {
                blocks,
                is_residual,
            },
            false => Self::Folder,
        }
    }

    /// The name in the file.
    pub fn name(self, name: &str) -> String {
        let Self::Original {
            blocks,
            is_residual,
        } = self
        else {
            return name.to_owned();
        };
        let renamed = match name.split_once('.') {
            Some(("encoder", part)) => {
                let part = down_part(part, blocks, is_residual);
                Some(format!("encoder.{part}"))
            }
            Some(("decoder", part)) => {
                let part = up_part(part, blocks + 1, is_residual);
                Some(format!("decoder.{part}"))
            }
            _ => QUANTIZERS.iter().find_map(|pair| replaced(name, pair)),
        };
        renamed.unwrap_or_else(|| name.to_owned())
    }
}

fn down_part(part: &str, blocks: usize, is_residual: bool) -> String {
    let Some((level, part)) = part
        .strip_prefix("down_blocks.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return other_part(part);
    };
    if !is_residual {
        return format!("downsamples.{level}.{}", block_part(part));
    }
    let (place, part) = level_part(part, "downsampler.", blocks);
    format!(
        "downsamples.{level}.downsamples.{place}.{}",
        block_part(part)
    )
}

fn up_part(part: &str, blocks: usize, is_residual: bool) -> String {
    let Some((level, part)) = part
        .strip_prefix("up_blocks.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return other_part(part);
    };
    if is_residual {
        let (place, part) = level_part(part, "upsampler.", blocks);
        return format!("upsamples.{level}.upsamples.{place}.{}", block_part(part));
    }
    let (place, part) = level_part(part, "upsamplers.0.", blocks);
    let before = level.parse::<usize>().unwrap_or(0) * (blocks + 1);
    format!("upsamples.{}.{}", before + place, block_part(part))
}

/// The index of a residual block, or of the step to the next level after all of them, and the rest of the name.
fn level_part<'a>(part: &'a str, step: &str, blocks: usize) -> (usize, &'a str) {
    let resnet = part.strip_prefix("resnets.");
    let resnet = resnet.and_then(|rest| rest.split_once('.'));
    match (resnet, part.strip_prefix(step)) {
        (Some((index, part)), _) => (index.parse().unwrap_or(usize::MAX), part),
        (None, Some(part)) => (blocks, part),
        (None, None) => (usize::MAX, part),
    }
}

fn block_part(part: &str) -> String {
    let renamed = RESNET.iter().find_map(|pair| replaced(part, pair));
    renamed.unwrap_or_else(|| part.to_owned())
}

fn other_part(part: &str) -> String {
    let found = AUTOENCODER.iter().find(|(from, _)| part.starts_with(from));
    let Some((from, to)) = found else {
        return part.to_owned();
    };
    let rest = &part[from.len()..];
    match to.starts_with("middle.") {
        true => format!("{to}{}", block_part(rest)),
        false => format!("{to}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Pairs of names by `tests/fixtures/make/wan_names.py`.
    #[test]
    fn names_are_those_that_the_reference_converts() {
        let text = include_str!("../../../../tests/fixtures/golden/video/original-names.json");
        let pairs: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(text).unwrap();
        for (network, pairs) in &pairs {
            assert!(pairs.len() > 20, "{network}");
            for (ours, original) in pairs {
                let found = match network.as_str() {
                    "transformer" => TransformerNames::Original("").name(ours),
                    _ => autoencoder(false).name(ours),
                };
                assert_eq!(&found, original, "{ours}");
            }
        }
    }

    fn autoencoder(is_residual: bool) -> AutoencoderNames {
        AutoencoderNames::Original {
            blocks: 2,
            is_residual,
        }
    }

    /// Wan 2.2's have levels.
    #[test]
    fn residual_levels_stand_in_a_level_of_their_own() {
        let check = |ours: &str, original: &str| {
            assert_eq!(autoencoder(true).name(ours), original);
        };
        check(
            "encoder.down_blocks.1.resnets.1.conv2.bias",
            "encoder.downsamples.1.downsamples.1.residual.6.bias",
        );
        check(
            "encoder.down_blocks.0.downsampler.resample.1.weight",
            "encoder.downsamples.0.downsamples.2.resample.1.weight",
        );
        check(
            "decoder.up_blocks.0.resnets.0.norm1.gamma",
            "decoder.upsamples.0.upsamples.0.residual.0.gamma",
        );
        check(
            "decoder.up_blocks.2.upsampler.time_conv.bias",
            "decoder.upsamples.2.upsamples.3.time_conv.bias",
        );
        check("quant_conv.weight", "conv1.weight");
    }
}
