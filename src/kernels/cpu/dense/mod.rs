//! Convolutions and dense products of floats.
//!
//! A convolution is a product whose rows are gathered block by block: nothing larger than a block of rows is ever
//! copied. Activations are channels-last, so that a tap reads one contiguous run per position. Weights are packed once
//! in panels of thirty-two outputs. Sums run over the same blocks of depth whatever the number of rows, so a row's
//! result does not depend on its neighbours.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use std::ops::Range;

use candle_core::{DType, Result, Tensor, bail};
use half::{bf16, f16};

mod axis;
mod tile;

use self::axis::NOTHING;
pub use self::axis::{Axis, Edges, Walk};
use self::tile::{Number, Rows, TILE, TILE_COLS, TILE_ROWS, add_products, put_run};
use super::level::Level;
use super::memory::Aligned;
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// Tiles of rows that are multiplied with a panel while it is near.
const BLOCK_TILES: usize = 16;
/// Panels of an item of work: its sums stay in the second cache.
const ITEM_PANELS: usize = 20;
/// Fewer items than these are cut smaller, so that all threads have some.
const LEAST_ITEMS: usize = 12;

/// Weights of a convolution `[outputs, inputs / groups, height, width]`, packed.
#[derive(Debug)]
pub struct PackedConvolution {
    /// Per group and panel `[taps][inputs][32]`; bf16 has `[taps][inputs / 2][32][2]`, padded with a zero after an odd
    /// number of inputs.
    packed: Aligned,
    dtype: DType,
    bias: Option<Vec<f32>>,
    taps: [usize; 2],
    groups: usize,
    /// Inputs of one group.
    inputs: usize,
    outputs: usize,
}

impl PackedConvolution {
    /// Packs weights, which are stored as `dtype`: f32, f16 or bf16. `get` is the weight of an output of the whole
    /// layer, an input of its group, and a tap of each axis.
    pub fn pack(
        dtype: DType,
        [outputs, inputs, height, width]: [usize; 4],
        groups: usize,
        bias: Option<Vec<f32>>,
        get: impl Fn([usize; 4]) -> f32,
    ) -> Result<Self> {
        if groups == 0 || outputs == 0 || inputs == 0 || !outputs.is_multiple_of(groups) {
            bail!("{outputs} outputs of {inputs} inputs each do not make {groups} groups");
        }
        if let Some(bias) = bias.as_ref().filter(|bias| bias.len() != outputs) {
            bail!("a bias of {} does not fit {outputs} outputs", bias.len());
        }
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            bail!("weights of a convolution are f32, f16 or bf16, not {dtype:?}");
        }
        let mut new = Self {
            packed: Aligned::zeroed(0)?,
            dtype,
            bias,
            taps: [height, width],
            groups,
            inputs,
            outputs: outputs / groups,
        };
        let numbers = groups * new.panels() * new.panel_len();
        new.packed = Aligned::zeroed(numbers * dtype.size_in_bytes())?;
        match dtype {
            DType::F32 => new.fill::<f32>(get),
            DType::F16 => new.fill::<f16>(get),
            _ => new.fill::<bf16>(get),
        }
        Ok(new)
    }

    fn fill<T: Number>(&mut self, get: impl Fn([usize; 4]) -> f32) {
        let (panels, panel_len) = (self.panels(), self.panel_len());
        let (inputs, padded) = (self.inputs, self.padded_inputs());
        let (outputs, [height, width]) = (self.outputs, self.taps);
        let packed = self.packed.view_mut::<T>();
        for (index, panel) in packed
            .chunks_exact_mut(panel_len)
            .enumerate()
            .take(self.groups * panels)
        {
            let (group, first) = (index / panels, index % panels * TILE_COLS);
            let columns = TILE_COLS.min(outputs - first);
            let depths = (0..height * width)
                .flat_map(|tap| (0..inputs).map(move |input| (tap * padded + input, tap, input)));
            for (depth, tap, input) in depths {
                for column in 0..columns {
                    let output = group * outputs + first + column;
                    let beside = T::SIDE_BY_SIDE;
                    let at = (depth / beside * TILE_COLS + column) * beside + depth % beside;
                    panel[at] = T::from_f32(get([output, input, tap / width, tap % width]));
                }
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.packed.bytes()
    }

    /// Panels of one group.
    fn panels(&self) -> usize {
        self.outputs.div_ceil(TILE_COLS)
    }

    /// Inputs of one group, padded to the multiple that the kernel processes together.
    fn padded_inputs(&self) -> usize {
        self.inputs.next_multiple_of(match self.dtype {
            DType::BF16 => bf16::SIDE_BY_SIDE,
            _ => 1,
        })
    }

    fn depth(&self) -> usize {
        self.taps[0] * self.taps[1] * self.padded_inputs()
    }

    fn panel_len(&self) -> usize {
        self.depth() * TILE_COLS
    }

    /// Convolves `[batch, height, width, channels]` into the same layout.
    pub fn apply(&self, x: &Tensor, axes: [Axis; 2], is_transposed: bool) -> Result<Tensor> {
        self.apply_at(Level::best(), x, axes, is_transposed)
    }

    fn apply_at(
        &self,
        level: Level,
        x: &Tensor,
        axes: [Axis; 2],
        is_transposed: bool,
    ) -> Result<Tensor> {
        let (batch, height, width, channels) = x.dims4()?;
        if channels != self.groups * self.inputs {
            bail!(
                "{channels} channels do not fit weights of {} groups of {} inputs",
                self.groups,
                self.inputs
            );
        }
        let walks = [
            axes[0].walk(height, self.taps[0], is_transposed)?,
            axes[1].walk(width, self.taps[1], is_transposed)?,
        ];
        let outputs = self.groups * self.outputs;
        let shape = [batch, walks[0].outputs(), walks[1].outputs(), outputs];
        let result = with_floats(x, |values| {
            let job = Gathering {
                weights: self,
                values,
                size: [height, width, channels],
                walks: &walks,
                level,
            };
            Ok(match self.dtype {
                DType::F32 => job.run::<f32>(batch),
                DType::F16 => job.run::<f16>(batch),
                _ => job.run::<bf16>(batch),
            })
        })?;
        from_floats(result, &shape)
    }
}

struct Gathering<'a> {
    weights: &'a PackedConvolution,
    values: &'a [f32],
    /// Height, width and channels of the input.
    size: [usize; 3],
    walks: &'a [Walk; 2],
    level: Level,
}

/// A part of the depth: whole taps, or inputs of one.
#[derive(Debug, Clone)]
struct Block {
    taps: Range<usize>,
    inputs: Range<usize>,
}

impl Block {
    fn depth(&self) -> usize {
        self.taps.len() * self.inputs.len()
    }
}

impl Gathering<'_> {
    fn run<T: Number>(&self, batch: usize) -> Vec<f32> {
        let weights = self.weights;
        let rows = batch * self.walks[0].outputs() * self.walks[1].outputs();
        let columns = weights.groups * weights.outputs;
        let mut result = vec![0f32; rows * columns];
        let written = Disjoint::new(&mut result);
        let (mut tiles, mut panels) = (BLOCK_TILES, ITEM_PANELS.min(weights.panels()));
        let all_tiles = rows.div_ceil(TILE_ROWS);
        let items = |tiles: usize, panels: usize| {
            all_tiles.div_ceil(tiles) * weights.panels().div_ceil(panels) * weights.groups
        };
        while panels > 8 && items(tiles, panels) < LEAST_ITEMS {
            panels = panels.div_ceil(2);
        }
        while tiles > 2 && items(tiles, panels) < LEAST_ITEMS {
            tiles /= 2;
        }
        while panels > 1 && items(tiles, panels) < LEAST_ITEMS {
            panels = panels.div_ceil(2);
        }
        let parts = weights.panels().div_ceil(panels);
        let cost = rows * weights.depth() / 8 * columns / 4;
        let blocks = self.blocks::<T>();
        share(items(tiles, panels), cost, |range| {
            let mut scratch = Scratch::default();
            for item in range {
                // Neighbours share rows, which are packed anew but near.
                let (part, rest) = (item % parts, item / parts);
                let (group, first) = (
                    rest % weights.groups,
                    rest / weights.groups * tiles * TILE_ROWS,
                );
                let rows = first..rows.min(first + tiles * TILE_ROWS);
                let panels = part * panels..weights.panels().min((part + 1) * panels);
                self.multiply::<T>(group, rows, panels, &blocks, &mut scratch, &written);
            }
        });
        result
    }

    /// Blocks of depth, independent of the number of rows.
    fn blocks<T: Number>(&self) -> Vec<Block> {
        let (inputs, taps) = (
            self.weights.padded_inputs(),
            self.weights.taps[0] * self.weights.taps[1],
        );
        if inputs <= T::DEPTH {
            let step = T::DEPTH / inputs;
            let starts = (0..taps).step_by(step);
            let blocks = starts.map(|tap| Block {
                taps: tap..taps.min(tap + step),
                inputs: 0..inputs,
            });
            return blocks.collect();
        }
        let step = inputs.div_ceil(inputs.div_ceil(T::DEPTH));
        let step = step.next_multiple_of(T::SIDE_BY_SIDE);
        let parts =
            (0..taps).flat_map(|tap| (0..inputs).step_by(step).map(move |first| (tap, first)));
        let blocks = parts.map(|(tap, first)| Block {
            taps: tap..tap + 1,
            inputs: first..inputs.min(first + step),
        });
        blocks.collect()
    }

    fn multiply<T: Number>(
        &self,
        group: usize,
        rows: Range<usize>,
        panels: Range<usize>,
        blocks: &[Block],
        scratch: &mut Scratch,
        written: &Disjoint<f32>,
    ) {
        let weights = self.weights;
        let packed = weights.packed.view::<T>();
        let tiles = rows.len().div_ceil(TILE_ROWS);
        scratch.places.clear();
        scratch
            .places
            .extend(rows.clone().map(|row| self.place(row)));
        scratch.sums.clear();
        scratch.sums.resize(tiles * panels.len() * TILE, 0.0);
        let stride = T::stride(self.level);
        scratch.packed.resize(tiles * TILE_ROWS * stride, 0.0);
        for block in blocks {
            let depth = block.depth();
            scratch.is_seen.clear();
            for tile in 0..tiles {
                let end = scratch.places.len().min((tile + 1) * TILE_ROWS);
                let places = &scratch.places[tile * TILE_ROWS..end];
                let to = &mut scratch.packed[tile * TILE_ROWS * stride..][..TILE_ROWS * stride];
                let is_seen = self.gather::<T>(group, places, block, to);
                scratch.is_seen.push(is_seen);
            }
            for (index, panel) in panels.clone().enumerate() {
                let start = (group * weights.panels() + panel) * weights.panel_len();
                let first = block.taps.start * weights.padded_inputs() + block.inputs.start;
                let part = &packed[start + first * TILE_COLS..][..depth * TILE_COLS];
                let sums = scratch.sums[index * tiles * TILE..]
                    .as_chunks_mut::<TILE>()
                    .0;
                let inputs = scratch.packed.chunks_exact(TILE_ROWS * stride);
                let tiles = sums.iter_mut().zip(inputs).zip(&scratch.is_seen);
                for ((sums, words), _) in tiles.filter(|(_, is_seen)| **is_seen) {
                    let rows = Rows {
                        words,
                        stride,
                        depth,
                    };
                    add_products(self.level, rows, part, sums);
                }
            }
        }
        let columns = weights.groups * weights.outputs;
        for (place, row) in scratch.places.iter().zip(0..) {
            let to = place.result * columns + group * weights.outputs;
            for (index, panel) in panels.clone().enumerate() {
                let first = panel * TILE_COLS;
                let width = TILE_COLS.min(weights.outputs - first);
                let at = (index * tiles + row / TILE_ROWS) * TILE + row % TILE_ROWS * TILE_COLS;
                // SAFETY: every row and column belongs to one item.
                let out = unsafe { written.part(to + first..to + first + width) };
                out.copy_from_slice(&scratch.sums[at..at + width]);
                if let Some(bias) = &weights.bias {
                    let bias = &bias[group * weights.outputs + first..][..width];
                    out.iter_mut()
                        .zip(bias)
                        .for_each(|(out, bias)| *out += bias);
                }
            }
        }
    }

    fn place(&self, row: usize) -> Output {
        let [ys, xs] = self.walks;
        let (height, width) = (ys.outputs(), xs.outputs());
        let (batch, y, x) = (row / (height * width), row / width % height, row % width);
        let (y, x) = (ys.order[y], xs.order[x]);
        Output {
            batch,
            y,
            x,
            result: (batch * height + y) * width + x,
        }
    }

    /// Gathers the inputs of these outputs in this block to the rows of a tile; returns false if all of them are
    /// padding.
    fn gather<T: Number>(
        &self,
        group: usize,
        places: &[Output],
        block: &Block,
        to: &mut [f32],
    ) -> bool {
        let [height, width, channels] = self.size;
        let [ys, xs] = self.walks;
        let inputs = block.inputs.start..block.inputs.end.min(self.weights.inputs);
        let offset = group * self.weights.inputs + inputs.start;
        let run_words = T::words(self.level, block.inputs.len());
        let mut is_seen = false;
        let rows = to.chunks_exact_mut(T::stride(self.level)).enumerate();
        for (row, words) in rows {
            let runs = words.chunks_exact_mut(run_words);
            for (tap, words) in block.taps.clone().zip(runs) {
                let (tap_y, tap_x) = (tap / self.weights.taps[1], tap % self.weights.taps[1]);
                let seen = places.get(row).map(|place| {
                    let seen = (ys.seen(place.y, tap_y), xs.seen(place.x, tap_x));
                    (place.batch, seen)
                });
                match seen {
                    Some((batch, (y, x))) if y != NOTHING && x != NOTHING => {
                        let pixel = (batch * height + y as usize) * width + x as usize;
                        let run = &self.values[pixel * channels + offset..][..inputs.len()];
                        put_run::<T>(self.level, run, words);
                        is_seen = true;
                    }
                    _ => words.fill(0.0),
                }
            }
        }
        is_seen
    }
}

/// A position of the result.
struct Output {
    batch: usize,
    y: usize,
    x: usize,
    /// Row of the result.
    result: usize,
}

#[derive(Default)]
struct Scratch {
    places: Vec<Output>,
    /// Per tile twelve rows, see [`Rows`].
    packed: Vec<f32>,
    /// Per tile, whether the current block has any input besides padding.
    is_seen: Vec<bool>,
    /// Per panel and tile.
    sums: Vec<f32>,
}

#[cfg(test)]
mod tests;
