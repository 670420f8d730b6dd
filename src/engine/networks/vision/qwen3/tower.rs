//! The vision tower: patches through blocks of attention, merged into one row for each token of the image.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::spec::{EPSILON, QwenSpec};
use crate::networks::blocks::{AffineNorm, ComponentReader, Projection};
use crate::networks::vision::block::{AttentionNames, Block, BlockNames, FeedNames};
use crate::networks::vision::image::{CHANNELS, ImageGrid, ProcessedImage};
use crate::networks::vision::tower::{ImageFeatures, Tower, TowerPass};
use crate::networks::weights::Flaw;
use muster_kernels::{Convolution, RopeStyle, RopeTable, gelu_erf};

const NAMES: BlockNames = BlockNames {
    attention_norm: "norm1",
    attention: AttentionNames::Joined("attn.qkv"),
    output: "attn.proj",
    feed_norm: "norm2",
    feed: FeedNames::Plain(["mlp.linear_fc1", "mlp.linear_fc2"]),
};

pub struct QwenTower {
    spec: QwenSpec,
    device: Device,
    patches: Convolution,
    positions: Tensor,
    blocks: Vec<Block>,
    merger: Merger,
    /// A merger for each layer of the spec's `deepstack`.
    deepstack: Vec<Merger>,
}

/// Merges the patches of a block into a row of the decoder's width.
struct Merger {
    norm: AffineNorm,
    /// The norm goes over the patches of a block together.
    norms_block: bool,
    up: Projection,
    down: Projection,
}

impl QwenTower {
    pub fn read(
        spec: &QwenSpec,
        device: &Device,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, shape) = (spec.hidden_size, spec.block());
        let blocks = (0..spec.layers)
            .map(|index| Block::read(&format!("tower.blocks.{index}"), &NAMES, &shape, reader));
        let blocks = blocks.collect::<std::result::Result<_, _>>()?;
        let deepstack = (0..spec.deepstack.len()).map(|at| {
            Merger::read(
                spec,
                &format!("tower.deepstack_merger_list.{at}"),
                true,
                reader,
            )
        });
        let deepstack = deepstack.collect::<std::result::Result<_, _>>()?;
        Ok(Self {
            patches: patch_product(spec, reader)?,
            positions: reader.table(
                "tower.pos_embed.weight",
                (spec.positions * spec.positions, hidden),
            )?,
            blocks,
            merger: Merger::read(spec, "tower.merger", false, reader)?,
            deepstack,
            spec: spec.clone(),
            device: device.clone(),
        })
    }

    /// The learned positions, spread over the image: between four of them each patch has its share of each.
    fn interpolated(&self, places: &[[usize; 2]], grid: ImageGrid) -> Result<Tensor> {
        let side = self.spec.positions;
        let axes = [grid.rows, grid.columns].map(|blocks| {
            let patches = blocks * self.spec.merge_size;
            (0..patches)
                .map(|at| spread(at, patches, side))
                .collect::<Vec<_>>()
        });
        let mut sum: Option<Tensor> = None;
        for [below, right] in [[false, false], [false, true], [true, false], [true, true]] {
            let taps = places.iter().map(|[row, column]| {
                let (first, share) = axes[0][*row].tap(below, side);
                let (second, other) = axes[1][*column].tap(right, side);
                ((first * side + second) as u32, share * other)
            });
            let (indices, shares): (Vec<u32>, Vec<f32>) = taps.unzip();
            let rows = self
                .positions
                .index_select(&Tensor::new(indices, &self.device)?, 0)?;
            let shares = Tensor::from_vec(shares, (places.len(), 1), &self.device)?;
            let part = rows.broadcast_mul(&shares)?;
            sum = Some(match sum {
                Some(sum) => (sum + part)?,
                None => part,
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => bail!("an image has no patches"),
        }
    }
}

/// Half of a head's frequencies are for rows, half for columns.
pub fn axial_rope(
    places: &[[usize; 2]],
    head: usize,
    theta: f64,
    device: &Device,
) -> Result<RopeTable> {
    let half = head / 2;
    let each = half / 2;
    let frequencies: Vec<f64> = (0..each)
        .map(|at| theta.powf(-(at as f64) / each as f64) as f32)
        .map(f64::from)
        .collect();
    let angles = places.iter().flat_map(|place| {
        let axes = place.map(|at| at as f64);
        axes.into_iter()
            .flat_map(|at| frequencies.iter().map(move |frequency| at * frequency))
    });
    let angles: Vec<f64> = angles.collect();
    RopeTable::of_angles(&angles, half, RopeStyle::Halves, device)
}

impl Tower for QwenTower {
    fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        let (Some(tile), Some(grid)) = (image.tiles.first(), image.axes) else {
            bail!("the image has no grid");
        };
        let (merge, patch) = (self.spec.merge_size, self.spec.patch_size);
        let places: Vec<[usize; 2]> = grid.places(merge).collect();
        let levels = image.levels.of_patches(tile, patch, places.iter().copied());
        let width = CHANNELS * patch * patch;
        let rows = Tensor::from_vec(levels, (1, places.len(), width), &self.device)?;
        let embedded = self.patches.apply(&rows)?.squeeze(0)?;
        let state = (embedded + self.interpolated(&places, grid)?)?;
        let (head, theta) = (self.spec.head_dim(), self.spec.rope_theta);
        let rope = axial_rope(&places, head, theta, &self.device)?;
        let at = Tensor::arange(0, places.len() as u32, &self.device)?;
        Ok(TowerPass {
            turned: Some((rope, at)),
            ..TowerPass::new(state)
        })
    }

    fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        if let Some(block) = self.blocks.get(pass.blocks) {
            pass.state = block.forward(&pass.state, pass.turned.as_ref(), &[])?;
            let at = self.spec.deepstack.iter().position(|&at| at == pass.blocks);
            if let Some(merger) = at.and_then(|at| self.deepstack.get(at)) {
                pass.added.push(merger.forward(&pass.state, &self.spec)?);
            }
            pass.blocks += 1;
        }
        if pass.blocks < self.blocks.len() {
            return Ok(None);
        }
        Ok(Some(ImageFeatures {
            embeddings: self.merger.forward(&pass.state, &self.spec)?,
            added: std::mem::take(&mut pass.added),
        }))
    }
}

/// The first of two learned positions, and the share of the second.
#[derive(Clone, Copy)]
struct Spread {
    first: usize,
    share: f32,
}

impl Spread {
    fn tap(self, second: bool, side: usize) -> (usize, f32) {
        match second {
            true => ((self.first + 1).min(side - 1), self.share),
            false => (self.first, 1.0 - self.share),
        }
    }
}

/// The position of a patch among the learned positions, with aligned corners.
fn spread(at: usize, patches: usize, side: usize) -> Spread {
    let place = match patches {
        1 => 0.0,
        _ => at as f32 * ((side - 1) as f32 / (patches - 1) as f32),
    };
    let place = place.min((side - 1) as f32);
    let first = place as usize;
    Spread {
        first,
        share: place - first as f32,
    }
}

/// The product with a patch. An image is the same in all frames of a patch, so their weights are added up.
fn patch_product(
    spec: &QwenSpec,
    reader: &mut ComponentReader<'_>,
) -> std::result::Result<Convolution, Flaw> {
    let (hidden, patch, frames) = (spec.hidden_size, spec.patch_size, spec.temporal_patch_size);
    let shape = [hidden, CHANNELS, frames, patch, patch];
    let weight = reader.tensor("tower.patch_embed.proj.weight", &shape)?;
    let weight = weight.to_dtype(DType::F32)?.sum(2)?;
    let weight = weight.reshape((hidden, CHANNELS * patch * patch))?;
    let bias = reader.vector("tower.patch_embed.proj.bias", hidden)?;
    Ok(Convolution::product(&weight, Some(&bias))?)
}

impl Merger {
    fn read(
        spec: &QwenSpec,
        stem: &str,
        norms_block: bool,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let block = spec.hidden_size * spec.merged();
        let normed = match norms_block {
            true => block,
            false => spec.hidden_size,
        };
        let (up, down) = (format!("{stem}.linear_fc1"), format!("{stem}.linear_fc2"));
        Ok(Self {
            norm: reader.norm(&format!("{stem}.norm"), normed, EPSILON)?,
            norms_block,
            up: reader.projection(&up, (block, block), true)?,
            down: reader.projection(&down, (spec.out_size, block), true)?,
        })
    }

    fn forward(&self, x: &Tensor, spec: &QwenSpec) -> Result<Tensor> {
        let blocks = |x: &Tensor| x.reshape(((), spec.hidden_size * spec.merged()));
        let normed = match self.norms_block {
            true => self.norm.of_rows(&blocks(x)?)?,
            false => blocks(&self.norm.of_rows(x)?)?,
        };
        self.down.apply(&gelu_erf(&self.up.apply(&normed)?)?)
    }
}
