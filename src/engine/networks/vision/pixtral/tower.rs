//! The vision tower: patches with rope by rows and columns, merged into one row per token.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::spec::PixtralSpec;
use crate::networks::blocks::{ComponentReader, Projection};
use crate::networks::layers::RmsNorm;
use crate::networks::vision::block::{AttentionNames, Block, BlockNames, FeedNames, Norm};
use crate::networks::vision::image::{CHANNELS, ImageGrid, ProcessedImage};
use crate::networks::vision::tower::{ImageFeatures, Tower, TowerPass};
use crate::networks::weights::Flaw;
use muster_kernels::{Convolution, RopeStyle, RopeTable, gelu_erf};

const NAMES: BlockNames = BlockNames {
    attention_norm: "attention_norm",
    attention: AttentionNames::Apart(["attention.q_proj", "attention.k_proj", "attention.v_proj"]),
    output: "attention.o_proj",
    feed_norm: "ffn_norm",
    feed: FeedNames::Gated([
        "feed_forward.gate_proj",
        "feed_forward.up_proj",
        "feed_forward.down_proj",
    ]),
};

pub struct PixtralTower {
    spec: PixtralSpec,
    device: Device,
    patches: Convolution,
    norm: Norm,
    blocks: Vec<Block>,
    projector: Projector,
}

struct Projector {
    norm: RmsNorm,
    merge: Projection,
    up: Projection,
    down: Projection,
}

impl PixtralTower {
    pub fn read(
        spec: &PixtralSpec,
        device: &Device,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, patch, out) = (spec.block.hidden, spec.patch_size, spec.out_size);
        let shape = [hidden, CHANNELS, patch, patch];
        let weight = reader.tensor("tower.patch_conv.weight", &shape)?;
        let weight = weight.to_dtype(DType::F32)?;
        let weight = weight.reshape((hidden, CHANNELS * patch * patch))?;
        let blocks = (0..spec.layers).map(|at| {
            let stem = format!("tower.transformer.layers.{at}");
            Block::read(&stem, &NAMES, &spec.block, reader)
        });
        let blocks = blocks.collect::<std::result::Result<_, _>>()?;
        let merged = hidden * spec.merge_size * spec.merge_size;
        let merge = "projector.patch_merger.merging_layer";
        let has_bias = spec.projector_has_bias;
        Ok(Self {
            patches: Convolution::product(&weight, None)?,
            norm: Norm::read("tower.ln_pre", hidden, &spec.block, reader)?,
            blocks,
            projector: Projector {
                norm: RmsNorm {
                    weight: reader.vector("projector.norm.weight", hidden)?,
                    eps: spec.projector_epsilon,
                },
                merge: reader.projection(merge, (hidden, merged), false)?,
                up: reader.projection("projector.linear_1", (out, hidden), has_bias)?,
                down: reader.projection("projector.linear_2", (out, out), has_bias)?,
            },
            spec: spec.clone(),
            device: device.clone(),
        })
    }

    /// The frequencies of a head alternate between rows and columns.
    fn rope(&self, places: &[[usize; 2]]) -> Result<RopeTable> {
        let head = self.spec.block.hidden / self.spec.block.heads;
        let of_axis = |axis: usize| {
            let frequencies = (axis..head / 2).step_by(2).map(|at| {
                let frequency = self.spec.rope_theta.powf(-((2 * at) as f64) / head as f64);
                f64::from(frequency as f32)
            });
            frequencies.collect::<Vec<f64>>()
        };
        let axes = [of_axis(0), of_axis(1)];
        let angles = places.iter().flat_map(|place| {
            let of_axis = |axis: usize| {
                let at = place[axis] as f64;
                axes[axis].iter().map(move |frequency| at * frequency)
            };
            of_axis(0).chain(of_axis(1))
        });
        let angles: Vec<f64> = angles.collect();
        RopeTable::of_angles(&angles, head / 2, RopeStyle::Halves, &self.device)
    }
}

impl Tower for PixtralTower {
    fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        let Some(tile) = image.tiles.first() else {
            bail!("an image has no tiles");
        };
        let (patch, merge) = (self.spec.patch_size, self.spec.merge_size);
        let grid = ImageGrid {
            rows: tile.height / (patch * merge),
            columns: tile.width / (patch * merge),
        };
        let places: Vec<[usize; 2]> = grid.places(merge).collect();
        let levels = image.levels.of_patches(tile, patch, places.iter().copied());
        let width = CHANNELS * patch * patch;
        let rows = Tensor::from_vec(levels, (1, places.len(), width), &self.device)?;
        let embedded = self.patches.apply(&rows)?.squeeze(0)?;
        let at = Tensor::arange(0, places.len() as u32, &self.device)?;
        Ok(TowerPass {
            turned: Some((self.rope(&places)?, at)),
            ..TowerPass::new(self.norm.forward(&embedded)?)
        })
    }

    fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        if let Some(block) = self.blocks.get(pass.blocks) {
            pass.state = block.forward(&pass.state, pass.turned.as_ref(), &[])?;
            pass.blocks += 1;
        }
        if pass.blocks < self.blocks.len() {
            return Ok(None);
        }
        Ok(Some(ImageFeatures {
            embeddings: self.projector.forward(&pass.state, &self.spec)?,
            added: Vec::new(),
        }))
    }
}

impl Projector {
    fn forward(&self, patches: &Tensor, spec: &PixtralSpec) -> Result<Tensor> {
        let (hidden, merged) = (spec.block.hidden, spec.merge_size * spec.merge_size);
        let normed = self.norm.forward(patches)?;
        // The merger's weights have the patches of a token consecutively per channel.
        let blocks = normed.reshape(((), merged, hidden))?.transpose(1, 2)?;
        let merged = self.merge.apply(&blocks.contiguous()?.flatten_from(1)?)?;
        self.down.apply(&gelu_erf(&self.up.apply(&merged)?)?)
    }
}
