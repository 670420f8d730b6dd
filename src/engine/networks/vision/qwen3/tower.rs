//! The vision tower: patches through blocks of attention, merged into one row for each token of the image.

use candle_core::{D, DType, Device, Result, Tensor};

use super::processor::{ImageGrid, ImageProcessor, ProcessedImage};
use super::spec::{CHANNELS, VisionSpec};
use crate::networks::blocks::{AffineNorm, ComponentReader, ComponentSource, Projection};
use crate::networks::weights::Flaw;
use muster_kernels::{
    Convolution, Mask, RopeStyle, RopeTable, dense_attention, gelu, gelu_erf, rotate,
};

/// Before the names of the tower's tensors.
const PREFIX: &str = "model.visual.";
const EPSILON: f64 = 1e-6;

/// A tower on a device.
pub struct VisionTower {
    spec: VisionSpec,
    processor: ImageProcessor,
    device: Device,
    weight_bytes: u64,
    patches: Convolution,
    positions: Tensor,
    blocks: Vec<Block>,
    merger: Merger,
    /// For each layer of the spec's `deepstack`.
    deepstack: Vec<Merger>,
}

struct Block {
    attention_norm: AffineNorm,
    query_key_value: Projection,
    output: Projection,
    feed_norm: AffineNorm,
    up: Projection,
    down: Projection,
}

/// From the patches of a block to one row of the decoder's size.
struct Merger {
    norm: AffineNorm,
    /// The norm goes over the patches of a block together.
    norms_block: bool,
    up: Projection,
    down: Projection,
}

/// What a decoder reads in place of the embeddings of an image's tokens, `[tokens, hidden]`.
#[derive(Debug, Clone)]
pub struct ImageFeatures {
    pub embeddings: Tensor,
    /// Added to the outputs of the decoder's first layers, in their order.
    pub added: Vec<Tensor>,
}

/// An image on its way through the blocks.
pub struct TowerPass {
    state: Tensor,
    rope: RopeTable,
    /// Rows of `rope`: one for each patch.
    at: Tensor,
    added: Vec<Tensor>,
    blocks: usize,
}

impl VisionTower {
    pub fn load(
        spec: VisionSpec,
        processor: ImageProcessor,
        source: ComponentSource<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let device = source.device.clone();
        let headers = source.tensors.headers().iter();
        let own = headers.filter(|header| is_of_tower(&header.name));
        let weight_bytes = own.map(|header| header.bytes).sum();
        let mut reader = ComponentReader::new(source, |name| format!("{PREFIX}{name}"));
        let tower = Self::read(spec, processor, device, &mut reader)?;
        reader.check_nothing_was_ignored(is_of_tower)?;
        Ok(Self {
            weight_bytes,
            ..tower
        })
    }

    fn read(
        spec: VisionSpec,
        processor: ImageProcessor,
        device: Device,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let hidden = spec.hidden_size;
        let blocks = (0..spec.layers).map(|index| Block::read(&spec, index, reader));
        let blocks = blocks.collect::<std::result::Result<_, _>>()?;
        let deepstack = (0..spec.deepstack.len())
            .map(|at| Merger::read(&spec, &format!("deepstack_merger_list.{at}"), true, reader));
        let deepstack = deepstack.collect::<std::result::Result<_, _>>()?;
        Ok(Self {
            patches: patch_product(&spec, reader)?,
            positions: reader.table(
                "pos_embed.weight",
                (spec.positions * spec.positions, hidden),
            )?,
            blocks,
            merger: Merger::read(&spec, "merger", false, reader)?,
            deepstack,
            spec,
            processor,
            device,
            weight_bytes: 0,
        })
    }

    pub fn processor(&self) -> &ImageProcessor {
        &self.processor
    }

    /// As they are stored.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// The whole way of an image.
    pub fn forward(&self, image: &ProcessedImage) -> Result<ImageFeatures> {
        let mut pass = self.begin(image)?;
        loop {
            if let Some(features) = self.advance(&mut pass)? {
                return Ok(features);
            }
        }
    }

    /// The same one block at a time: before the first.
    pub fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        let places: Vec<[usize; 2]> = self.processor.places(image.grid).collect();
        let levels = self.processor.patches(image);
        let width = CHANNELS * self.spec.patch_size * self.spec.patch_size;
        let rows = Tensor::from_vec(levels, (1, places.len(), width), &self.device)?;
        let embedded = self.patches.apply(&rows)?.squeeze(0)?;
        let state = (embedded + self.interpolated(&places, image.grid)?)?;
        let count = places.len() as u32;
        Ok(TowerPass {
            state,
            rope: self.rope(&places)?,
            at: Tensor::arange(0, count, &self.device)?,
            added: Vec::new(),
            blocks: 0,
        })
    }

    /// One block further. What the decoder reads, after the last one.
    pub fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        if let Some(block) = self.blocks.get(pass.blocks) {
            pass.state = block.forward(&pass.state, pass, &self.spec)?;
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
            None => candle_core::bail!("an image has no patches"),
        }
    }

    /// Half of a head's frequencies turn by rows, half by columns.
    fn rope(&self, places: &[[usize; 2]]) -> Result<RopeTable> {
        let half = self.spec.head_dim() / 2;
        let each = half / 2;
        let frequencies: Vec<f64> = (0..each)
            .map(|at| self.spec.rope_theta.powf(-(at as f64) / each as f64) as f32)
            .map(f64::from)
            .collect();
        let angles = places.iter().flat_map(|place| {
            let axes = place.map(|at| at as f64);
            axes.into_iter()
                .flat_map(|at| frequencies.iter().map(move |frequency| at * frequency))
        });
        let angles: Vec<f64> = angles.collect();
        RopeTable::of_angles(&angles, half, RopeStyle::Halves, &self.device)
    }
}

/// Whether a tensor is of the tower, and none of the decoder's.
pub fn is_of_tower(name: &str) -> bool {
    name.starts_with(PREFIX)
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

/// Where a patch stands among the learned positions when the outermost ones coincide.
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
    spec: &VisionSpec,
    reader: &mut ComponentReader<'_>,
) -> std::result::Result<Convolution, Flaw> {
    let (hidden, patch, frames) = (spec.hidden_size, spec.patch_size, spec.temporal_patch_size);
    let shape = [hidden, CHANNELS, frames, patch, patch];
    let weight = reader.tensor("patch_embed.proj.weight", &shape)?;
    let weight = weight.to_dtype(DType::F32)?.sum(2)?;
    let weight = weight.reshape((hidden, CHANNELS * patch * patch))?;
    let bias = reader.vector("patch_embed.proj.bias", hidden)?;
    Ok(Convolution::product(&weight, Some(&bias))?)
}

impl Block {
    fn read(
        spec: &VisionSpec,
        index: usize,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, feed) = (spec.hidden_size, spec.intermediate_size);
        let name = |part: &str| format!("blocks.{index}.{part}");
        Ok(Self {
            attention_norm: reader.norm(&name("norm1"), hidden, EPSILON)?,
            query_key_value: reader.projection(&name("attn.qkv"), (3 * hidden, hidden), true)?,
            output: reader.projection(&name("attn.proj"), (hidden, hidden), true)?,
            feed_norm: reader.norm(&name("norm2"), hidden, EPSILON)?,
            up: reader.projection(&name("mlp.linear_fc1"), (feed, hidden), true)?,
            down: reader.projection(&name("mlp.linear_fc2"), (hidden, feed), true)?,
        })
    }

    fn forward(&self, x: &Tensor, pass: &TowerPass, spec: &VisionSpec) -> Result<Tensor> {
        let (patches, hidden) = x.dims2()?;
        let (heads, head) = (spec.heads, spec.head_dim());
        let all = self
            .query_key_value
            .apply(&self.attention_norm.of_rows(x)?)?;
        let part = |at: usize| {
            let part = all.narrow(D::Minus1, at * hidden, hidden)?;
            part.contiguous()?.reshape((patches, heads, head))
        };
        let turned = |x: Tensor| rotate(&x, &pass.rope, &pass.at)?.unsqueeze(0);
        let (q, k) = (turned(part(0)?)?, turned(part(1)?)?);
        let v = part(2)?.unsqueeze(0)?;
        let scale = (head as f32).powf(-0.5);
        let attended = dense_attention(&q, &k, &v, scale, Mask::None)?;
        let attended = attended.reshape((patches, hidden))?;
        let x = (x + self.output.apply(&attended)?)?;
        let up = gelu(&self.up.apply(&self.feed_norm.of_rows(&x)?)?)?;
        x + self.down.apply(&up)?
    }
}

impl Merger {
    fn read(
        spec: &VisionSpec,
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

    fn forward(&self, x: &Tensor, spec: &VisionSpec) -> Result<Tensor> {
        let blocks = |x: &Tensor| x.reshape(((), spec.hidden_size * spec.merged()));
        let normed = match self.norms_block {
            true => self.norm.of_rows(&blocks(x)?)?,
            false => blocks(&self.norm.of_rows(x)?)?,
        };
        self.down.apply(&gelu_erf(&self.up.apply(&normed)?)?)
    }
}
