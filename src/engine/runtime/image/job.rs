//! Generates one image: an asynchronous function that yields after each block of its networks.

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
    Denoiser, DenoisingRun, Guidance, NetworkLevel, NoiseSource, SamplingRun, keep_unmasked, noise,
    noised,
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
    /// Per number of the latent.
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
            // An inpainting network blends the mask itself.
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

/// A sampling pass of one image.
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

/// A pass with its start.
struct StartedPass<'a> {
    pass: &'a PassDrawing<'a>,
    latent: &'a [f64],
    noise: &'a [f64],
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
        let run = SamplingRun::start(plan.sampler, x, sigmas.clone(), noise);
        let started = StartedPass {
            pass: self,
            latent: &latent,
            noise: &start,
        };
        let guidance = Guidance {
            prompts: self.prompts,
            scale: f64::from(plan.cfg_scale),
        };
        let mut run = DenoisingRun::start(&started, guidance, run, sigmas);
        while let Some(step) = run.step().await? {
            let preview = match plan.wants_previews {
                true => Some(colors(networks).await?.preview(&shape.map(step.clean))?),
                false => None,
            };
            news.put(Advance::Step {
                at: self.steps_before + step.at,
                of: plan.steps(),
                preview,
            });
        }
        Ok(shape.map(run.finish()?))
    }
}

impl Denoiser for StartedPass<'_> {
    type Prompt = EncodedPrompt;

    fn level(&self, sigma: f64) -> NetworkLevel {
        let networks = self.pass.networks;
        networks.prediction.level(&networks.table, sigma)
    }

    async fn predict(
        &self,
        input: Vec<f64>,
        timestep: f32,
        prompts: &[EncodedPrompt],
    ) -> Result<Vec<Vec<f64>>> {
        let drawing = self.pass;
        let size = [drawing.pass.width, drawing.pass.height];
        let pass = Pass {
            edges: drawing.plan.edges,
            adaptations: &drawing.adapters.unet,
        };
        let input = (&drawing.shape.map(input), drawing.extra.as_ref());
        let outputs = drawing
            .networks
            .predict(input, timestep, prompts, size, pass);
        outputs.await
    }

    /// The original outside of the mask.
    fn keep_noisy(&self, latent: &mut [f64], sigma: f64) {
        if let Some(mask) = self.pass.mask {
            let pairs = self.latent.iter().zip(self.noise);
            let noisy: Vec<f64> = pairs.map(|(it, noise)| it + sigma * noise).collect();
            keep_unmasked(latent, &noisy, mask);
        }
    }

    fn keep_clean(&self, latent: &mut [f64]) {
        if let Some(mask) = self.pass.mask {
            keep_unmasked(latent, self.latent, mask);
        }
    }
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

    /// The noise of an image of a series.
    fn start_noise(self, seed: u64, index: u32) -> Vec<f64> {
        let numbers = noise::of_series(seed, index, self.count());
        noise::channels_last(&numbers, self.channels)
    }

    fn later_noise(self, seed: u64, index: u32) -> NoiseSource {
        let (mut draw, count) = (0, self.count());
        let first = index * count as u32;
        Box::new(move || {
            let numbers = noise::counted(seed, draw, first, count);
            draw += 1;
            noise::channels_last(&numbers, self.channels)
        })
    }
}
