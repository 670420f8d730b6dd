//! One drawing: an asynchronous function that stops after each block of its networks.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use candle_core::{Device, Result, Tensor};

use super::networks::{DiffusionNetworks, EncodedPrompt, LatentMap};
use super::pixels::{image_tensor, mask_values, pixels};
use super::plan::DrawingPlan;
use super::preview::LatentColors;
use crate::runtime::diffusion::{
    Evaluation, NoiseSource, SamplingRun, SamplingStep, keep_unmasked, noise, noised,
};
use crate::runtime::maker::{Advance, Making, Output, Pixels};
use crate::runtime::{Failure, model};

/// A drawing on its way.
pub struct DrawingJob {
    drawing: Option<Pin<Box<dyn Future<Output = Result<Pixels>> + Send>>>,
    progress: DrawingProgress,
}

/// The last step that was not delivered yet.
#[derive(Clone, Default)]
pub struct DrawingProgress(Arc<Mutex<Option<Advance>>>);

impl DrawingJob {
    pub fn new(networks: Arc<DiffusionNetworks>, plan: DrawingPlan) -> Self {
        let progress = DrawingProgress::default();
        let drawing = Box::pin(draw(networks, plan, progress.clone()));
        Self {
            drawing: Some(drawing),
            progress,
        }
    }
}

impl Making for DrawingJob {
    fn advance(&mut self) -> std::result::Result<Advance, Failure> {
        let Some(drawing) = &mut self.drawing else {
            return Ok(Advance::Done);
        };
        let mut context = Context::from_waker(Waker::noop());
        match drawing.as_mut().poll(&mut context) {
            Poll::Pending => Ok(self.progress.take().unwrap_or(Advance::Busy)),
            Poll::Ready(drawn) => {
                self.drawing = None;
                let pixels = drawn.map_err(|error| Failure::internal(model::plain(&error)))?;
                Ok(Advance::Made(Output::Image(pixels)))
            }
        }
    }
}

impl DrawingProgress {
    fn take(&self) -> Option<Advance> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }

    fn put(&self, at: u32, of: u32, preview: Option<Pixels>) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Advance::Step { at, of, preview });
    }
}

async fn draw(
    networks: Arc<DiffusionNetworks>,
    plan: DrawingPlan,
    progress: DrawingProgress,
) -> Result<Pixels> {
    let original = Original::read(&networks, &plan).await?;
    let latent = sample(&networks, &plan, original.as_ref(), &progress).await?;
    let image = networks.decode(&latent).await?;
    let kept = original.as_ref().and_then(|original| {
        let mask = original.pixel_mask.as_deref()?;
        Some((mask, &original.image))
    });
    pixels(&image, kept)
}

/// The image to start from.
pub struct Original {
    /// `[height, width, 3]`, on the host.
    image: Tensor,
    latent: Vec<f64>,
    /// For each number of the latent.
    mask: Option<Vec<f64>>,
    pixel_mask: Option<Vec<f64>>,
}

impl Original {
    pub async fn read(networks: &DiffusionNetworks, plan: &DrawingPlan) -> Result<Option<Self>> {
        let Some(source) = &plan.source else {
            return Ok(None);
        };
        let size = [plan.width, plan.height];
        let image = image_tensor(source, size, &networks.device)?;
        let latent = networks.encode_image(&image).await?;
        let factor = networks.autoencoder.spec().factor();
        let size = size.map(|side| side as usize);
        let places = size.map(|side| side / factor);
        let channels = latent.len() / (places[0] * places[1]);
        let (mut mask, mut pixel_mask) = (None, None);
        if let Some(pixels) = &plan.mask {
            let shares = mask_values(pixels, places)?.into_iter();
            let spread = shares.flat_map(|share| std::iter::repeat_n(share, channels));
            mask = Some(spread.collect());
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

/// The latent that a plan leads to.
pub async fn sample(
    networks: &DiffusionNetworks,
    plan: &DrawingPlan,
    original: Option<&Original>,
    progress: &DrawingProgress,
) -> Result<LatentMap> {
    let factor = networks.autoencoder.spec().factor();
    let [width, height] = [plan.width, plan.height].map(|side| side as usize / factor);
    let channels = networks.autoencoder.spec().latent_channels;
    let shape = LatentShape {
        height,
        width,
        channels,
    };
    let latent = match original {
        Some(original) => original.latent.clone(),
        None => vec![0.0; shape.count()],
    };
    let Some(&first) = plan.sigmas.first() else {
        return Ok(shape.map(latent));
    };
    let mut prompts = vec![
        networks
            .encode_prompt(&plan.prompt, plan.skipped_layers)
            .await?,
    ];
    if let Some(negative) = &plan.negative {
        prompts.push(
            networks
                .encode_prompt(negative, plan.skipped_layers)
                .await?,
        );
    }
    let start = shape.start_noise(plan.seed, plan.index);
    let x = noised(&latent, &start, first, networks.table.highest());
    let noise = shape.later_noise(plan.seed, plan.index);
    let mut run = SamplingRun::start(plan.sampler, x, plan.sigmas.clone(), noise);
    let mask = original.and_then(|original| original.mask.as_deref());
    let (mut answer, mut reported) = (None, 0);
    loop {
        let last = answer.clone();
        let of = plan.steps();
        let (at, evaluation) = match run.advance(answer.take()) {
            SamplingStep::Evaluate(evaluation) => {
                (steps_before(plan, evaluation.sigma), Ok(evaluation))
            }
            SamplingStep::Done(x) => (of, Err(x)),
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
            progress.put(at, of, preview);
        }
        let Evaluation { mut x, sigma } = match evaluation {
            Ok(evaluation) => evaluation,
            Err(x) => return Ok(shape.map(x)),
        };
        if let Some(mask) = mask {
            let noisy = latent
                .iter()
                .zip(&start)
                .map(|(it, noise)| it + sigma * noise);
            keep_unmasked(&mut x, &noisy.collect::<Vec<_>>(), mask);
        }
        let mut denoised = denoise(networks, plan, &prompts, &shape.map(x), sigma).await?;
        if let Some(mask) = mask {
            keep_unmasked(&mut denoised, &latent, mask);
        }
        answer = Some(denoised);
    }
}

/// The clean image that the network expects, led away from the negative prompt.
async fn denoise(
    networks: &DiffusionNetworks,
    plan: &DrawingPlan,
    prompts: &[EncodedPrompt],
    x: &LatentMap,
    sigma: f64,
) -> Result<Vec<f64>> {
    let scale = networks.prediction.input_scale(sigma);
    let timestep = networks.table.timestep(sigma);
    let size = [plan.width, plan.height];
    let input = x.map(|value| value * scale);
    let outputs = networks.predict(&input, timestep, prompts, size).await?;
    let output = match outputs.as_slice() {
        [positive, negative] => {
            let scale = f64::from(plan.cfg_scale);
            let pairs = positive.iter().zip(negative);
            pairs
                .map(|(with, without)| without + scale * (with - without))
                .collect()
        }
        _ => outputs.concat(),
    };
    Ok(networks.prediction.denoised(&x.values, &output, sigma))
}

/// Steps that are complete when the network is asked at a level.
fn steps_before(plan: &DrawingPlan, sigma: f64) -> u32 {
    let levels = plan.sigmas.iter();
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
