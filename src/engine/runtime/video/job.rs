//! One video: an asynchronous function that stops after each block of its networks.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

use super::networks::{LatentVideo, VideoNetworks};
use super::plan::VideoPlan;
use crate::networks::video::{FrameTimes, WanRope};
use crate::runtime::diffusion::{Evaluation, SamplingStep, noise};
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
    let steps = VideoRun::begin(networks, plan).await?;
    let latent = |values: Vec<f64>| LatentVideo {
        values,
        sizes: plan.latent,
    };
    let channels = networks.autoencoder.spec().latent_channels;
    let start = start_noise(plan, channels);
    let mut run = plan.levels.start(&start);
    let (mut answer, mut step) = (None, 0);
    let mut preview = None;
    loop {
        if step > 0 {
            news.put(Advance::Step {
                at: step as u32,
                of: plan.levels.steps() as u32,
                preview: preview.take(),
            });
        }
        let Evaluation { x, .. } = match run.advance(answer.take()) {
            SamplingStep::Evaluate(evaluation) if step < plan.levels.steps() => evaluation,
            SamplingStep::Evaluate(_) => candle_core::bail!("a run has more steps than levels"),
            SamplingStep::Done(mut values) => {
                steps.keep_first(&mut values);
                return Ok(latent(values));
            }
        };
        let share = plan.levels.share(step);
        let noisy = x.into_iter().map(|value| value * share).collect();
        let clean = steps.denoise(latent(noisy), step).await?;
        if plan.wants_previews {
            let first = decode(networks, &clean, 1).await?;
            preview = first.into_iter().next();
        }
        answer = Some(clean.values);
        step += 1;
    }
}

/// Frames of a latent, as many as are asked for.
pub async fn decode(
    networks: &VideoNetworks,
    latent: &LatentVideo,
    wanted: usize,
) -> Result<Vec<Pixels>> {
    let mut frames = Vec::new();
    decode_into(networks, latent, wanted, |frame| frames.push(frame)).await?;
    Ok(frames)
}

/// The same one by one, as they are decoded. Memory does not depend on their number.
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

/// What all steps of one video share.
struct VideoRun<'a> {
    networks: &'a VideoNetworks,
    plan: &'a VideoPlan,
    prompt: Tensor,
    negative: Option<Tensor>,
    rope: WanRope,
    /// The latent of the first frame, where it is given.
    first: Option<Vec<f64>>,
}

impl<'a> VideoRun<'a> {
    async fn begin(networks: &'a VideoNetworks, plan: &'a VideoPlan) -> Result<Self> {
        let prompt = networks.encode_text(&plan.prompt).await?;
        let negative = match &plan.negative {
            Some(tokens) => Some(networks.encode_text(tokens).await?),
            None => None,
        };
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
            prompt,
            negative,
            rope: networks.transformer.rope(plan.latent, &networks.device)?,
            first,
        })
    }

    /// Puts the given first frame into a latent.
    fn keep_first(&self, values: &mut [f64]) {
        if let Some(first) = &self.first {
            for (value, first) in values.iter_mut().zip(first) {
                *value = *first;
            }
        }
    }

    /// The clean latent that the network expects below the noise of a step, led away from the negative prompt.
    async fn denoise(&self, mut x: LatentVideo, step: usize) -> Result<LatentVideo> {
        let (networks, plan) = (self.networks, self.plan);
        self.keep_first(&mut x.values);
        let time = FrameTimes {
            all: plan.levels.timesteps[step],
            is_first_clean: self.first.is_some(),
        };
        let predict = |text| networks.predict(&x, time, text, &self.rope);
        let mut flow = predict(&self.prompt).await?;
        if let Some(negative) = &self.negative {
            let without = predict(negative).await?;
            for (with, without) in flow.iter_mut().zip(without) {
                *with = without + plan.cfg_scale * (*with - without);
            }
        }
        let level = plan.levels.levels[step];
        let values = x.values.iter().zip(&flow);
        let mut values: Vec<f64> = values.map(|(x, flow)| x - level * flow).collect();
        self.keep_first(&mut values);
        Ok(LatentVideo { values, ..x })
    }
}

/// The noise of a video of a series: a series is one stream of numbers, as other programs draw a batch. Numbers are
/// drawn for one channel after the other.
fn start_noise(plan: &VideoPlan, channels: usize) -> Vec<f64> {
    let places: usize = plan.latent.iter().product();
    let (index, count) = (plan.index as usize, places * channels);
    let stream = noise::start(plan.seed, count * (index + 1));
    let own = &stream[count * index..];
    let at =
        (0..places).flat_map(|place| (0..channels).map(move |channel| channel * places + place));
    at.map(|at| f64::from(own[at])).collect()
}
