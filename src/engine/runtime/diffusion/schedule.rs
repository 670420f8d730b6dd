//! Noise schedules: the training levels of a network, and the levels of a run.

use std::f64::consts::PI;

/// The noise levels of training steps, ascending.
#[derive(Debug, Clone, PartialEq)]
pub struct NoiseTable {
    sigmas: Vec<f64>,
}

/// The noise that training steps add: shares of the variance of the first and the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Betas {
    pub first: f64,
    pub last: f64,
    pub spacing: BetaSpacing,
}

/// The quantity with even gaps between the first and the last training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BetaSpacing {
    Linear,
    /// The square root.
    ScaledLinear,
}

/// How a run spaces its noise levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Evenly spaced training steps.
    #[default]
    Normal,
    /// Evenly spaced training steps, without the last.
    SgmUniform,
    /// Entries of the table at even places.
    Simple,
    /// Every n-th entry from the second on.
    DdimUniform,
    /// Karras et al., rho 7.
    Karras,
    /// Evenly spaced in the logarithm.
    Exponential,
    /// Quantiles of the beta distribution with 0.6 and 0.6.
    Beta,
    /// Evenly spaced in the arc tangent.
    KlOptimal,
    /// Linear up to 0.025, then quadratic.
    LinearQuadratic,
}

const SCHEDULES: &[(&str, Schedule)] = &[
    ("normal", Schedule::Normal),
    ("sgm_uniform", Schedule::SgmUniform),
    ("simple", Schedule::Simple),
    ("ddim_uniform", Schedule::DdimUniform),
    ("karras", Schedule::Karras),
    ("exponential", Schedule::Exponential),
    ("beta", Schedule::Beta),
    ("kl_optimal", Schedule::KlOptimal),
    ("linear_quadratic", Schedule::LinearQuadratic),
];

/// Training steps of Stable Diffusion.
const TRAINING_STEPS: usize = 1000;
/// The last product of alphas at zero terminal SNR, which keeps its noise level finite.
const LEAST_ALPHAS: f64 = 4.897_383_4e-8;

impl Schedule {
    pub fn named(name: &str) -> Option<Self> {
        SCHEDULES
            .iter()
            .find(|entry| entry.0 == name)
            .map(|entry| entry.1)
    }

    pub fn name(self) -> &'static str {
        let mut all = SCHEDULES.iter();
        all.find(|entry| entry.1 == self)
            .map_or("", |entry| entry.0)
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        SCHEDULES.iter().map(|entry| entry.0)
    }

    /// The levels of a run of at least one step, descending, then 0. Beta may return fewer levels than `steps`, because
    /// repeated ones are dropped; DDIM may return more.
    pub fn sigmas(self, table: &NoiseTable, steps: usize) -> Vec<f64> {
        let steps = steps.max(1);
        let (low, high) = (table.lowest(), table.highest());
        let last = (table.sigmas.len() - 1) as f64;
        let mut sigmas: Vec<f64> = match self {
            Self::Normal => line(last, 0.0, steps).map(|at| table.at(at)).collect(),
            Self::SgmUniform => {
                let steps = line(last, 0.0, steps + 1).take(steps);
                steps.map(|at| table.at(at)).collect()
            }
            Self::Simple => {
                let stride = table.sigmas.len() as f64 / steps as f64;
                let from_end =
                    |step: usize| table.sigmas.len() - 1 - (step as f64 * stride) as usize;
                (0..steps)
                    .map(|step| table.sigmas[from_end(step)])
                    .collect()
            }
            Self::DdimUniform => {
                let stride = (table.sigmas.len() / steps).max(1);
                let ascending = table.sigmas.iter().skip(1).step_by(stride).copied();
                let mut sigmas: Vec<f64> = ascending.collect();
                sigmas.reverse();
                sigmas
            }
            Self::Karras => {
                let (from, to) = (high.powf(1.0 / 7.0), low.powf(1.0 / 7.0));
                line(from, to, steps).map(|root| root.powi(7)).collect()
            }
            Self::Exponential => line(high.ln(), low.ln(), steps).map(f64::exp).collect(),
            Self::Beta => {
                let quantiles =
                    (0..steps).map(|step| beta_quantile(1.0 - step as f64 / steps as f64));
                let places = quantiles.map(|quantile| (quantile * last).round_ties_even() as usize);
                let mut places: Vec<usize> = places.collect();
                places.dedup();
                places.into_iter().map(|at| table.sigmas[at]).collect()
            }
            Self::KlOptimal => line(high.atan(), low.atan(), steps).map(f64::tan).collect(),
            Self::LinearQuadratic => linear_quadratic(steps).map(|share| high * share).collect(),
        };
        sigmas.push(0.0);
        sigmas
    }
}

/// `count` evenly spaced values from `from` to `to`.
fn line(from: f64, to: f64, count: usize) -> impl Iterator<Item = f64> {
    let gaps = (count - 1).max(1) as f64;
    (0..count).map(move |at| from + (to - from) * at as f64 / gaps)
}

/// Shares of the highest level: `1 - s`, where `s` rises linearly to 0.025 over half of the steps and then
/// quadratically to 1, with the same slope where the halves meet.
fn linear_quadratic(steps: usize) -> impl Iterator<Item = f64> {
    const THRESHOLD: f64 = 0.025;
    let linear = steps / 2;
    let quadratic = (steps - linear) as f64;
    let slope = THRESHOLD / (linear as f64).max(1.0);
    let excess = linear as f64 - THRESHOLD * steps as f64;
    let square = match linear {
        0 => 0.0,
        _ => excess / (linear as f64 * quadratic * quadratic),
    };
    let middle = slope - 2.0 * excess / (quadratic * quadratic);
    let offset = square * (linear * linear) as f64;
    (0..steps).map(move |step| {
        let at = step as f64;
        let risen = match step < linear {
            true => slope * at,
            false if linear == 0 => 0.0,
            false => square * at * at + middle * at + offset,
        };
        1.0 - risen
    })
}

impl Betas {
    pub const STABLE_DIFFUSION: Self = Self {
        first: 0.00085,
        last: 0.012,
        spacing: BetaSpacing::ScaledLinear,
    };

    /// The shares of the clean image's variance after each training step.
    fn alphas(self) -> Vec<f64> {
        let betas: Vec<f64> = match self.spacing {
            BetaSpacing::Linear => line(self.first, self.last, TRAINING_STEPS).collect(),
            BetaSpacing::ScaledLinear => line(self.first.sqrt(), self.last.sqrt(), TRAINING_STEPS)
                .map(|root| root * root)
                .collect(),
        };
        let products = betas.into_iter().scan(1.0, |product, beta| {
            *product *= 1.0 - beta;
            Some(*product)
        });
        products.collect()
    }
}

impl NoiseTable {
    pub fn stable_diffusion() -> Self {
        Self::new(Betas::STABLE_DIFFUSION)
    }

    pub fn new(betas: Betas) -> Self {
        Self::of_alphas(betas.alphas())
    }

    /// Rescales the levels so that the last step has zero signal (zero terminal SNR).
    pub fn zero_terminal(betas: Betas) -> Self {
        let roots: Vec<f64> = betas.alphas().into_iter().map(f64::sqrt).collect();
        let (first, last) = (roots[0], roots[roots.len() - 1]);
        let shifted = roots
            .into_iter()
            .map(|root| (root - last) * first / (first - last));
        let mut squares: Vec<f64> = shifted.map(|root| root * root).collect();
        if let Some(last) = squares.last_mut() {
            *last = LEAST_ALPHAS;
        }
        Self::of_alphas(squares)
    }

    fn of_alphas(alphas: Vec<f64>) -> Self {
        let sigmas = alphas
            .into_iter()
            .map(|alpha| ((1.0 - alpha) / alpha).sqrt());
        Self {
            sigmas: sigmas.collect(),
        }
    }

    pub fn lowest(&self) -> f64 {
        self.sigmas[0]
    }

    pub fn highest(&self) -> f64 {
        self.sigmas[self.sigmas.len() - 1]
    }

    /// The training step with the nearest level, in the logarithm.
    pub fn timestep(&self, sigma: f64) -> usize {
        let above = self.sigmas.partition_point(|known| *known < sigma);
        let last = self.sigmas.len() - 1;
        let (below, above) = (above.saturating_sub(1), above.min(last));
        let gap = |at: usize| (self.sigmas[at].ln() - sigma.ln()).abs();
        match gap(above) < gap(below) {
            true => above,
            false => below,
        }
    }

    /// The level between two training steps, interpolated in the logarithm.
    fn at(&self, timestep: f64) -> f64 {
        let low = timestep.floor() as usize;
        let high = (low + 1).min(self.sigmas.len() - 1);
        let share = timestep - low as f64;
        let (low, high) = (self.sigmas[low].ln(), self.sigmas[high].ln());
        ((1.0 - share) * low + share * high).exp()
    }
}

/// The quantile of the beta distribution with 0.6 and 0.6.
///
/// With `x = sin²(angle)` the density becomes `2 (sin cos)^0.2` without poles, which is integrated by Simpson's rule;
/// the distribution is symmetric, so only its lower half is searched.
fn beta_quantile(share: f64) -> f64 {
    if share > 0.5 {
        return 1.0 - beta_quantile(1.0 - share);
    }
    if share == 0.5 {
        // Exactly: its place is rounded.
        return 0.5;
    }
    let whole = 2.0 * beta_mass(PI / 4.0);
    let (mut low, mut high) = (0.0, PI / 4.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match beta_mass(middle) < share * whole {
            true => low = middle,
            false => high = middle,
        }
    }
    ((low + high) / 2.0).sin().powi(2)
}

/// The integral of `(sin cos)^0.2` up to an angle. Another substitution, `angle = u^5`, smooths its start.
fn beta_mass(angle: f64) -> f64 {
    const PARTS: usize = 64;
    let end = angle.powf(0.2);
    let value = |u: f64| {
        let angle = u.powi(5);
        (angle.sin() * angle.cos()).powf(0.2) * 5.0 * u.powi(4)
    };
    let width = end / PARTS as f64;
    let inner = (1..PARTS).map(|at| value(at as f64 * width) * if at % 2 == 0 { 2.0 } else { 4.0 });
    (value(0.0) + inner.sum::<f64>() + value(end)) * width / 3.0
}
