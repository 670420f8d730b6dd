//! The arithmetic of diffusion: which noise levels are visited, how a sampler gets from one to the next, where the noise
//! comes from. Pure, on host numbers in f64, so that every device draws the same image; networks and their guidance
//! are the caller's.
//!
//! Noise levels follow k-diffusion: an image `x` at level `sigma` is the clean image plus `sigma` times normal noise.

pub mod noise;
mod prediction;
mod sampler;
mod schedule;

pub use prediction::{Prediction, keep_unmasked, noised};
pub use sampler::{
    DiffusionSampler, Evaluation, NoiseSource, SamplingRun, SamplingStep, UniPcVariant,
};
pub use schedule::{NoiseTable, Schedule};

#[cfg(test)]
mod tests;
