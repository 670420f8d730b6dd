//! The networks of one model, and conversions between them: texts to conditions, images to latents and back.
//!
//! Latents are host numbers, channels-last, scaled for the U-Net.

use std::sync::{Arc, OnceLock};

use candle_core::{D, DType, Device, Result, Tensor};

use super::adapters::{AdapterCaches, DrawingAdapters};
use super::plan::is_decoded_in_tiles;
use super::preview::LatentColors;
use super::prompt::PromptWindow;
use super::tiles::{TilePlan, TiledImage};
use crate::networks::adapter::{Adaptation, Pass};
use crate::networks::image::{AddedConditioning, Autoencoder, Conditioning, Unet};
use crate::networks::text_encoder::{ClipText, ClipWindow};
use crate::runtime::diffusion::{NoiseTable, Prediction};
use crate::runtime::text::ClipTokenizer;
use muster_kernels::Edges;

pub struct DiffusionNetworks {
    /// One, or the two of SDXL.
    pub encoders: Vec<TextEncoder>,
    pub unet: Unet,
    pub autoencoder: Arc<Autoencoder>,
    /// Width and height of the latents that the U-Net was trained with.
    pub sample_size: Option<[usize; 2]>,
    pub prediction: Prediction,
    pub table: NoiseTable,
    pub device: Device,
    /// Computed for the first preview.
    pub colors: OnceLock<LatentColors>,
    pub adapters: AdapterCaches,
}

pub struct TextEncoder {
    pub clip: Arc<ClipText>,
    pub tokenizer: ClipTokenizer,
}

/// An encoded prompt: `[1, tokens, context]`, and the pooled text of SDXL.
#[derive(Debug, Clone)]
pub struct EncodedPrompt {
    pub context: Tensor,
    pub pooled: Option<Tensor>,
}

impl DiffusionNetworks {
    /// SDXL reads the last layers but one, without the last norm, and pools the text.
    pub fn is_xl(&self) -> bool {
        self.unet.spec().added.is_some()
    }

    /// Layers that are left out at the end of the text encoders.
    pub fn skipped_layers(&self, clip_skip: Option<u32>) -> usize {
        match clip_skip {
            Some(skip) => skip.saturating_sub(1) as usize,
            None => usize::from(self.is_xl()),
        }
    }

    /// Encodes the windows of a prompt, given for each encoder.
    pub async fn encode_prompt(
        &self,
        windows: &[Vec<PromptWindow>],
        skipped: usize,
        adapters: &DrawingAdapters,
    ) -> Result<EncodedPrompt> {
        let count = windows.iter().map(Vec::len).max().unwrap_or(1);
        let (mut states, mut pooled) = (Vec::new(), None);
        for (index, (encoder, windows)) in self.encoders.iter().zip(windows).enumerate() {
            let adaptations = adapters.encoders.get(index).map_or(&[][..], Vec::as_slice);
            let (state, pool) = encoder
                .encode(windows, count, (skipped, !self.is_xl()), adaptations)
                .await?;
            states.push(state);
            pooled = Some(pool);
        }
        Ok(EncodedPrompt {
            context: Tensor::cat(&states, 2)?,
            pooled: pooled.filter(|_| self.is_xl()),
        })
    }

    /// Whether the network was made to paint inside a mask: its input holds the mask and the rest of the image.
    pub fn paints(&self) -> bool {
        self.unet.spec().inputs > self.unet.spec().outputs
    }

    /// The network's output for a latent at a training step, under each of the prompts. `extra` are further channels.
    pub async fn predict(
        &self,
        (latent, extra): (&LatentMap, Option<&LatentMap>),
        timestep: f32,
        prompts: &[EncodedPrompt],
        sizes: [u32; 2],
        pass: Pass<'_>,
    ) -> Result<Vec<Vec<f64>>> {
        let [first, rest @ ..] = prompts else {
            return Ok(Vec::new());
        };
        let is_even = |other: &EncodedPrompt| other.context.dims() == first.context.dims();
        let batches: Vec<&[EncodedPrompt]> = match rest.iter().all(is_even) {
            true => vec![prompts],
            false => prompts.chunks(1).collect(),
        };
        let mut x = latent.tensor(&self.device)?;
        if let Some(extra) = extra {
            x = Tensor::cat(&[&x, &extra.tensor(&self.device)?], D::Minus1)?;
        }
        let mut outputs = Vec::new();
        for batch in batches {
            let count = batch.len();
            let x = x.repeat((count, 1, 1, 1))?;
            let steps = vec![timestep; count];
            let conditioning = self.conditioning(batch, sizes)?;
            let forward = self.unet.forward(&x, &steps, &conditioning, pass);
            let output = forward.await?;
            for index in 0..count {
                outputs.push(to_host(&output.narrow(0, index, 1)?)?);
            }
        }
        Ok(outputs)
    }

    fn conditioning(&self, prompts: &[EncodedPrompt], sizes: [u32; 2]) -> Result<Conditioning> {
        let contexts = prompts.iter().map(|prompt| &prompt.context);
        let pooled = prompts.iter().map(|prompt| prompt.pooled.as_ref());
        let pooled: Option<Vec<&Tensor>> = pooled.collect();
        let [width, height] = sizes.map(|size| size as f32);
        Ok(Conditioning {
            context: Tensor::cat(&contexts.collect::<Vec<_>>(), 0)?,
            added: match pooled {
                Some(pooled) => Some(AddedConditioning {
                    pooled: Tensor::cat(&pooled, 0)?,
                    sizes: [height, width, 0.0, 0.0, height, width],
                }),
                None => None,
            },
        })
    }

    /// The latent of an image `[1, height, width, 3]` in -1 to 1: the mean of its distribution, so that it repeats.
    pub async fn encode_image(&self, image: &Tensor, edges: Edges) -> Result<Vec<f64>> {
        let (mean, _) = self.autoencoder.encode(image, edges).await?;
        let spec = self.autoencoder.spec();
        let numbers = to_host(&mean)?.into_iter();
        Ok(numbers.map(|z| (z - spec.shift) * spec.scale).collect())
    }

    /// The image `[height, width, 3]` of a latent, about -1 to 1.
    pub async fn decode(&self, latent: &LatentMap, edges: Edges) -> Result<Tensor> {
        let factor = self.autoencoder.spec().factor();
        let size = [latent.width, latent.height].map(|side| (side * factor) as u32);
        match is_decoded_in_tiles(size, edges) {
            true => self.decode_in_tiles(latent, TilePlan::USUAL).await,
            false => self.decode_whole(latent, edges).await,
        }
    }

    pub async fn decode_in_tiles(&self, latent: &LatentMap, plan: TilePlan) -> Result<Tensor> {
        let mut image = TiledImage::new(plan, self.autoencoder.spec().factor(), latent);
        for y in plan.starts(latent.height) {
            for x in plan.starts(latent.width) {
                let tile = plan.tile(latent, [y, x]);
                let decoded = self.decode_whole(&tile, Edges::Zeros).await?;
                image.add([y, x], &decoded)?;
            }
        }
        image.finish()
    }

    async fn decode_whole(&self, latent: &LatentMap, edges: Edges) -> Result<Tensor> {
        let spec = self.autoencoder.spec();
        let unscaled = latent.map(|z| z / spec.scale + spec.shift);
        let z = unscaled.tensor(&self.device)?;
        let decoded = self.autoencoder.decode(&z, edges).await?;
        decoded
            .squeeze(0)?
            .to_dtype(DType::F32)?
            .to_device(&Device::Cpu)
    }
}

impl TextEncoder {
    /// Hidden states `[1, tokens, hidden]` of at least `count` windows, and the pooled output of the first.
    async fn encode(
        &self,
        windows: &[PromptWindow],
        count: usize,
        (skipped, is_normed): (usize, bool),
        adaptations: &[Adaptation],
    ) -> Result<(Tensor, Tensor)> {
        let pass = Pass {
            edges: Edges::Zeros,
            adaptations,
        };
        let empty = PromptWindow::new(&self.tokenizer, &[], self.clip.spec().positions);
        let mut windows = windows.to_vec();
        windows.resize(count, empty.clone());
        let is_weighted = windows.iter().any(PromptWindow::is_weighted);
        let mut tokens: Vec<ClipWindow> = windows.iter().map(|it| it.clip.clone()).collect();
        if is_weighted {
            tokens.push(empty.clip);
        }
        let output = self.clip.forward(&tokens, skipped, pass).await?;
        let all = match is_normed {
            true => output.normed,
            false => output.states,
        };
        let mut states = all.narrow(0, 0, count)?;
        if is_weighted {
            // Weights move a text away from the empty one.
            let empty = all.narrow(0, count, 1)?;
            let weights: Vec<f32> = windows.iter().flat_map(|it| it.weights.clone()).collect();
            let weights = Tensor::new(weights, all.device())?.reshape((count, (), 1))?;
            let moved = states.broadcast_sub(&empty)?.broadcast_mul(&weights)?;
            states = moved.broadcast_add(&empty)?;
        }
        let hidden = states.dim(2)?;
        Ok((
            states.reshape((1, (), hidden))?,
            output.pooled.narrow(0, 0, 1)?,
        ))
    }
}

/// A latent with its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentMap {
    pub values: Vec<f64>,
    pub height: usize,
    pub width: usize,
}

impl LatentMap {
    /// Nearest-neighbour resampling.
    pub fn nearest(&self, height: usize, width: usize) -> Self {
        let channels = self.channels();
        let from = |at: usize, size: usize, old: usize| (2 * at + 1) * old / (2 * size);
        let values = (0..height * width).flat_map(|place| {
            let y = from(place / width, height, self.height);
            let x = from(place % width, width, self.width);
            let at = (y * self.width + x) * channels;
            self.values[at..at + channels].to_vec()
        });
        Self {
            values: values.collect(),
            height,
            width,
        }
    }

    pub fn channels(&self) -> usize {
        self.values.len() / (self.height * self.width).max(1)
    }

    pub fn map(&self, change: impl FnMut(f64) -> f64) -> Self {
        Self {
            values: self.values.iter().copied().map(change).collect(),
            ..*self
        }
    }

    fn tensor(&self, device: &Device) -> Result<Tensor> {
        let values: Vec<f32> = self.values.iter().map(|&value| value as f32).collect();
        let shape = (1, self.height, self.width, self.channels());
        Tensor::from_vec(values, shape, device)
    }
}

/// The numbers of a tensor, in its order.
pub fn to_host(tensor: &Tensor) -> Result<Vec<f64>> {
    let tensor = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
    let numbers = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(numbers.into_iter().map(f64::from).collect())
}
