//! The vocoder: converts states, pitch and energy of frames to samples.

use candle_core::{Result, Tensor, bail};

use super::blocks::{AdaptiveBlock, SnakeBlock, around, leaky};
use super::source::{ShortTransform, VocalCords};
use super::{GeneratorSpec, KokoroSpec, Prosody};
use crate::networks::blocks::{ComponentReader, block_end};
use crate::networks::sound::folded::FoldedTensors;
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution};

pub(super) struct SpeechDecoder {
    pitch: Convolution,
    energy: Convolution,
    residual: Convolution,
    encode: AdaptiveBlock,
    /// The last doubles the frames.
    blocks: Vec<AdaptiveBlock>,
    generator: Generator,
}

struct Generator {
    spec: GeneratorSpec,
    source: VocalCords,
    transform: ShortTransform,
    stages: Vec<GeneratorStage>,
    last: Convolution,
}

/// Stretches time and adds the source at the new rate.
struct GeneratorStage {
    stretch: Convolution,
    source: Convolution,
    source_block: SnakeBlock,
    blocks: Vec<SnakeBlock>,
}

/// Blocks after the first.
const BLOCKS: usize = 4;
/// Slopes of the activations of the generator.
const STAGE_SLOPE: f64 = 0.1;
const LAST_SLOPE: f64 = 0.01;
/// Kernels of the blocks that the source goes through, and their dilations.
const SOURCE_KERNELS: [usize; 2] = [7, 11];
const SOURCE_DILATIONS: [usize; 3] = [1, 3, 5];

impl SpeechDecoder {
    pub fn load(
        spec: &KokoroSpec,
        tensors: &FoldedTensors<'_>,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, style) = (spec.hidden, spec.style);
        // No configuration states these two.
        let width = tensors.rows("decoder.encode.conv1.weight")?;
        let residual = tensors.rows("decoder.asr_res.0.weight")?;
        let halving = Axis {
            stride: 2,
            padding: [1, 1],
            ..Axis::default()
        };
        let inputs = width + residual + 2;
        let mut blocks = Vec::with_capacity(BLOCKS);
        for at in 0..BLOCKS {
            let is_last = at + 1 == BLOCKS;
            let outputs = if is_last {
                spec.generator.channels
            } else {
                width
            };
            let name = format!("decoder.decode.{at}");
            blocks.push(AdaptiveBlock::load(
                reader,
                &name,
                (inputs, outputs),
                style,
                is_last,
            )?);
        }
        let encode = (hidden + 2, width);
        Ok(Self {
            pitch: reader.convolution_along("decoder.F0_conv", [1, 1, 3], halving)?,
            energy: reader.convolution_along("decoder.N_conv", [1, 1, 3], halving)?,
            residual: reader.convolution_along(
                "decoder.asr_res.0",
                [residual, hidden, 1],
                Axis::default(),
            )?,
            encode: AdaptiveBlock::load(reader, "decoder.encode", encode, style, false)?,
            blocks,
            generator: Generator::load(&spec.generator, style, reader)?,
        })
    }

    /// Samples of the states of frames, `[frames, hidden]`.
    pub async fn forward(
        &self,
        states: &Tensor,
        prosody: &Prosody,
        style: &Tensor,
        noise: &(dyn Fn(usize) -> Vec<f32> + Sync),
    ) -> Result<Vec<f32>> {
        let curve = |values: &[f32], convolution: &Convolution| {
            let count = values.len();
            let values = Tensor::from_slice(values, (1, count, 1), states.device())?;
            convolution.apply(&values)
        };
        let pitch = curve(&prosody.pitch, &self.pitch)?;
        let energy = curve(&prosody.energy, &self.energy)?;
        let states = states.unsqueeze(0)?;
        let residual = self.residual.apply(&states)?;
        let x = Tensor::cat(&[&states, &pitch, &energy], 2)?;
        let mut x = self.encode.forward(&x, style)?;
        block_end().await;
        for block in &self.blocks {
            let joined = Tensor::cat(&[&x, &residual, &pitch, &energy], 2)?;
            x = block.forward(&joined, style)?;
            block_end().await;
        }
        self.generator
            .forward(x, &prosody.pitch, style, noise)
            .await
    }

    /// Samples of the vocal cords alone.
    #[cfg(test)]
    pub fn source(&self, pitch: &[f32], noise: &(dyn Fn(usize) -> Vec<f32> + Sync)) -> Vec<f64> {
        let generator = &self.generator;
        let stretch = generator.spec.stretch();
        generator.source.samples(pitch, stretch, noise)
    }
}

impl Generator {
    fn load(
        spec: &GeneratorSpec,
        style: usize,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let count = spec.stages.len();
        let mut stages = Vec::with_capacity(count);
        let mut channels = spec.channels;
        for (at, stage) in spec.stages.iter().enumerate() {
            let (inputs, outputs) = (channels, channels / 2);
            channels = outputs;
            let later: usize = spec.stages[at + 1..]
                .iter()
                .map(|stage| stage.rate)
                .product();
            let is_last = at + 1 == count;
            let (kernel, axis) = match is_last {
                true => (1, Axis::default()),
                false => {
                    let axis = Axis {
                        stride: later,
                        padding: [later.div_ceil(2); 2],
                        ..Axis::default()
                    };
                    (2 * later, axis)
                }
            };
            let name = format!("decoder.generator.ups.{at}");
            let shape = [inputs, outputs, stage.kernel];
            let weight = reader.tensor(&format!("{name}.weight"), &shape)?;
            let bias = reader.tensor(&format!("{name}.bias"), &[outputs])?;
            let stretch = Axis {
                stride: stage.rate,
                padding: [(stage.kernel - stage.rate) / 2; 2],
                ..Axis::default()
            };
            let mut blocks = Vec::with_capacity(spec.blocks.len());
            for (index, (kernel, dilations)) in spec.blocks.iter().enumerate() {
                let block = at * spec.blocks.len() + index;
                let name = format!("decoder.generator.resblocks.{block}");
                let shape = (*kernel, dilations.as_slice());
                blocks.push(SnakeBlock::load(reader, &name, outputs, style, shape)?);
            }
            stages.push(GeneratorStage {
                stretch: Convolution::transposed(
                    &weight,
                    Some(&bias),
                    [Axis::default(), stretch],
                    1,
                )?,
                source: reader.convolution_along(
                    &format!("decoder.generator.noise_convs.{at}"),
                    [outputs, spec.bins(), kernel],
                    axis,
                )?,
                source_block: SnakeBlock::load(
                    reader,
                    &format!("decoder.generator.noise_res.{at}"),
                    outputs,
                    style,
                    (SOURCE_KERNELS[usize::from(is_last)], &SOURCE_DILATIONS),
                )?,
                blocks,
            });
        }
        Ok(Self {
            source: VocalCords::load(reader)?,
            transform: ShortTransform::new(spec),
            stages,
            last: reader.convolution_along(
                "decoder.generator.conv_post",
                [spec.bins(), channels, 7],
                around(7, 1),
            )?,
            spec: spec.clone(),
        })
    }

    async fn forward(
        &self,
        mut x: Tensor,
        pitch: &[f32],
        style: &Tensor,
        noise: &(dyn Fn(usize) -> Vec<f32> + Sync),
    ) -> Result<Vec<f32>> {
        let source = {
            let samples = self.source.samples(pitch, self.spec.stretch(), noise);
            self.transform.spectra(&samples, &x)?
        };
        block_end().await;
        for (at, stage) in self.stages.iter().enumerate() {
            let is_last = at + 1 == self.stages.len();
            x = stage.forward(&x, &source, style, is_last).await?;
        }
        let described = self.last.apply(&leaky(&x, LAST_SLOPE)?)?;
        let sound = self.transform.sound(&described)?;
        block_end().await;
        Ok(sound)
    }
}

impl GeneratorStage {
    async fn forward(
        &self,
        x: &Tensor,
        source: &Tensor,
        style: &Tensor,
        is_last: bool,
    ) -> Result<Tensor> {
        let source = self.source.apply(source)?;
        let source = self.source_block.forward(&source, style).await?;
        let mut x = self.stretch.apply(&leaky(x, STAGE_SLOPE)?)?;
        block_end().await;
        if is_last {
            // The transform has one frame more than hops: the second one mirrored.
            x = Tensor::cat(&[&x.narrow(1, 1, 1)?, &x], 1)?;
        }
        if x.dims() != source.dims() {
            bail!(
                "the sound has frames {:?}, but its source {:?}",
                x.dims(),
                source.dims()
            );
        }
        let x = (x + source)?;
        let mut sum = None;
        for block in &self.blocks {
            let y = block.forward(&x, style).await?;
            sum = Some(match sum {
                Some(sum) => (sum + y)?,
                None => y,
            });
        }
        sum.unwrap_or(x) / self.blocks.len().max(1) as f64
    }
}
