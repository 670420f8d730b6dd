//! A network that removes noise, as samplers see it, and the run of a sampler over it.

use candle_core::Result;

use super::sampler::{Evaluation, SamplingRun, SamplingStep};

/// A network that predicts the clean latent of a noisy one, by a U-Net or a transformer.
///
/// Latents follow the samplers' convention: the clean one plus `sigma` times noise.
pub trait Denoiser {
    /// An encoded prompt.
    type Prompt: Sync;

    fn level(&self, sigma: f64) -> NetworkLevel;

    /// The output for one input under each of the prompts: noise, velocity or flow.
    fn predict(
        &self,
        input: Vec<f64>,
        timestep: f32,
        prompts: &[Self::Prompt],
    ) -> impl Future<Output = Result<Vec<Vec<f64>>>> + Send;

    /// Puts parts of the latent that are given into one with noise.
    fn keep_noisy(&self, _latent: &mut [f64], _sigma: f64) {}

    /// Puts them into a clean one.
    fn keep_clean(&self, _latent: &mut [f64]) {}
}

/// A noise level in the terms of a network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NetworkLevel {
    pub timestep: f32,
    /// The factor of the latent in the network's input.
    pub input_scale: f64,
    /// Factors of the latent and of the network's output in the clean latent.
    pub clean: [f64; 2],
}

/// Prompts, and how much the first counts against the second.
pub struct Guidance<'a, P> {
    /// The prompt, and optionally the negative prompt.
    pub prompts: &'a [P],
    pub scale: f64,
}

/// A sampler and a network on their way from noise to a clean latent.
pub struct DenoisingRun<'a, D: Denoiser> {
    denoiser: &'a D,
    guidance: Guidance<'a, D::Prompt>,
    sigmas: Vec<f64>,
    run: SamplingRun,
    next: SamplingStep,
    reported: u32,
}

/// A step that is complete.
#[derive(Debug, Clone, PartialEq)]
pub struct DenoisedStep {
    /// Counts from 1.
    pub at: u32,
    /// The clean latent that the network expects below the noise.
    pub clean: Vec<f64>,
}

impl<'a, D: Denoiser> DenoisingRun<'a, D> {
    /// `run` visits `sigmas`, and levels between them.
    pub fn start(
        denoiser: &'a D,
        guidance: Guidance<'a, D::Prompt>,
        mut run: SamplingRun,
        sigmas: &[f64],
    ) -> Self {
        Self {
            next: run.advance(None),
            sigmas: sigmas.to_vec(),
            reported: 0,
            denoiser,
            guidance,
            run,
        }
    }

    /// The next step; `None` at the end.
    pub async fn step(&mut self) -> Result<Option<DenoisedStep>> {
        while let SamplingStep::Evaluate(Evaluation { x, sigma }) = &mut self.next {
            let (x, sigma) = (std::mem::take(x), *sigma);
            let clean = self.guidance.denoise(self.denoiser, x, sigma).await?;
            self.next = self.run.advance(Some(clean.clone()));
            let at = match &self.next {
                SamplingStep::Evaluate(next) => steps_before(&self.sigmas, next.sigma),
                SamplingStep::Done(_) => self.sigmas.len().saturating_sub(1) as u32,
            };
            if at > self.reported {
                self.reported = at;
                return Ok(Some(DenoisedStep { at, clean }));
            }
        }
        Ok(None)
    }

    /// The latent after the last step.
    pub fn finish(self) -> Result<Vec<f64>> {
        match self.next {
            SamplingStep::Done(latent) => Ok(latent),
            SamplingStep::Evaluate(_) => candle_core::bail!("a run of a sampler is not complete"),
        }
    }
}

impl<P> Guidance<'_, P> {
    /// The clean latent that a network expects below the noise.
    async fn denoise<D: Denoiser<Prompt = P>>(
        &self,
        denoiser: &D,
        mut x: Vec<f64>,
        sigma: f64,
    ) -> Result<Vec<f64>> {
        denoiser.keep_noisy(&mut x, sigma);
        let level = denoiser.level(sigma);
        let input = x.iter().map(|value| value * level.input_scale).collect();
        let outputs = denoiser.predict(input, level.timestep, self.prompts);
        let output = guided(outputs.await?, self.scale);
        let [of_x, of_output] = level.clean;
        for (x, output) in x.iter_mut().zip(output) {
            *x = of_x * *x + of_output * output;
        }
        denoiser.keep_clean(&mut x);
        Ok(x)
    }
}

/// The output under the prompt, led away from that under the negative one.
fn guided(outputs: Vec<Vec<f64>>, scale: f64) -> Vec<f64> {
    match <[_; 2]>::try_from(outputs) {
        Ok([mut with, without]) => {
            for (with, without) in with.iter_mut().zip(without) {
                *with = without + scale * (*with - without);
            }
            with
        }
        Err(outputs) => outputs.concat(),
    }
}

/// Number of steps that are complete at a noise level.
fn steps_before(sigmas: &[f64], sigma: f64) -> u32 {
    let levels = sigmas.iter();
    let passed = levels
        .filter(|&&level| sigma <= level * (1.0 + 1e-9))
        .count();
    passed.saturating_sub(1) as u32
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::networks::blocks::{block_end, run};
    use crate::runtime::diffusion::{DiffusionSampler, FlowSchedule, NoiseTable, Prediction};

    /// A network that expects the number of the prompt at each place.
    struct KnownLatent<L> {
        level: L,
        asked: Mutex<Vec<NetworkLevel>>,
    }

    impl<L: Fn(f64) -> NetworkLevel + Sync> Denoiser for KnownLatent<L> {
        type Prompt = f64;

        fn level(&self, sigma: f64) -> NetworkLevel {
            let level = (self.level)(sigma);
            self.asked.lock().unwrap().push(level);
            level
        }

        async fn predict(
            &self,
            input: Vec<f64>,
            timestep: f32,
            prompts: &[f64],
        ) -> Result<Vec<Vec<f64>>> {
            block_end().await;
            let level = *self.asked.lock().unwrap().last().unwrap();
            assert_eq!(level.timestep, timestep);
            let [of_x, of_output] = level.clean;
            let output = |clean: &f64| {
                let x = input.iter().map(|value| value / level.input_scale);
                x.map(|x| (clean - of_x * x) / of_output).collect()
            };
            Ok(prompts.iter().map(output).collect())
        }

        fn keep_clean(&self, latent: &mut [f64]) {
            latent[0] = 9.0;
        }
    }

    #[track_caller]
    fn check(level: impl Fn(f64) -> NetworkLevel + Sync, run_of: SamplingRun, sigmas: &[f64]) {
        let network = KnownLatent {
            level,
            asked: Mutex::default(),
        };
        let guidance = Guidance {
            prompts: &[2.0, 1.0],
            scale: 3.0,
        };
        let mut denoising = DenoisingRun::start(&network, guidance, run_of, sigmas);
        for at in 1..sigmas.len() as u32 {
            let step = run(denoising.step()).unwrap().unwrap();
            assert_eq!((step.at, step.clean[0]), (at, 9.0));
            // The negative prompt's number, and three times the way from there.
            assert!((step.clean[1] - 4.0).abs() < 1e-6, "{step:?}");
        }
        assert_eq!(run(denoising.step()).unwrap(), None);
        let latent = denoising.finish().unwrap();
        assert!((latent[1] - 4.0).abs() < 1e-6, "{latent:?}");
        let asked = network.asked.into_inner().unwrap();
        assert!(asked.is_sorted_by(|a, b| a.timestep >= b.timestep));
        assert!(asked.len() >= sigmas.len() - 1);
    }

    #[test]
    fn samplers_lead_networks_of_diffusion_and_flow_to_the_guided_latent() {
        let start = |sampler, sigmas: &[f64]| {
            let x = vec![sigmas[0], -sigmas[0]];
            SamplingRun::start(sampler, x, sigmas.to_vec(), Box::new(|| vec![0.0; 2]))
        };
        let samplers = [
            DiffusionSampler::Euler,
            DiffusionSampler::Heun,
            DiffusionSampler::DpmPp2m,
        ];
        let table = NoiseTable::stable_diffusion();
        let levels = FlowSchedule::published(3.0).levels(4);
        for sampler in samplers {
            let sigmas = [14.0, 6.0, 2.0, 0.5, 0.0];
            for prediction in [Prediction::Epsilon, Prediction::Velocity] {
                let level = |sigma| prediction.level(&table, sigma);
                check(level, start(sampler, &sigmas), &sigmas);
            }
            let sigmas = levels.sigmas();
            check(
                |sigma| levels.level(sigma),
                start(sampler, &sigmas),
                &sigmas,
            );
        }
        let noise = [1.0, -1.0];
        let flow = |sigma| levels.level(sigma);
        check(flow, levels.start(&noise), &levels.sigmas());
    }
}
