//! Generates one song: an asynchronous function that yields after each block of its networks.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};

use super::guidance::ProjectedGuidance;
use super::networks::MusicNetworks;
use super::plan::MusicPlan;
use crate::networks::sound::TILE_FRAMES;
use crate::runtime::diffusion::noise;
use crate::runtime::maker::{Advance, Output, PassReports, Pcm};

/// The loudest sample of a song: -1 dB below the largest that files keep.
const PEAK: f32 = 0.891_250_9;
/// Quieter songs are not made louder.
const LEAST_PEAK: f32 = 1e-6;

pub async fn compose(
    networks: Arc<MusicNetworks>,
    plan: MusicPlan,
    news: PassReports,
) -> Result<()> {
    let latents = sample(&networks, &plan, &news).await?;
    let samples = decode(&networks, &latents, plan.frames).await?;
    let spec = networks.autoencoder.spec();
    let pcm = Pcm {
        rate: spec.rate,
        channels: spec.channels as u16,
        samples: leveled(samples),
    };
    if let Some(at) = pcm.flaw() {
        candle_core::bail!("the network played a sample that is no number, at {at}");
    }
    news.put(Advance::Made(Output::Sound(pcm)));
    Ok(())
}

/// The latents that a plan leads to, one frame after the other.
pub async fn sample(
    networks: &MusicNetworks,
    plan: &MusicPlan,
    news: &PassReports,
) -> Result<Vec<f64>> {
    let context = networks.context(&plan.description, &plan.lyrics).await?;
    let source = networks.source(plan.frames)?;
    let numbers = networks.autoencoder.spec().latent_channels;
    let mut guided = match plan.cfg_scale {
        Some(scale) => {
            let nothing = networks.conditions.nothing();
            let without = networks.transformer.context(nothing).await?;
            Some((without, ProjectedGuidance::new(scale, numbers)))
        }
        None => None,
    };
    let mut latents = noise::of_series(plan.seed, plan.index, plan.frames * numbers);
    let steps = plan.levels.iter().zip(plan.levels.iter().skip(1));
    for (at, (level, next)) in (1..).zip(steps) {
        let x = tensor(&latents, (plan.frames, numbers), &networks.device)?;
        let times = [*level as f32];
        let network = &networks.transformer;
        let mut flow = to_host(&network.forward(&x, &source, &times, &context).await?)?;
        if let Some((without, guidance)) = &mut guided {
            let without = network.forward(&x, &source, &times, without).await?;
            guidance.lead(&mut flow, &to_host(&without)?);
        }
        for (value, flow) in latents.iter_mut().zip(flow) {
            *value += (next - level) * f64::from(flow);
        }
        news.put(Advance::Step {
            at,
            of: plan.steps() as u32,
            preview: None,
        });
    }
    Ok(latents)
}

/// Samples of latents, channels interleaved.
pub async fn decode(networks: &MusicNetworks, latents: &[f64], frames: usize) -> Result<Vec<f32>> {
    let spec = networks.autoencoder.spec();
    let x = tensor(latents, (frames, spec.latent_channels), &networks.device)?;
    let mut samples = Vec::with_capacity(frames * spec.hop() * spec.channels);
    for tile in networks.autoencoder.tiles(frames, TILE_FRAMES) {
        samples.extend(to_host(&networks.autoencoder.decode(&x, tile).await?)?);
    }
    Ok(samples)
}

/// Scales the loudest sample to [`PEAK`].
pub fn leveled(mut samples: Vec<f32>) -> Vec<f32> {
    let loudest = samples
        .iter()
        .fold(0.0, |loudest: f32, sample| loudest.max(sample.abs()));
    let factor = PEAK / loudest.max(LEAST_PEAK);
    for sample in &mut samples {
        *sample *= factor;
    }
    samples
}

fn tensor(values: &[f64], (frames, numbers): (usize, usize), device: &Device) -> Result<Tensor> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Tensor::from_vec(values, (1, frames, numbers), device)
}

fn to_host(tensor: &Tensor) -> Result<Vec<f32>> {
    let tensor = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
    tensor.flatten_all()?.to_vec1()
}
