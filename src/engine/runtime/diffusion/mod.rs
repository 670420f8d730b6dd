//! The arithmetic of diffusion: noise schedules, samplers, and noise. Pure, on host numbers in f64, so that every
//! device generates the same image; a network is a [`Denoiser`].
//!
//! Noise levels follow k-diffusion: an image `x` at level `sigma` is the clean image plus `sigma` times normal noise.
//! `schedule` has the levels of diffusion networks, `flow` those of flow networks.

mod denoiser;
mod flow;
pub mod noise;
mod prediction;
mod sampler;
mod schedule;

pub use denoiser::{DenoisedStep, Denoiser, DenoisingRun, Guidance, NetworkLevel};
pub use flow::{FlowLevels, FlowSchedule, even_levels};
pub use prediction::{Prediction, keep_unmasked, noised};
pub use sampler::{
    DiffusionSampler, Evaluation, NoiseSource, SamplingRun, SamplingStep, UniPcVariant,
};
pub use schedule::{BetaSpacing, Betas, NoiseTable, Schedule};

#[cfg(test)]
mod tests;
