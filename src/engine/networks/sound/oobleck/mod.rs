//! Oobleck, the autoencoder of Stable Audio (Evans et al., 2024): its decoder, from latents to samples.
//!
//! Sequences are channels-last, `[batch, frames, channels]`. Long ones are decoded in tiles that include the context of
//! their samples, so that memory does not depend on the length and the samples equal those of a single pass.

mod spec;

pub use self::spec::{OobleckLevelSpec, OobleckSpec};

use candle_core::{Result, Tensor, bail};

use self::spec::{DILATIONS, KERNEL};
use super::folded::FoldedTensors;
use crate::networks::blocks::{ComponentReader, ComponentSource, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution, snake};

/// The decoder on a device.
pub struct Oobleck {
    spec: OobleckSpec,
    first: Convolution,
    levels: Vec<OobleckLevel>,
    activation: SnakeActivation,
    last: Convolution,
}

/// Stretches the sound, then three units.
struct OobleckLevel {
    activation: SnakeActivation,
    stretch: Convolution,
    units: [OobleckUnit; 3],
}

/// Two convolutions with periodic activations and a shortcut.
struct OobleckUnit {
    wide: (SnakeActivation, Convolution),
    narrow: (SnakeActivation, Convolution),
}

struct SnakeActivation {
    alpha: Tensor,
    beta: Tensor,
}

/// Latent frames that are decoded at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OobleckTile {
    /// The frames.
    pub from: usize,
    pub count: usize,
    /// Context frames before and after them.
    pub around: [usize; 2],
}

/// Latent frames of a tile: the context adds a fifth to the computation, and the widest maps stay below a gigabyte.
pub const TILE_FRAMES: usize = 128;
/// Added to the divisor of an activation.
const LEAST_BETA: f64 = 1e-9;

impl Oobleck {
    pub fn load(spec: OobleckSpec, source: ComponentSource) -> std::result::Result<Self, Flaw> {
        let tensors = FoldedTensors::new(source.tensors, str::to_owned)?;
        let source = ComponentSource {
            tensors: &tensors,
            ..source
        };
        Self::load_folded(spec, source)
    }

    /// Loads tensors with folded weight normalization.
    pub(super) fn load_folded(
        spec: OobleckSpec,
        source: ComponentSource,
    ) -> std::result::Result<Self, Flaw> {
        let reader = &mut ComponentReader::new(source, |name| format!("decoder.{name}"));
        let shape = [spec.first_width(), spec.latent_channels, KERNEL];
        let first = reader.convolution_along("conv1", shape, around(1))?;
        let mut levels = Vec::with_capacity(spec.levels.len());
        for (at, level) in spec.levels.iter().enumerate() {
            levels.push(OobleckLevel::load(reader, &format!("block.{at}"), *level)?);
        }
        let activation = SnakeActivation::load(reader, "snake1", spec.width)?;
        let shape = [spec.channels, spec.width, KERNEL];
        let weight = reader.tensor("conv2.weight", &shape)?;
        let last = Convolution::new(&weight, None, [Axis::default(), around(1)], 1)?;
        reader.check_nothing_was_ignored(|name| name.starts_with("decoder."))?;
        Ok(Self {
            spec,
            first,
            levels,
            activation,
            last,
        })
    }

    pub fn spec(&self) -> &OobleckSpec {
        &self.spec
    }

    /// Splits this many latent frames into tiles.
    pub fn tiles(&self, frames: usize, most: usize) -> Vec<OobleckTile> {
        let reach = self.spec.reach();
        let starts = (0..frames).step_by(most.max(1));
        let tiles = starts.map(|from| {
            let count = most.min(frames - from);
            OobleckTile {
                from,
                count,
                around: [from.min(reach), (frames - from - count).min(reach)],
            }
        });
        tiles.collect()
    }

    /// Times that decoding a tile stops.
    pub fn stops(&self) -> u64 {
        1 + 4 * self.levels.len() as u64
    }

    /// The samples of a tile of latents, `[batch, samples, channels]`.
    pub async fn decode(&self, latents: &Tensor, tile: OobleckTile) -> Result<Tensor> {
        let (_, frames, channels) = latents.dims3()?;
        let [before, behind] = tile.around;
        let end = tile.from + tile.count + behind;
        if channels != self.spec.latent_channels || before > tile.from || end > frames {
            bail!("{frames} frames of {channels} numbers do not have the tile {tile:?}");
        }
        let seen = latents.narrow(1, tile.from - before, before + tile.count + behind)?;
        let mut x = self.first.apply(&seen.contiguous()?)?;
        for level in &self.levels {
            x = level.forward(&x).await?;
        }
        let sound = self.last.apply(&self.activation.apply(&x)?)?;
        let hop = self.spec.hop();
        let sound = sound.narrow(1, before * hop, tile.count * hop)?;
        let sound = sound.contiguous()?;
        block_end().await;
        Ok(sound)
    }
}

impl OobleckLevel {
    fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        spec: OobleckLevelSpec,
    ) -> std::result::Result<Self, Flaw> {
        let OobleckLevelSpec {
            stride,
            inputs,
            outputs,
        } = spec;
        let axis = Axis {
            stride,
            padding: [stride / 2; 2],
            ..Axis::default()
        };
        let shape = [inputs, outputs, 2 * stride];
        let weight = reader.tensor(&format!("{name}.conv_t1.weight"), &shape)?;
        let bias = reader.vector(&format!("{name}.conv_t1.bias"), outputs)?;
        let mut unit = |at: usize, dilation: usize| {
            OobleckUnit::load(reader, &format!("{name}.res_unit{at}"), outputs, dilation)
        };
        let [first, second, third] = DILATIONS;
        let units = [unit(1, first)?, unit(2, second)?, unit(3, third)?];
        Ok(Self {
            activation: SnakeActivation::load(reader, &format!("{name}.snake1"), inputs)?,
            stretch: Convolution::transposed(&weight, Some(&bias), [Axis::default(), axis], 1)?,
            units,
        })
    }

    async fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.stretch.apply(&self.activation.apply(x)?)?;
        block_end().await;
        for unit in &self.units {
            x = unit.forward(&x)?;
            block_end().await;
        }
        Ok(x)
    }
}

impl OobleckUnit {
    fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        channels: usize,
        dilation: usize,
    ) -> std::result::Result<Self, Flaw> {
        let mut step = |at: usize, kernel: usize, axis: Axis| {
            let shape = [channels, channels, kernel];
            let activation = SnakeActivation::load(reader, &format!("{name}.snake{at}"), channels)?;
            let convolution = reader.convolution_along(&format!("{name}.conv{at}"), shape, axis)?;
            Ok::<_, Flaw>((activation, convolution))
        };
        Ok(Self {
            wide: step(1, KERNEL, around(dilation))?,
            narrow: step(2, 1, Axis::default())?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = x.clone();
        for (activation, convolution) in [&self.wide, &self.narrow] {
            y = convolution.apply(&activation.apply(&y)?)?;
        }
        x + y
    }
}

impl SnakeActivation {
    /// Files keep the logarithms of both factors.
    fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        channels: usize,
    ) -> std::result::Result<Self, Flaw> {
        let mut factor = |part: &str| -> std::result::Result<Tensor, Flaw> {
            let stored = reader.numbers(&format!("{name}.{part}"), &[&[1, channels, 1]])?;
            Ok(stored.flatten_all()?.exp()?)
        };
        Ok(Self {
            alpha: factor("alpha")?,
            beta: (factor("beta")? + LEAST_BETA)?,
        })
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        snake(x, &self.alpha, &self.beta)
    }
}

/// Padding that keeps the number of positions in a convolution of [`KERNEL`].
fn around(dilation: usize) -> Axis {
    Axis {
        dilation,
        padding: [KERNEL / 2 * dilation; 2],
        ..Axis::default()
    }
}
