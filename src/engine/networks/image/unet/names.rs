//! Converts names of the folder layout to those of single files.

use super::spec::UnetSpec;

pub const PREFIX: &str = "model.diffusion_model.";

/// The names of a network in a single file, whose blocks are numbered across all levels.
pub struct SingleFile {
    levels: usize,
    blocks: usize,
    /// Whether a level has transformers.
    is_attentive: Vec<bool>,
}

/// Parts of a residual block.
const RESNET_PARTS: [(&str, &str); 6] = [
    ("norm1", "in_layers.0"),
    ("conv1", "in_layers.2"),
    ("time_emb_proj", "emb_layers.1"),
    ("norm2", "out_layers.0"),
    ("conv2", "out_layers.3"),
    ("conv_shortcut", "skip_connection"),
];

const ENDS: [(&str, &str); 7] = [
    ("conv_in", "input_blocks.0.0"),
    ("time_embedding.linear_1", "time_embed.0"),
    ("time_embedding.linear_2", "time_embed.2"),
    ("add_embedding.linear_1", "label_emb.0.0"),
    ("add_embedding.linear_2", "label_emb.0.2"),
    ("conv_norm_out", "out.0"),
    ("conv_out", "out.2"),
];

impl SingleFile {
    pub fn new(spec: &UnetSpec) -> Self {
        Self {
            levels: spec.levels.len(),
            blocks: spec.blocks,
            is_attentive: spec.levels.iter().map(|level| level.depth > 0).collect(),
        }
    }

    pub fn of(&self, name: &str) -> String {
        format!(
            "{PREFIX}{}",
            self.inner(name).unwrap_or_else(|| name.to_owned())
        )
    }

    /// A layer's name without its tensor's ending and without the prefix, as files of adapters have it.
    pub fn of_layer(&self, layer: &str) -> String {
        const ENDING: &str = ".weight";
        let name = self.inner(&format!("{layer}{ENDING}"));
        let name = name.as_deref().unwrap_or(layer);
        name.trim_end_matches(ENDING).to_owned()
    }

    fn inner(&self, name: &str) -> Option<String> {
        let end = ENDS.iter().find_map(|(from, to)| {
            let rest = name.strip_prefix(from)?;
            rest.starts_with('.').then(|| format!("{to}{rest}"))
        });
        if end.is_some() {
            return end;
        }
        let (section, rest) = name.split_once('.')?;
        if section == "mid_block" {
            let (kind, rest) = rest.split_once('.')?;
            let (index, rest) = rest.split_once('.')?;
            return match (kind, index) {
                ("attentions", _) => Some(format!("middle_block.1.{rest}")),
                (_, "0") => Some(format!("middle_block.0.{}", resnet(rest)?)),
                _ => Some(format!("middle_block.2.{}", resnet(rest)?)),
            };
        }
        let (level, rest) = number(rest)?;
        let (kind, rest) = rest.split_once('.')?;
        let (block, rest) = number(rest)?;
        match section {
            "down_blocks" => {
                let first = 1 + level * (self.blocks + 1);
                Some(match kind {
                    "resnets" => format!("input_blocks.{}.0.{}", first + block, resnet(rest)?),
                    "attentions" => format!("input_blocks.{}.1.{rest}", first + block),
                    _ => {
                        let rest = rest.strip_prefix("conv.")?;
                        format!("input_blocks.{}.0.op.{rest}", first + self.blocks)
                    }
                })
            }
            "up_blocks" => {
                let first = level * (self.blocks + 1);
                Some(match kind {
                    "resnets" => format!("output_blocks.{}.0.{}", first + block, resnet(rest)?),
                    "attentions" => format!("output_blocks.{}.1.{rest}", first + block),
                    _ => {
                        let is_attentive = self.is_attentive.get(self.levels - 1 - level)?;
                        let place = if *is_attentive { 2 } else { 1 };
                        format!("output_blocks.{}.{place}.{rest}", first + self.blocks)
                    }
                })
            }
            _ => None,
        }
    }
}

fn number(text: &str) -> Option<(usize, &str)> {
    let (number, rest) = text.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

fn resnet(rest: &str) -> Option<String> {
    RESNET_PARTS.iter().find_map(|(from, to)| {
        let rest = rest.strip_prefix(from)?;
        Some(format!("{to}{rest}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_published_files() {
        let names = SingleFile::new(&UnetSpec::stable_diffusion_1());
        let check = |folder: &str, single: &str| {
            assert_eq!(names.of(folder), format!("{PREFIX}{single}"));
        };
        check("conv_in.weight", "input_blocks.0.0.weight");
        check("time_embedding.linear_2.bias", "time_embed.2.bias");
        check(
            "down_blocks.0.resnets.1.conv1.weight",
            "input_blocks.2.0.in_layers.2.weight",
        );
        check(
            "down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q.weight",
            "input_blocks.4.1.transformer_blocks.0.attn1.to_q.weight",
        );
        check(
            "down_blocks.2.downsamplers.0.conv.bias",
            "input_blocks.9.0.op.bias",
        );
        check(
            "mid_block.resnets.1.time_emb_proj.weight",
            "middle_block.2.emb_layers.1.weight",
        );
        check(
            "up_blocks.0.upsamplers.0.conv.weight",
            "output_blocks.2.1.conv.weight",
        );
        check(
            "up_blocks.1.upsamplers.0.conv.weight",
            "output_blocks.5.2.conv.weight",
        );
        check(
            "up_blocks.3.resnets.2.conv_shortcut.bias",
            "output_blocks.11.0.skip_connection.bias",
        );
        check("conv_out.weight", "out.2.weight");
        let names = SingleFile::new(&UnetSpec::stable_diffusion_xl());
        let found = names.of("add_embedding.linear_1.weight");
        assert_eq!(found, format!("{PREFIX}label_emb.0.0.weight"));
    }
}
