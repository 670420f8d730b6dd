//! Generates one video: an asynchronous function that yields after each block of its networks.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

use super::networks::{LatentVideo, VideoNetworks};
use super::plan::VideoPlan;
use crate::networks::video::{FrameTimes, WanRope};
use crate::runtime::diffusion::{Denoiser, DenoisingRun, Guidance, NetworkLevel, noise};
use crate::runtime::image::pixels::{image_tensor, pixels};
use crate::runtime::maker::{Advance, Output, PassReports, Pixels};

pub async fn film(networks: Arc<VideoNetworks>, plan: VideoPlan, news: PassReports) -> Result<()> {
    let latent = sample(&networks, &plan, &news).await?;
    let rate = plan.rate;
    let deliver = |frame| {
        let frames = vec![frame];
        news.put(Advance::Made(Output::Frames { frames, rate }));
    };
    decode_into(&networks, &latent, plan.frames as usize, deliver).await
}

/// The latent that a plan leads to.
pub async fn sample(
    networks: &VideoNetworks,
    plan: &VideoPlan,
    news: &PassReports,
) -> Result<LatentVideo> {
    let video = VideoRun::begin(networks, plan).await?;
    let latent = |values: Vec<f64>| LatentVideo {
        values,
        sizes: plan.latent,
    };
    let guidance = Guidance {
        prompts: &video.prompts,
        scale: plan.cfg_scale,
    };
    let channels = networks.autoencoder.spec().latent_channels;
    let run = plan.levels.start(&start_noise(plan, channels));
    let mut run = DenoisingRun::start(&video, guidance, run, &plan.levels.sigmas());
    while let Some(step) = run.step().await? {
        let preview = match plan.wants_previews {
            true => decode(networks, &latent(step.clean), 1).await?.pop(),
            false => None,
        };
        news.put(Advance::Step {
            at: step.at,
            of: plan.levels.steps() as u32,
            preview,
        });
    }
    let mut values = run.finish()?;
    video.keep_clean(&mut values);
    Ok(latent(values))
}

/// The requested number of frames of a latent.
pub async fn decode(
    networks: &VideoNetworks,
    latent: &LatentVideo,
    wanted: usize,
) -> Result<Vec<Pixels>> {
    let mut frames = Vec::new();
    decode_into(networks, latent, wanted, |frame| frames.push(frame)).await?;
    Ok(frames)
}

/// The same frame by frame during decoding. Memory does not depend on their number.
async fn decode_into(
    networks: &VideoNetworks,
    latent: &LatentVideo,
    wanted: usize,
    mut deliver: impl FnMut(Pixels),
) -> Result<()> {
    let mut count = 0;
    let mut stream = networks.decoding();
    for at in 0..latent.sizes[0] {
        stream.push(networks.unscaled(latent, at)?);
        while let Some(frame) = stream.next().await? {
            let frame = frame.squeeze(0)?.to_device(&Device::Cpu)?;
            deliver(pixels(&frame, None)?);
            count += 1;
            if count == wanted {
                return Ok(());
            }
        }
    }
    candle_core::bail!("the decoder gave {count} frames of {wanted}")
}

/// The transformer and all that the steps of one video share.
struct VideoRun<'a> {
    networks: &'a VideoNetworks,
    plan: &'a VideoPlan,
    prompts: Vec<Tensor>,
    rope: WanRope,
    /// The latent of the first frame, where it is given.
    first: Option<Vec<f64>>,
}

impl<'a> VideoRun<'a> {
    async fn begin(networks: &'a VideoNetworks, plan: &'a VideoPlan) -> Result<Self> {
        let mut prompts = vec![networks.encode_text(&plan.prompt).await?];
        if let Some(tokens) = &plan.negative {
            prompts.push(networks.encode_text(tokens).await?);
        }
        let first = match &plan.source {
            Some(source) => {
                let size = [plan.width, plan.height];
                let image = image_tensor(source, size, &networks.device)?;
                Some(networks.encode_first(&image).await?)
            }
            None => None,
        };
        Ok(Self {
            networks,
            plan,
            prompts,
            rope: networks.transformer.rope(plan.latent, &networks.device)?,
            first,
        })
    }
}

impl Denoiser for VideoRun<'_> {
    type Prompt = Tensor;

    fn level(&self, sigma: f64) -> NetworkLevel {
        self.plan.levels.level(sigma)
    }

    async fn predict(
        &self,
        mut input: Vec<f64>,
        timestep: f32,
        prompts: &[Tensor],
    ) -> Result<Vec<Vec<f64>>> {
        self.keep_clean(&mut input);
        let latent = LatentVideo {
            values: input,
            sizes: self.plan.latent,
        };
        let time = FrameTimes {
            all: timestep,
            is_first_clean: self.first.is_some(),
        };
        let mut flows = Vec::with_capacity(prompts.len());
        for text in prompts {
            let flow = self.networks.predict(&latent, time, text, &self.rope);
            flows.push(flow.await?);
        }
        Ok(flows)
    }

    /// The given first frame. Free of noise at all levels.
    fn keep_clean(&self, latent: &mut [f64]) {
        if let Some(first) = &self.first {
            for (value, first) in latent.iter_mut().zip(first) {
                *value = *first;
            }
        }
    }
}

/// The noise of a video of a series.
fn start_noise(plan: &VideoPlan, channels: usize) -> Vec<f64> {
    let count = plan.latent.iter().product::<usize>() * channels;
    noise::channels_last(&noise::of_series(plan.seed, plan.index, count), channels)
}
