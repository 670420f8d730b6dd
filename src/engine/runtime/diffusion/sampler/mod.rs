//! Samplers: from noise to an image in a few evaluations of a network.
//!
//! A sampler is an asynchronous function that follows its formula and awaits each evaluation. [`SamplingRun`] inverts
//! the control: the run stops at each evaluation and continues with the result, so that the owner of the device can do
//! other work, report progress or cancel in between.

mod dpm;
mod multistep;
mod single;
mod stochastic;
mod unipc;

pub use unipc::Variant as UniPcVariant;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// How a run gets from one noise level to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffusionSampler {
    Euler,
    EulerAncestral,
    Heun,
    Dpm2,
    Dpm2Ancestral,
    Lms,
    DpmFast,
    DpmAdaptive,
    DpmPp2sAncestral,
    DpmPpSde,
    DpmPp2m,
    Lcm,
    UniPc,
    UniPcBh2,
}

/// Names of the AI Horde API and of the programs people know. Some names share a sampler.
const SAMPLERS: &[(&str, DiffusionSampler)] = &[
    ("k_euler", DiffusionSampler::Euler),
    ("k_euler_a", DiffusionSampler::EulerAncestral),
    ("k_heun", DiffusionSampler::Heun),
    ("k_dpm_2", DiffusionSampler::Dpm2),
    ("k_dpm_2_a", DiffusionSampler::Dpm2Ancestral),
    ("k_lms", DiffusionSampler::Lms),
    ("k_dpm_fast", DiffusionSampler::DpmFast),
    ("k_dpm_adaptive", DiffusionSampler::DpmAdaptive),
    ("k_dpmpp_2s_a", DiffusionSampler::DpmPp2sAncestral),
    ("k_dpmpp_sde", DiffusionSampler::DpmPpSde),
    ("k_dpmpp_2m", DiffusionSampler::DpmPp2m),
    ("dpmsolver", DiffusionSampler::DpmPp2m),
    ("DDIM", DiffusionSampler::Euler),
    ("plms", DiffusionSampler::Euler),
    ("lcm", DiffusionSampler::Lcm),
    ("uni_pc", DiffusionSampler::UniPc),
    ("uni_pc_bh2", DiffusionSampler::UniPcBh2),
];

impl DiffusionSampler {
    pub fn named(name: &str) -> Option<Self> {
        SAMPLERS
            .iter()
            .find(|entry| entry.0 == name)
            .map(|entry| entry.1)
    }

    /// The first of its names.
    pub fn name(self) -> &'static str {
        let mut all = SAMPLERS.iter();
        all.find(|entry| entry.1 == self)
            .map_or("", |entry| entry.0)
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        SAMPLERS.iter().map(|entry| entry.0)
    }

    /// Whether the schedule of a run has one more level, and omits the last but one.
    pub fn drops_penultimate(self) -> bool {
        matches!(self, Self::Dpm2 | Self::Dpm2Ancestral)
    }
}

/// Gives as many fresh normal numbers as the image has.
pub type NoiseSource = Box<dyn FnMut() -> Vec<f64> + Send>;

/// An image under noise that the network is to see.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub x: Vec<f64>,
    pub sigma: f64,
}

/// The state of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum SamplingStep {
    Evaluate(Evaluation),
    Done(Vec<f64>),
}

/// A sampler in progress, suspended until it receives the network's prediction of the clean image.
pub struct SamplingRun {
    formula: Pin<Box<dyn Future<Output = Vec<f64>> + Send>>,
    exchange: Exchange,
}

impl SamplingRun {
    /// Starts with `x` at the first of `sigmas`, which descend to 0.
    pub fn start(
        sampler: DiffusionSampler,
        x: Vec<f64>,
        sigmas: Vec<f64>,
        noise: NoiseSource,
    ) -> Self {
        let exchange = Exchange::default();
        let network = Network(exchange.clone());
        let formula: Pin<Box<dyn Future<Output = Vec<f64>> + Send>> = match sampler {
            DiffusionSampler::Euler => Box::pin(single::euler(network, x, sigmas)),
            DiffusionSampler::EulerAncestral => {
                Box::pin(single::euler_ancestral(network, x, sigmas, noise))
            }
            DiffusionSampler::Heun => Box::pin(single::heun(network, x, sigmas)),
            DiffusionSampler::Dpm2 => Box::pin(single::dpm_2(network, x, sigmas)),
            DiffusionSampler::Dpm2Ancestral => {
                Box::pin(single::dpm_2_ancestral(network, x, sigmas, noise))
            }
            DiffusionSampler::Lms => Box::pin(multistep::lms(network, x, sigmas)),
            DiffusionSampler::DpmFast => Box::pin(dpm::fast(network, x, sigmas)),
            DiffusionSampler::DpmAdaptive => Box::pin(dpm::adaptive(network, x, sigmas)),
            DiffusionSampler::DpmPp2sAncestral => {
                Box::pin(stochastic::dpmpp_2s_ancestral(network, x, sigmas, noise))
            }
            DiffusionSampler::DpmPpSde => {
                Box::pin(stochastic::dpmpp_sde(network, x, sigmas, noise))
            }
            DiffusionSampler::DpmPp2m => Box::pin(multistep::dpmpp_2m(network, x, sigmas)),
            DiffusionSampler::Lcm => Box::pin(single::lcm(network, x, sigmas, noise)),
            DiffusionSampler::UniPc => {
                let kind = (unipc::ORDER, UniPcVariant::Bh1);
                Box::pin(unipc::uni_pc(network, x, sigmas, kind))
            }
            DiffusionSampler::UniPcBh2 => {
                let kind = (unipc::ORDER, UniPcVariant::Bh2);
                Box::pin(unipc::uni_pc(network, x, sigmas, kind))
            }
        };
        Self { formula, exchange }
    }

    /// UniPC of another order: of 1, 2 or 3.
    pub fn uni_pc(order: usize, variant: UniPcVariant, x: Vec<f64>, sigmas: Vec<f64>) -> Self {
        let exchange = Exchange::default();
        let network = Network(exchange.clone());
        Self {
            formula: Box::pin(unipc::uni_pc(network, x, sigmas, (order, variant))),
            exchange,
        }
    }

    /// The next evaluation, or the end. `denoised` answers the evaluation before.
    pub fn advance(&mut self, denoised: Option<Vec<f64>>) -> SamplingStep {
        self.exchange.lock().answer = denoised;
        let mut context = Context::from_waker(Waker::noop());
        match self.formula.as_mut().poll(&mut context) {
            Poll::Ready(x) => SamplingStep::Done(x),
            Poll::Pending => {
                let question = self.exchange.lock().question.take();
                SamplingStep::Evaluate(question.expect("a formula waits for evaluations only"))
            }
        }
    }
}

/// The formula's pending evaluation and its result.
#[derive(Default)]
struct Slots {
    question: Option<Evaluation>,
    answer: Option<Vec<f64>>,
}

#[derive(Clone, Default)]
struct Exchange(Arc<Mutex<Slots>>);

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network as formulas see it.
struct Network(Exchange);

impl Network {
    /// The clean image that the network expects below `x`.
    async fn denoise(&self, x: &[f64], sigma: f64) -> Vec<f64> {
        self.0.lock().question = Some(Evaluation {
            x: x.to_vec(),
            sigma,
        });
        poll_fn(|_| match self.0.lock().answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    /// The noise that the network sees in `x`, in units of its level.
    async fn epsilon(&self, x: &[f64], sigma: f64) -> Vec<f64> {
        let denoised = self.denoise(x, sigma).await;
        slope(x, &denoised, sigma)
    }
}

/// `(x - denoised) / sigma`.
fn slope(x: &[f64], denoised: &[f64], sigma: f64) -> Vec<f64> {
    sum(&[(sigma.recip(), x), (-sigma.recip(), denoised)])
}

/// The weighted sum of vectors of one length.
fn sum(terms: &[(f64, &[f64])]) -> Vec<f64> {
    let Some(((first, vector), rest)) = terms.split_first() else {
        return Vec::new();
    };
    let mut total: Vec<f64> = vector.iter().map(|value| first * value).collect();
    for (weight, vector) in rest {
        for (total, value) in total.iter_mut().zip(*vector) {
            *total += weight * value;
        }
    }
    total
}

/// The level after the deterministic part of an ancestral step, and the level of fresh noise.
fn ancestral(from: f64, to: f64) -> (f64, f64) {
    let up = (to * to * (from * from - to * to) / (from * from)).sqrt();
    let up = up.min(to);
    ((to * to - up * up).sqrt(), up)
}
