//! The transformer of Wan: all places of all frames see each other, and the text.

mod block;
mod spec;

pub use self::spec::WanSpec;

use candle_core::{Device, Result, Tensor, bail};

use self::block::{WanBlock, WanModulation, modulated};
use super::original::TransformerNames;
use crate::networks::blocks::{ComponentReader, ComponentSource, Projection, block_end, sinusoid};
use crate::networks::weights::Flaw;
use muster_kernels::{RopeStyle, RopeTable, gelu};

/// The network on a device.
pub struct WanTransformer {
    spec: WanSpec,
    patches: Projection,
    time: [Projection; 3],
    text: [Projection; 2],
    blocks: Vec<WanBlock>,
    /// Shift and scale of the last norm, `[2, width]`.
    last: Tensor,
    outward: Projection,
}

/// Patches of a video: frames, rows, columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WanGrid(pub [usize; 3]);

/// The angles of all places of a grid.
pub struct WanRope {
    grid: WanGrid,
    table: RopeTable,
}

/// How much noise a video has, in training steps: all of it, or all but a clean first frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameTimes {
    pub all: f32,
    /// The first frame is without noise.
    pub is_first_clean: bool,
}

impl WanTransformer {
    pub fn load(spec: WanSpec, source: ComponentSource) -> std::result::Result<Self, Flaw> {
        let names = TransformerNames::of(source.tensors);
        let mut reader = ComponentReader::new(source, move |name| names.name(name));
        let reader = &mut reader;
        let (width, [frames, rows, columns]) = (spec.width(), spec.patch);
        let layer = |reader: &mut ComponentReader, name: &str, shape| {
            reader.projection(&format!("condition_embedder.{name}"), shape, true)
        };
        let time = [
            layer(reader, "time_embedder.linear_1", (width, spec.time_width))?,
            layer(reader, "time_embedder.linear_2", (width, width))?,
            layer(reader, "time_proj", (6 * width, width))?,
        ];
        let text = [
            layer(reader, "text_embedder.linear_1", (width, spec.text_width))?,
            layer(reader, "text_embedder.linear_2", (width, width))?,
        ];
        let volume = frames * rows * columns;
        let patches = reader.projection_stored(
            "patch_embedding",
            (width, spec.inputs * volume),
            true,
            &[&[width, spec.inputs, frames, rows, columns]],
        )?;
        let mut blocks = Vec::new();
        for index in 0..spec.layers {
            blocks.push(WanBlock::load(reader, index, &spec)?);
        }
        let last = reader.numbers("scale_shift_table", &[&[1, 2, width]])?;
        let network = Self {
            patches,
            time,
            text,
            blocks,
            last: last.squeeze(0)?,
            outward: reader.projection("proj_out", (spec.outputs * volume, width), true)?,
            spec,
        };
        reader.check_nothing_was_ignored(|_| true)?;
        Ok(network)
    }

    pub fn spec(&self) -> &WanSpec {
        &self.spec
    }

    /// The angles for videos of these latent sizes: frames, height, width.
    pub fn rope(&self, sizes: [usize; 3], device: &Device) -> Result<WanRope> {
        let patch = self.spec.patch;
        if sizes
            .iter()
            .zip(patch)
            .any(|(size, patch)| *size == 0 || size % patch != 0)
        {
            bail!("latents of {sizes:?} are not made of patches of {patch:?}");
        }
        let grid = [0, 1, 2].map(|axis| sizes[axis] / patch[axis]);
        if let Some(long) = grid.iter().find(|&&size| size > self.spec.positions) {
            let most = self.spec.positions;
            bail!("an axis has {long} patches, but the network takes at most {most}");
        }
        let angles = self.spec.angles(grid);
        let half = self.spec.head_size / 2;
        Ok(WanRope {
            grid: WanGrid(grid),
            table: RopeTable::of_angles(&angles, half, RopeStyle::Pairs, device)?,
        })
    }

    /// The network's output for videos `[batch, frames, height, width, channels]`, each with its own time and text
    /// (`[batch, tokens, width]`).
    pub async fn forward(
        &self,
        x: &Tensor,
        times: &[FrameTimes],
        context: &Tensor,
        rope: &WanRope,
    ) -> Result<Tensor> {
        let batch = x.dim(0)?;
        if times.len() != batch || context.dim(0)? != batch {
            bail!(
                "{batch} videos, {} times and {} texts",
                times.len(),
                context.dim(0)?
            );
        }
        let tokens = self.to_patches(x, rope.grid)?;
        let mut state = self.patches.apply(&tokens)?;
        let texts = gelu(&self.text[0].apply(context)?)?;
        let texts = self.text[1].apply(&texts)?;
        let (modulations, last) = self.modulations(times, rope.grid, x)?;
        block_end().await;
        for block in &self.blocks {
            state = block
                .forward(&state, &texts, &modulations, rope, &self.spec)
                .await?;
            block_end().await;
        }
        let normed = modulated(&state, &last, [0, 1], self.spec.eps)?;
        self.to_video(&self.outward.apply(&normed)?, rope.grid)
    }

    /// Shift, scale and gate of each run of tokens: for blocks, and for the last layer.
    fn modulations(
        &self,
        times: &[FrameTimes],
        grid: WanGrid,
        like: &Tensor,
    ) -> Result<(Vec<WanModulation>, Vec<WanModulation>)> {
        let [frames, rows, columns] = grid.0;
        let (first, all) = (rows * columns, frames * rows * columns);
        let mut runs = Vec::new();
        for time in times {
            match time.is_first_clean {
                true if frames > 1 => runs.extend([(0.0, first), (time.all, all - first)]),
                true => runs.push((0.0, all)),
                false => runs.push((time.all, all)),
            }
        }
        let steps: Vec<f32> = runs.iter().map(|run| run.0).collect();
        let waves = sinusoid(&steps, self.spec.time_width, like)?;
        let embedded = self.time[1].apply(&self.time[0].apply(&waves)?.silu()?)?;
        let width = self.spec.width();
        let projected = self.time[2].apply(&embedded.silu()?)?;
        let projected = projected.reshape((runs.len(), 6, width))?;
        let (mut inner, mut last) = (Vec::new(), Vec::new());
        for (index, (_, tokens)) in runs.into_iter().enumerate() {
            let rows = projected.get(index)?;
            inner.push(WanModulation { tokens, rows });
            let rows = self.last.broadcast_add(&embedded.narrow(0, index, 1)?)?;
            last.push(WanModulation { tokens, rows });
        }
        Ok((inner, last))
    }

    /// `[batch, tokens, channels * patch]`, channels first like the weights.
    fn to_patches(&self, x: &Tensor, grid: WanGrid) -> Result<Tensor> {
        let ([frames, rows, columns], patch) = (grid.0, self.spec.patch);
        let (batch, channels) = (x.dim(0)?, self.spec.inputs);
        let wanted = [
            batch,
            frames * patch[0],
            rows * patch[1],
            columns * patch[2],
            channels,
        ];
        if x.dims() != wanted {
            bail!("videos of {:?}, but the network takes {wanted:?}", x.dims());
        }
        let shape = vec![
            batch * frames,
            patch[0],
            rows,
            patch[1],
            columns,
            patch[2],
            channels,
        ];
        let parts = x.reshape(shape)?.permute(vec![0, 2, 4, 6, 1, 3, 5])?;
        parts
            .contiguous()?
            .reshape((batch, frames * rows * columns, ()))
    }

    fn to_video(&self, tokens: &Tensor, grid: WanGrid) -> Result<Tensor> {
        let ([frames, rows, columns], patch) = (grid.0, self.spec.patch);
        let (batch, outputs) = (tokens.dim(0)?, self.spec.outputs);
        let shape = vec![
            batch * frames,
            rows,
            columns,
            patch[0],
            patch[1],
            patch[2],
            outputs,
        ];
        let parts = tokens.reshape(shape)?.permute(vec![0, 3, 1, 4, 2, 5, 6])?;
        parts.contiguous()?.reshape((
            batch,
            frames * patch[0],
            rows * patch[1],
            columns * patch[2],
            outputs,
        ))
    }
}
