//! The tower: tokens in the order of their windows, and back in rows at the end.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::spec::Qwen2Spec;
use crate::networks::blocks::{ComponentReader, Projection};
use crate::networks::vision::block::{AttentionNames, Block, BlockNames, FeedNames, Norm};
use crate::networks::vision::image::{CHANNELS, ImageGrid, ProcessedImage};
use crate::networks::vision::qwen3::axial_rope;
use crate::networks::vision::tower::{ImageFeatures, Tower, TowerPass};
use crate::networks::weights::Flaw;
use muster_kernels::{Convolution, gelu_erf};

const NAMES: BlockNames = BlockNames {
    attention_norm: "norm1",
    attention: AttentionNames::Joined("attn.qkv"),
    output: "attn.proj",
    feed_norm: "norm2",
    feed: FeedNames::Gated(["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]),
};

pub struct Qwen2Tower {
    spec: Qwen2Spec,
    device: Device,
    patches: Convolution,
    blocks: Vec<Block>,
    norm: Norm,
    up: Projection,
    down: Projection,
}

impl Qwen2Tower {
    pub fn read(
        spec: &Qwen2Spec,
        device: &Device,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, patch) = (spec.block.hidden, spec.patch_size);
        // An image is the same in all frames of a patch, so their weights are added up.
        let shape = [hidden, CHANNELS, spec.temporal_patch_size, patch, patch];
        let weight = reader.tensor("tower.patch_embed.proj.weight", &shape)?;
        let weight = weight.to_dtype(DType::F32)?.sum(2)?;
        let weight = weight.reshape((hidden, CHANNELS * patch * patch))?;
        let blocks = (0..spec.layers).map(|index| {
            Block::read(
                &format!("tower.blocks.{index}"),
                &NAMES,
                &spec.block,
                reader,
            )
        });
        let blocks = blocks.collect::<std::result::Result<_, _>>()?;
        let merged = hidden * spec.merge_size * spec.merge_size;
        Ok(Self {
            patches: Convolution::product(&weight, None)?,
            blocks,
            norm: Norm::read("tower.merger.ln_q", hidden, &spec.block, reader)?,
            up: reader.projection("tower.merger.mlp.0", (merged, merged), true)?,
            down: reader.projection("tower.merger.mlp.2", (spec.out_size, merged), true)?,
            spec: spec.clone(),
            device: device.clone(),
        })
    }
}

/// Tokens of an image window by window, and how many each window has.
fn windows(grid: ImageGrid, side: usize) -> (Vec<[usize; 2]>, Vec<usize>) {
    let (mut tokens, mut counts) = (Vec::with_capacity(grid.tokens()), Vec::new());
    for top in (0..grid.rows).step_by(side) {
        for left in (0..grid.columns).step_by(side) {
            let before = tokens.len();
            for row in top..grid.rows.min(top + side) {
                tokens.extend((left..grid.columns.min(left + side)).map(|column| [row, column]));
            }
            counts.push(tokens.len() - before);
        }
    }
    (tokens, counts)
}

impl Tower for Qwen2Tower {
    fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        let (Some(tile), Some(grid)) = (image.tiles.first(), image.axes) else {
            bail!("the image has no grid");
        };
        let (merge, patch) = (self.spec.merge_size, self.spec.patch_size);
        let (tokens, counts) = windows(grid, self.spec.window);
        let places = tokens.iter().flat_map(|[row, column]| {
            let within = (0..merge * merge).map(|at| [at / merge, at % merge]);
            within.map(move |[below, right]| [row * merge + below, column * merge + right])
        });
        let places: Vec<[usize; 2]> = places.collect();
        let levels = image.levels.of_patches(tile, patch, places.iter().copied());
        let width = CHANNELS * patch * patch;
        let rows = Tensor::from_vec(levels, (1, places.len(), width), &self.device)?;
        let head = self.spec.block.hidden / self.spec.block.heads;
        let rope = axial_rope(&places, head, self.spec.rope_theta, &self.device)?;
        let at = Tensor::arange(0, places.len() as u32, &self.device)?;
        // Maps the tokens from row order to window order.
        let mut order = vec![0_u32; tokens.len()];
        for (at, [row, column]) in tokens.iter().enumerate() {
            order[row * grid.columns + column] = at as u32;
        }
        Ok(TowerPass {
            turned: Some((rope, at)),
            groups: counts.iter().map(|count| count * merge * merge).collect(),
            order: Some(Tensor::new(order, &self.device)?),
            ..TowerPass::new(self.patches.apply(&rows)?.squeeze(0)?)
        })
    }

    fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        if let Some(block) = self.blocks.get(pass.blocks) {
            let sees_all = self.spec.whole_layers.contains(&pass.blocks);
            let groups = if sees_all { &[][..] } else { &pass.groups };
            pass.state = block.forward(&pass.state, pass.turned.as_ref(), groups)?;
            pass.blocks += 1;
        }
        if pass.blocks < self.blocks.len() {
            return Ok(None);
        }
        let merged = self.spec.block.hidden * self.spec.merge_size * self.spec.merge_size;
        let blocks = self.norm.forward(&pass.state)?.reshape(((), merged))?;
        let rows = self.down.apply(&gelu_erf(&self.up.apply(&blocks)?)?)?;
        let embeddings = match &pass.order {
            Some(order) => rows.index_select(order, 0)?,
            None => rows,
        };
        Ok(Some(ImageFeatures {
            embeddings,
            added: Vec::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_at_the_edges_are_smaller() {
        let grid = ImageGrid {
            rows: 3,
            columns: 5,
        };
        let (tokens, counts) = windows(grid, 2);
        assert_eq!(counts, [4, 4, 2, 2, 2, 1]);
        assert_eq!(tokens[..5], [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]);
        assert_eq!(tokens.last(), Some(&[2, 4]));
    }
}
