//! The denoising U-Net of Stable Diffusion 1, 2 and XL.

mod blocks;
mod names;
mod spec;

pub use self::blocks::{Resnet, ResnetShape, Transformer, same};
pub use self::spec::{ADDED_SIZES, AddedSpec, UnetLevel, UnetSpec};

use candle_core::{D, DType, Tensor, bail};

use crate::networks::adapter::{LayerTable, Pass};
use crate::networks::blocks::{
    AffineNorm, ComponentReader, ComponentSource, ConvolutionLayer, Layout, Projection, block_end,
    sinusoid,
};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Resampling, resample, silu};

/// A U-Net on a device.
pub struct Unet {
    spec: UnetSpec,
    inward: ConvolutionLayer,
    time: [Projection; 2],
    added: Option<[Projection; 2]>,
    down: Vec<Level>,
    middle: Middle,
    /// From the smallest size to the full one.
    up: Vec<Level>,
    norm: AffineNorm,
    outward: ConvolutionLayer,
    layers: LayerTable,
}

struct Level {
    blocks: Vec<(Resnet, Option<Transformer>)>,
    /// Resamples to the next size.
    resize: Option<ConvolutionLayer>,
}

struct Middle {
    first: Resnet,
    transformer: Transformer,
    second: Resnet,
}

/// The text that an image follows, one for each image of a batch.
#[derive(Debug, Clone)]
pub struct Conditioning {
    /// Hidden states `[batch, tokens, context]`.
    pub context: Tensor,
    /// SDXL has it, the others do not.
    pub added: Option<AddedConditioning>,
}

#[derive(Debug, Clone)]
pub struct AddedConditioning {
    /// Pooled text embeddings `[batch, width]`.
    pub pooled: Tensor,
    /// Original height and width, crop from top and left, target height and width.
    pub sizes: [f32; ADDED_SIZES],
}

impl Unet {
    pub fn load(spec: UnetSpec, source: ComponentSource) -> Result<Self, Flaw> {
        let names = names::SingleFile::new(&spec);
        let rename = |name: &str| match source.layout {
            Layout::Folder => name.to_owned(),
            Layout::SingleFile => names.of(name),
        };
        let mut reader =
            ComponentReader::new(source, rename).with_alias(|name| names.of_layer(name));
        let mut unet = Self::read(spec.clone(), &mut reader)?;
        reader.check_nothing_was_ignored(|name| match source.layout {
            Layout::Folder => true,
            Layout::SingleFile => name.starts_with(names::PREFIX),
        })?;
        unet.layers = reader.into_layers();
        Ok(unet)
    }

    fn read(spec: UnetSpec, reader: &mut ComponentReader) -> Result<Self, Flaw> {
        let first = spec.levels[0].channels;
        let time = spec.time_width();
        let pair = |reader: &mut ComponentReader, name: &str, inputs| {
            let first = reader.projection(&format!("{name}.linear_1"), (time, inputs), true)?;
            let second = reader.projection(&format!("{name}.linear_2"), (time, time), true)?;
            Ok::<_, Flaw>([first, second])
        };
        let added = match spec.added {
            Some(added) => {
                let inputs = added.pooled + ADDED_SIZES * added.size_width;
                Some(pair(reader, "add_embedding", inputs)?)
            }
            None => None,
        };
        let shape = ResnetShape {
            groups: spec.groups,
            norm_eps: spec.norm_eps,
            time_width: Some(time),
        };
        let last = spec.levels.len() - 1;
        let (mut down, mut skips, mut channels) = (Vec::new(), vec![first], first);
        for (index, level) in spec.levels.iter().enumerate() {
            let name = format!("down_blocks.{index}");
            let mut blocks = Vec::new();
            for block in 0..spec.blocks {
                let sizes = (channels, level.channels);
                let resnet =
                    Resnet::load(reader, &format!("{name}.resnets.{block}"), sizes, shape)?;
                blocks.push((resnet, spec.transformer(reader, &name, block, index)?));
                channels = level.channels;
                skips.push(channels);
            }
            let resize = match index == last {
                true => None,
                false => {
                    skips.push(channels);
                    let halve = Axis {
                        stride: 2,
                        ..same()
                    };
                    let name = format!("{name}.downsamplers.0.conv");
                    Some(reader.convolution(&name, [channels, channels, 3], halve)?)
                }
            };
            down.push(Level { blocks, resize });
        }
        let heads = spec.levels[last].heads;
        let middle = Middle {
            first: Resnet::load(reader, "mid_block.resnets.0", (channels, channels), shape)?,
            transformer: Transformer::load(
                reader,
                "mid_block.attentions.0",
                (channels, spec.middle_depth, heads),
                &spec,
            )?,
            second: Resnet::load(reader, "mid_block.resnets.1", (channels, channels), shape)?,
        };
        let mut up = Vec::new();
        for (step, (index, level)) in spec.levels.iter().enumerate().rev().enumerate() {
            let name = format!("up_blocks.{step}");
            let mut blocks = Vec::new();
            for block in 0..=spec.blocks {
                let skip = skips.pop().unwrap_or(first);
                let sizes = (channels + skip, level.channels);
                let resnet =
                    Resnet::load(reader, &format!("{name}.resnets.{block}"), sizes, shape)?;
                blocks.push((resnet, spec.transformer(reader, &name, block, index)?));
                channels = level.channels;
            }
            let resize = match index {
                0 => None,
                _ => {
                    let name = format!("{name}.upsamplers.0.conv");
                    Some(reader.convolution(&name, [channels, channels, 3], same())?)
                }
            };
            up.push(Level { blocks, resize });
        }
        Ok(Self {
            inward: reader.convolution("conv_in", [first, spec.inputs, 3], same())?,
            time: pair(reader, "time_embedding", first)?,
            added,
            down,
            middle,
            up,
            norm: reader.norm("conv_norm_out", first, spec.norm_eps)?,
            outward: reader.convolution("conv_out", [spec.outputs, first, 3], same())?,
            layers: LayerTable::default(),
            spec,
        })
    }

    /// The layers that adapters can change.
    pub fn layers(&self) -> &LayerTable {
        &self.layers
    }

    pub fn spec(&self) -> &UnetSpec {
        &self.spec
    }

    /// Blocks of one pass.
    pub fn blocks(&self) -> u64 {
        let count = |levels: &[Level]| {
            let blocks = levels.iter().flat_map(|level| &level.blocks);
            let depths = blocks
                .map(|(_, transformer)| 1 + transformer.as_ref().map_or(0, Transformer::depth));
            depths.sum::<usize>()
        };
        let resizes = self.up.iter().filter(|level| level.resize.is_some());
        let all =
            count(&self.down) + self.middle.transformer.depth() + count(&self.up) + resizes.count();
        all as u64
    }

    /// The prediction for noisy latents `[batch, height, width, inputs]` at a training step each.
    pub async fn forward(
        &self,
        x: &Tensor,
        timesteps: &[f32],
        conditioning: &Conditioning,
        pass: Pass<'_>,
    ) -> candle_core::Result<Tensor> {
        let time = self.time_of(timesteps, conditioning, x, pass)?.silu()?;
        let (time, context) = (Some(&time), &conditioning.context);
        let mut x = self.inward.forward(x, pass)?;
        let mut skips = vec![x.clone()];
        for level in &self.down {
            for (resnet, transformer) in &level.blocks {
                x = resnet.forward(&x, time, pass)?;
                block_end().await;
                if let Some(transformer) = transformer {
                    x = transformer.forward(&x, context, pass).await?;
                }
                skips.push(x.clone());
            }
            if let Some(resize) = &level.resize {
                x = resize.forward(&x, pass)?;
                skips.push(x.clone());
            }
        }
        x = self.middle.first.forward(&x, time, pass)?;
        x = self.middle.transformer.forward(&x, context, pass).await?;
        x = self.middle.second.forward(&x, time, pass)?;
        for level in &self.up {
            for (resnet, transformer) in &level.blocks {
                let Some(skip) = skips.pop() else {
                    bail!("the network has more blocks on its way up than down");
                };
                x = Tensor::cat(&[&x, &skip], D::Minus1)?;
                x = resnet.forward(&x, time, pass)?;
                block_end().await;
                if let Some(transformer) = transformer {
                    x = transformer.forward(&x, context, pass).await?;
                }
            }
            if let (Some(resize), Some(next)) = (&level.resize, skips.last()) {
                let size = [next.dim(1)?, next.dim(2)?];
                x = resize.forward(&resample(&x, size, Resampling::Nearest)?, pass)?;
                block_end().await;
            }
        }
        let x = silu(&self.norm.of_groups(&x, self.spec.groups)?)?;
        self.outward.forward(&x, pass)
    }

    fn time_of(
        &self,
        timesteps: &[f32],
        conditioning: &Conditioning,
        like: &Tensor,
        pass: Pass<'_>,
    ) -> candle_core::Result<Tensor> {
        let like = &like.to_dtype(DType::F32)?;
        let through = |[first, second]: &[Projection; 2], x: &Tensor| {
            second.forward(&first.forward(x, pass)?.silu()?, pass)
        };
        let width = self.spec.levels[0].channels;
        let time = through(&self.time, &sinusoid(timesteps, width, like)?)?;
        match (&self.added, self.spec.added, &conditioning.added) {
            (Some(projections), Some(spec), Some(added)) => {
                let sizes = sinusoid(&added.sizes, spec.size_width, like)?.flatten_all()?;
                let sizes = sizes.unsqueeze(0)?.repeat((timesteps.len(), 1))?;
                let joined = Tensor::cat(&[&added.pooled, &sizes], 1)?;
                time + through(projections, &joined)?
            }
            (None, _, None) => Ok(time),
            (Some(_), ..) => bail!("this network needs the pooled text and sizes"),
            (None, ..) => bail!("this network takes no pooled text and sizes"),
        }
    }
}

impl UnetSpec {
    fn transformer(
        &self,
        reader: &mut ComponentReader,
        name: &str,
        block: usize,
        level: usize,
    ) -> Result<Option<Transformer>, Flaw> {
        let level = &self.levels[level];
        match level.depth {
            0 => Ok(None),
            depth => {
                let shape = (level.channels, depth, level.heads);
                let name = format!("{name}.attentions.{block}");
                Transformer::load(reader, &name, shape, self).map(Some)
            }
        }
    }
}
