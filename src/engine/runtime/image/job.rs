//! One drawing: an asynchronous function that stops after each block of its networks.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

use super::adapters::DrawingAdapters;
use super::networks::{DiffusionNetworks, EncodedPrompt, LatentMap};
use super::pixels::{image_tensor, mask_values, pixels};
use super::plan::{DrawingPlan, SamplingPass};
use super::preview::LatentColors;
use crate::networks::adapter::Pass;
use crate::runtime::Failure;
use crate::runtime::diffusion::{
    Evaluation, NoiseSource, SamplingRun, SamplingStep, keep_unmasked, noise, noised,
};
use crate::runtime::maker::{Advance, Output, PassReports, Pixels};

pub async fn draw(
    networks: Arc<DiffusionNetworks>,
    plan: DrawingPlan,
    news: PassReports,
) -> std::result::Result<(), Failure> {
    let adapters = DrawingAdapters::load(&networks, &plan.loras);
    let adapters = adapters.map_err(|error| Failure::BadRequest(error.to_string()))?;
    let image = draw_with(&networks, &plan, &adapters, &news).await?;
    news.put(Advance::Made(Output::Image(image)));
    Ok(())
}

async fn draw_with(
    networks: &DiffusionNetworks,
    plan: &DrawingPlan,
    adapters: &DrawingAdapters,
    news: &PassReports,
) -> Result<Pixels> {
    let original = Original::read(networks, plan).await?;
    let latent = sample(networks, plan, adapters, original.as_ref(), news).await?;
    let image = networks.decode(&latent, plan.edges).await?;
    let kept = original.as_ref().and_then(|original| {
        let mask = original.pixel_mask.as_deref()?;
        Some((mask, &original.image))
    });
    pixels(&image, kept)
}

/// The image to start from.
pub struct Original {
    /// `[height, width, 3]` of the whole image, on the host.
    image: Tensor,
    /// At the size of the first pass.
    latent: Vec<f64>,
    /// For each number of the latent.
    mask: Option<Vec<f64>>,
    pixel_mask: Option<Vec<f64>>,
}

impl Original {
    pub async fn read(networks: &DiffusionNetworks, plan: &DrawingPlan) -> Result<Option<Self>> {
        let (Some(source), Some(first)) = (&plan.source, plan.passes.first()) else {
            return Ok(None);
        };
        let size = [plan.width, plan.height];
        let image = image_tensor(source, size, &networks.device)?;
        let first_image = image_tensor(source, [first.width, first.height], &networks.device)?;
        let latent = networks.encode_image(&first_image, plan.edges).await?;
        let factor = networks.autoencoder.spec().factor();
        let size = size.map(|side| side as usize);
        let places = size.map(|side| side / factor);
        let (mut mask, mut pixel_mask) = (None, None);
        if let Some(pixels) = &plan.mask {
            let channels = networks.autoencoder.spec().latent_channels;
            let shares = mask_values(pixels, places)?.into_iter();
            let spread = shares.flat_map(|share| std::iter::repeat_n(share, channels));
            // A network that is made for masks blends by itself.
            mask = Some(spread.collect()).filter(|_| !networks.paints());
            pixel_mask = Some(mask_values(pixels, size)?);
        }
        Ok(Some(Self {
            image: image.squeeze(0)?.to_device(&Device::Cpu)?,
            latent,
            mask,
            pixel_mask,
        }))
    }
}

/// The further channels of a network that paints inside a mask: the mask, and the latent of the image outside of it.
/// Without a mask everything is painted.
async fn painting_channels(
    networks: &DiffusionNetworks,
    plan: &DrawingPlan,
    original: Option<&Original>,
    pass: &SamplingPass,
) -> Result<Option<LatentMap>> {
    if !networks.paints() {
        return Ok(None);
    }
    let spec = networks.autoencoder.spec();
    let size = [pass.width, pass.height].map(|side| side as usize);
    let [width, height] = size.map(|side| side / spec.factor());
    let kept = original.and_then(|it| Some((&it.image, it.pixel_mask.as_ref()?)));
    let (shares, mut values) = match kept {
        Some((image, mask)) => (mask.clone(), image.flatten_all()?.to_vec1::<f32>()?),
        None => (
            vec![1.0; size[0] * size[1]],
            vec![0.0; 3 * size[0] * size[1]],
        ),
    };
    // The painted part is gray in the image around it.
    for (pixel, share) in values.chunks_exact_mut(3).zip(&shares) {
        if *share >= 0.5 {
            pixel.fill(0.0);
        }
    }
    let image = Tensor::from_vec(values, (1, size[1], size[0], 3), &Device::Cpu)?;
    let image = image.to_device(&networks.device)?;
    let latent = networks.encode_image(&image, plan.edges).await?;
    let channels = spec.latent_channels;
    let rows = latent.chunks_exact(channels).enumerate();
    let values = rows.flat_map(|(place, rest)| {
        let (y, x) = (place / width * spec.factor(), place % width * spec.factor());
        let share = shares[y * size[0] + x];
        let mask = f64::from(u8::from(share >= 0.5));
        std::iter::once(mask).chain(rest.to_vec())
    });
    Ok(Some(LatentMap {
        values: values.collect(),
        height,
        width,
    }))
}

/// The latent that a plan leads to.
pub async fn sample(
    networks: &DiffusionNetworks,
    plan: &DrawingPlan,
    adapters: &DrawingAdapters,
    original: Option<&Original>,
    news: &PassReports,
) -> Result<LatentMap> {
    let texts = [Some(&plan.prompt), plan.negative.as_ref()];
    let mut prompts = Vec::new();
    for windows in texts.into_iter().flatten() {
        let encoded = networks.encode_prompt(windows, plan.skipped_layers, adapters);
        prompts.push(encoded.await?);
    }
    let spec = networks.autoencoder.spec();
    let (mut latent, mut steps_before): (Option<LatentMap>, u32) = (None, 0);
    for pass in &plan.passes {
        let shape = LatentShape {
            height: pass.height as usize / spec.factor(),
            width: pass.width as usize / spec.factor(),
            channels: spec.latent_channels,
        };
        let start = match (&latent, original) {
            (Some(before), _) => before.nearest(shape.height, shape.width),
            (None, Some(original)) => shape.map(original.latent.clone()),
            (None, None) => shape.map(vec![0.0; shape.count()]),
        };
        let drawing = PassDrawing {
            networks,
            plan,
            pass,
            adapters,
            prompts: &prompts,
            shape,
            mask: original.and_then(|original| original.mask.as_deref()),
            extra: painting_channels(networks, plan, original, pass).await?,
            steps_before,
        };
        latent = Some(drawing.sample(start.values, news).await?);
        steps_before += pass.steps();
    }
    latent.ok_or_else(|| candle_core::Error::Msg("a drawing without a pass".to_owned()))
}

/// One pass of a drawing.
struct PassDrawing<'a> {
    networks: &'a DiffusionNetworks,
    plan: &'a DrawingPlan,
    pass: &'a SamplingPass,
    adapters: &'a DrawingAdapters,
    prompts: &'a [EncodedPrompt],
    shape: LatentShape,
    mask: Option<&'a [f64]>,
    /// Further channels of the network's input.
    extra: Option<LatentMap>,
    /// Steps of earlier passes.
    steps_before: u32,
}

impl PassDrawing<'_> {
    async fn sample(&self, latent: Vec<f64>, news: &PassReports) -> Result<LatentMap> {
        let (networks, plan, shape) = (self.networks, self.plan, self.shape);
        let sigmas = &self.pass.sigmas;
        let Some(&first) = sigmas.first() else {
            return Ok(shape.map(latent));
        };
        let start = shape.start_noise(plan.seed, plan.index);
        let x = noised(&latent, &start, first, networks.table.highest());
        let noise = shape.later_noise(plan.seed, plan.index);
        let mut run = SamplingRun::start(plan.sampler, x, sigmas.clone(), noise);
        let (mut answer, mut reported) = (None, 0);
        loop {
            let last = answer.clone();
            let (at, evaluation) = match run.advance(answer.take()) {
                SamplingStep::Evaluate(evaluation) => {
                    (steps_before(sigmas, evaluation.sigma), Ok(evaluation))
                }
                SamplingStep::Done(x) => (self.pass.steps(), Err(x)),
            };
            if at > reported {
                reported = at;
                let preview = match (&last, plan.wants_previews) {
                    (Some(latent), true) => {
                        let latent = shape.map(latent.clone());
                        Some(colors(networks).await?.preview(&latent)?)
                    }
                    _ => None,
                };
                news.put(Advance::Step {
                    at: self.steps_before + at,
                    of: plan.steps(),
                    preview,
                });
            }
            let Evaluation { mut x, sigma } = match evaluation {
                Ok(evaluation) => evaluation,
                Err(x) => return Ok(shape.map(x)),
            };
            if let Some(mask) = self.mask {
                let noisy = latent
                    .iter()
                    .zip(&start)
                    .map(|(it, noise)| it + sigma * noise);
                keep_unmasked(&mut x, &noisy.collect::<Vec<_>>(), mask);
            }
            let mut denoised = self.denoise(&shape.map(x), sigma).await?;
            if let Some(mask) = self.mask {
                keep_unmasked(&mut denoised, &latent, mask);
            }
            answer = Some(denoised);
        }
    }

    /// The clean image that the network expects, led away from the negative prompt.
    async fn denoise(&self, x: &LatentMap, sigma: f64) -> Result<Vec<f64>> {
        let networks = self.networks;
        let scale = networks.prediction.input_scale(sigma);
        let timestep = networks.table.timestep(sigma);
        let size = [self.pass.width, self.pass.height];
        let input = x.map(|value| value * scale);
        let pass = Pass {
            edges: self.plan.edges,
            adaptations: &self.adapters.unet,
        };
        let input = (&input, self.extra.as_ref());
        let outputs = networks.predict(input, timestep, self.prompts, size, pass);
        let outputs = outputs.await?;
        let output = match outputs.as_slice() {
            [positive, negative] => {
                let scale = f64::from(self.plan.cfg_scale);
                let pairs = positive.iter().zip(negative);
                pairs
                    .map(|(with, without)| without + scale * (with - without))
                    .collect()
            }
            _ => outputs.concat(),
        };
        Ok(networks.prediction.denoised(&x.values, &output, sigma))
    }
}

/// Steps that are complete when the network is asked at a level.
fn steps_before(sigmas: &[f64], sigma: f64) -> u32 {
    let levels = sigmas.iter();
    let passed = levels
        .filter(|&&level| sigma <= level * (1.0 + 1e-9))
        .count();
    passed.saturating_sub(1) as u32
}

async fn colors(networks: &DiffusionNetworks) -> Result<&LatentColors> {
    if let Some(colors) = networks.colors.get() {
        return Ok(colors);
    }
    let found = LatentColors::find(networks).await?;
    Ok(networks.colors.get_or_init(|| found))
}

#[derive(Debug, Clone, Copy)]
struct LatentShape {
    height: usize,
    width: usize,
    channels: usize,
}

impl LatentShape {
    fn count(self) -> usize {
        self.height * self.width * self.channels
    }

    fn map(self, values: Vec<f64>) -> LatentMap {
        LatentMap {
            values,
            height: self.height,
            width: self.width,
        }
    }

    /// The noise of an image of a series: a series is one stream of numbers, as other programs draw a batch.
    fn start_noise(self, seed: u64, index: u32) -> Vec<f64> {
        let (index, count) = (index as usize, self.count());
        let stream = noise::start(seed, count * (index + 1));
        let numbers: Vec<f64> = stream[count * index..]
            .iter()
            .map(|&it| it.into())
            .collect();
        self.channels_last(&numbers)
    }

    fn later_noise(self, seed: u64, index: u32) -> NoiseSource {
        let (mut draw, count) = (0, self.count());
        let first = index * count as u32;
        Box::new(move || {
            let numbers = noise::counted(seed, draw, first, count);
            draw += 1;
            self.channels_last(&numbers)
        })
    }

    /// Numbers are drawn for one channel after the other.
    fn channels_last(self, numbers: &[f64]) -> Vec<f64> {
        let area = self.height * self.width;
        let places =
            (0..area).flat_map(|place| (0..self.channels).map(move |it| it * area + place));
        places.map(|at| numbers[at]).collect()
    }
}
