//! The encoder: runs every tile through all blocks, then the family's projector.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::spec::SiglipSpec;
use crate::networks::blocks::ComponentReader;
use crate::networks::vision::block::{AttentionNames, Block, BlockNames, FeedNames, Norm};
use crate::networks::vision::image::{CHANNELS, ImageGrid, ProcessedImage};
use crate::networks::vision::tower::{ImageFeatures, TowerPass};
use crate::networks::weights::Flaw;
use muster_kernels::Convolution;

const NAMES: BlockNames = BlockNames {
    attention_norm: "layer_norm1",
    attention: AttentionNames::Apart(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    output: "self_attn.out_proj",
    feed_norm: "layer_norm2",
    feed: FeedNames::Plain(["mlp.fc1", "mlp.fc2"]),
};

pub struct SiglipEncoder {
    spec: SiglipSpec,
    device: Device,
    patches: Convolution,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: Norm,
}

impl SiglipEncoder {
    pub fn read(
        spec: &SiglipSpec,
        device: &Device,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, patch, shape) = (spec.block.hidden, spec.patch_size, &spec.block);
        let stem = "tower.embeddings.patch_embedding";
        let weight = reader.tensor(&format!("{stem}.weight"), &[hidden, CHANNELS, patch, patch])?;
        let weight = weight.to_dtype(DType::F32)?;
        let weight = weight.reshape((hidden, CHANNELS * patch * patch))?;
        let bias = reader.vector(&format!("{stem}.bias"), hidden)?;
        let positions = "tower.embeddings.position_embedding.weight";
        let blocks = (0..spec.layers)
            .map(|at| Block::read(&format!("tower.encoder.layers.{at}"), &NAMES, shape, reader));
        Ok(Self {
            blocks: blocks.collect::<std::result::Result<_, _>>()?,
            patches: Convolution::product(&weight, Some(&bias))?,
            positions: reader.table(positions, (spec.side() * spec.side(), hidden))?,
            norm: Norm::read("tower.post_layernorm", hidden, shape, reader)?,
            spec: spec.clone(),
            device: device.clone(),
        })
    }

    pub fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        let (side, patch) = (self.spec.side(), self.spec.patch_size);
        let grid = ImageGrid {
            rows: side,
            columns: side,
        };
        let size = self.spec.image_size;
        let embedded = image.tiles.iter().map(|tile| {
            if [tile.width, tile.height] != [size; 2] {
                bail!("a tile is no square of {size} pixels");
            }
            let levels = image.levels.of_patches(tile, patch, grid.places(1));
            let width = CHANNELS * patch * patch;
            let rows = Tensor::from_vec(levels, (1, side * side, width), &self.device)?;
            self.patches.apply(&rows)?.squeeze(0)? + &self.positions
        });
        let mut embedded = embedded.collect::<Result<std::collections::VecDeque<_>>>()?;
        let Some(first) = embedded.pop_front() else {
            bail!("an image has no tiles");
        };
        Ok(TowerPass {
            waiting: embedded,
            ..TowerPass::new(first)
        })
    }

    /// Runs one more block; `made` is the family's projector for the normalized patches of a tile.
    pub fn advance(
        &self,
        pass: &mut TowerPass,
        made: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Option<ImageFeatures>> {
        if let Some(block) = self.blocks.get(pass.blocks) {
            pass.state = block.forward(&pass.state, None, &[])?;
            pass.blocks += 1;
        }
        if pass.blocks < self.blocks.len() {
            return Ok(None);
        }
        pass.made.push(made(&self.norm.forward(&pass.state)?)?);
        if let Some(next) = pass.waiting.pop_front() {
            pass.state = next;
            pass.blocks = 0;
            return Ok(None);
        }
        Ok(Some(ImageFeatures {
            embeddings: Tensor::cat(&std::mem::take(&mut pass.made), 0)?,
            added: Vec::new(),
        }))
    }
}
