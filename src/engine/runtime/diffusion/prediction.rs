//! Converts the output of a network to its prediction of the clean image.

use super::{NetworkLevel, NoiseTable};

/// The quantity that a network predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prediction {
    /// The noise.
    #[default]
    Epsilon,
    /// The velocity between image and noise.
    Velocity,
    /// The same with the sign of EDM.
    EdmVelocity,
}

impl Prediction {
    /// A noise level of a network that was trained on a table of them.
    pub fn level(self, table: &NoiseTable, sigma: f64) -> NetworkLevel {
        let variance = sigma * sigma + 1.0;
        NetworkLevel {
            timestep: table.timestep(sigma) as f32,
            input_scale: variance.sqrt().recip(),
            clean: match self {
                Self::Epsilon => [1.0, -sigma],
                Self::Velocity => [variance.recip(), -sigma / variance.sqrt()],
                Self::EdmVelocity => [variance.recip(), sigma / variance.sqrt()],
            },
        }
    }
}

/// The initial latent of a run: `latent` (zeros for a new image) with noise of level `sigma`. From the table's highest
/// level on the noise has the variance used in training.
pub fn noised(latent: &[f64], noise: &[f64], sigma: f64, highest: f64) -> Vec<f64> {
    let is_highest = sigma >= highest * (1.0 - 1e-5);
    let scale = match is_highest {
        true => (sigma * sigma + 1.0).sqrt(),
        false => sigma,
    };
    let pairs = latent.iter().zip(noise);
    pairs
        .map(|(latent, noise)| latent + scale * noise)
        .collect()
}

/// Puts back `original` where the mask is 0: before an evaluation with the original under noise, after it with the
/// original alone.
pub fn keep_unmasked(x: &mut [f64], original: &[f64], mask: &[f64]) {
    for ((x, original), mask) in x.iter_mut().zip(original).zip(mask) {
        *x = mask * *x + (1.0 - mask) * original;
    }
}
