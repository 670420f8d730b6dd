//! The networks of one model, and conversions between them: texts to states, latents to frames and back.
//!
//! Latents are host numbers, channels-last, scaled for the transformer.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};

use crate::networks::text_encoder::UmT5;
use crate::networks::video::{FrameStream, FrameTimes, VideoAutoencoder, WanRope, WanTransformer};
use crate::runtime::diffusion::FlowSchedule;
use crate::runtime::text::PromptTokenizer;

/// Text rows of the transformer; those beyond the prompt are zero.
pub const MOST_TEXT_TOKENS: usize = 512;

pub struct VideoNetworks {
    pub tokenizer: PromptTokenizer,
    pub text: Arc<UmT5>,
    pub transformer: WanTransformer,
    pub autoencoder: Arc<VideoAutoencoder>,
    pub schedule: FlowSchedule,
    /// The transformer knows each frame's own time, so that a first frame can be given.
    pub takes_first_frame: bool,
    pub device: Device,
}

/// A latent with its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentVideo {
    pub values: Vec<f64>,
    /// Frames, height, width.
    pub sizes: [usize; 3],
}

impl VideoNetworks {
    /// Pixels of a side that are one patch of the transformer.
    pub fn pixels_per_patch(&self) -> [u32; 2] {
        let [_, rows, columns] = self.transformer.spec().patch;
        [columns, rows].map(|patch| (patch * self.autoencoder.spec().factor()) as u32)
    }

    /// The states of a text, `[1, MOST_TEXT_TOKENS, width]`.
    pub async fn encode_text(&self, tokens: &[u32]) -> Result<Tensor> {
        let states = self.text.forward(tokens).await?;
        let (_, count, width) = states.dims3()?;
        let rest = MOST_TEXT_TOKENS.saturating_sub(count);
        let zeros = Tensor::zeros((1, rest, width), states.dtype(), states.device())?;
        match rest {
            0 => Ok(states),
            _ => Tensor::cat(&[&states, &zeros], 1),
        }
    }

    /// The transformer's output for a latent under a text.
    pub async fn predict(
        &self,
        latent: &LatentVideo,
        time: FrameTimes,
        context: &Tensor,
        rope: &WanRope,
    ) -> Result<Vec<f64>> {
        let x = latent.tensor(&self.device)?.unsqueeze(0)?;
        let output = self.transformer.forward(&x, &[time], context, rope).await?;
        to_host(&output)
    }

    /// The latent of one image `[1, height, width, 3]` in -1 to 1, as the first frame: the mean of its distribution, so
    /// that it repeats.
    pub async fn encode_first(&self, image: &Tensor) -> Result<Vec<f64>> {
        let spec = self.autoencoder.spec();
        let mut stream = self.autoencoder.encoding();
        stream.push(image.clone());
        let Some(moments) = stream.next().await? else {
            candle_core::bail!("the encoder gave no latent for one frame");
        };
        let mean = moments.narrow(3, 0, spec.latent_channels)?;
        let values = to_host(&mean)?.into_iter().enumerate();
        let scaled = values.map(|(at, value)| {
            let channel = at % spec.latent_channels;
            (value - spec.mean[channel]) / spec.deviation[channel]
        });
        Ok(scaled.collect())
    }

    /// A decoder that waits for the frames of a latent.
    pub fn decoding(&self) -> FrameStream<'_> {
        self.autoencoder.decoding()
    }

    /// A frame of a latent as the decoder takes it.
    pub fn unscaled(&self, latent: &LatentVideo, frame: usize) -> Result<Tensor> {
        let spec = self.autoencoder.spec();
        let channels = spec.latent_channels;
        let [_, height, width] = latent.sizes;
        let count = height * width * channels;
        let values = latent
            .values
            .iter()
            .skip(frame * count)
            .take(count)
            .enumerate();
        let values = values.map(|(at, value)| {
            let channel = at % channels;
            (value * spec.deviation[channel] + spec.mean[channel]) as f32
        });
        Tensor::from_vec(values.collect(), (1, height, width, channels), &self.device)
    }
}

impl LatentVideo {
    fn tensor(&self, device: &Device) -> Result<Tensor> {
        let values: Vec<f32> = self.values.iter().map(|&value| value as f32).collect();
        let [frames, height, width] = self.sizes;
        let channels = values.len() / (frames * height * width).max(1);
        Tensor::from_vec(values, (frames, height, width, channels), device)
    }
}

fn to_host(tensor: &Tensor) -> Result<Vec<f64>> {
    let tensor = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
    let numbers = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(numbers.into_iter().map(f64::from).collect())
}
