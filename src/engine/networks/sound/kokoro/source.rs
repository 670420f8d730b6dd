//! The harmonic source of the vocoder: a tone at the given pitch with its overtones, and noise; and the STFT and its
//! inverse.
//!
//! Both run on the host, in f64 for accumulated phases: they are a hundredth of the computation.

use std::f64::consts::{PI, TAU};

use candle_core::{DType, Result, Tensor};

use super::{GeneratorSpec, SPEECH_RATE};
use crate::networks::blocks::ComponentReader;
use crate::networks::weights::Flaw;

/// The tone and its overtones.
const HARMONICS: usize = 9;
const AMPLITUDE: f64 = 0.1;
/// In hertz: below, the source is only noise.
const LEAST_VOICED: f32 = 10.0;
const VOICED_NOISE: f64 = 0.003;
const UNVOICED_NOISE: f64 = AMPLITUDE / 3.0;

pub(super) struct VocalCords {
    weights: Vec<f64>,
    bias: f64,
}

impl VocalCords {
    pub fn load(reader: &mut ComponentReader<'_>) -> std::result::Result<Self, Flaw> {
        let name = "decoder.generator.m_source.l_linear";
        let weights = reader.table(&format!("{name}.weight"), (1, HARMONICS))?;
        let weights: Vec<f32> = weights.flatten_all()?.to_vec1()?;
        let bias = reader.tensor(&format!("{name}.bias"), &[1])?;
        let bias: Vec<f32> = bias.to_dtype(DType::F32)?.to_vec1()?;
        Ok(Self {
            weights: weights.into_iter().map(f64::from).collect(),
            bias: bias.into_iter().map(f64::from).sum(),
        })
    }

    /// Samples for a pitch that lasts `stretch` samples each. `noise` returns normal numbers.
    ///
    /// The overtones have noise of equal strength, so their weighted sum is drawn at once. The reference draws a phase
    /// per overtone and then drops it together with the sample it was added to; that step is omitted here.
    pub fn samples(
        &self,
        pitch: &[f32],
        stretch: usize,
        noise: &(dyn Fn(usize) -> Vec<f32> + Sync),
    ) -> Vec<f64> {
        let turns = self.turns(pitch, stretch);
        let strength = self.weights.iter().map(|weight| weight * weight);
        let strength = strength.sum::<f64>().sqrt();
        let count = pitch.len() * stretch;
        let noise = noise(count);
        let last = pitch.len().saturating_sub(1);
        let samples = noise.into_iter().take(count).enumerate();
        let sample = |(at, noise): (usize, f32)| {
            let is_voiced = pitch[at / stretch] > LEAST_VOICED;
            let place = ((at as f64 + 0.5) / stretch as f64 - 0.5).max(0.0);
            let before = (place as usize).min(last);
            let (after, share) = ((before + 1).min(last), place - before as f64);
            let tone = |(harmonic, weight): (usize, &f64)| {
                let [from, to] = [before, after].map(|frame| turns[frame * HARMONICS + harmonic]);
                weight * (TAU * (from + (to - from) * share).fract()).sin()
            };
            let (tones, noisy) = match is_voiced {
                true => {
                    let tones = self.weights.iter().enumerate().map(tone);
                    (AMPLITUDE * tones.sum::<f64>(), VOICED_NOISE)
                }
                false => (0.0, UNVOICED_NOISE),
            };
            (tones + noisy * strength * f64::from(noise) + self.bias).tanh()
        };
        samples.map(sample).collect()
    }

    /// Turns of each harmonic at the middle of each frame.
    fn turns(&self, pitch: &[f32], stretch: usize) -> Vec<f64> {
        let mut sums = [0f64; HARMONICS];
        let mut turns = Vec::with_capacity(pitch.len() * HARMONICS);
        for &pitch in pitch {
            for (harmonic, sum) in sums.iter_mut().enumerate() {
                let hertz = f64::from(pitch) * (harmonic + 1) as f64;
                *sum += (hertz / f64::from(SPEECH_RATE)).rem_euclid(1.0);
                turns.push(*sum * stretch as f64);
            }
        }
        turns
    }
}

/// The transforms, with Hann's window.
pub(super) struct ShortTransform {
    width: usize,
    hop: usize,
    window: Vec<f64>,
    /// Cosine and sine of each fraction of a turn.
    circle: Vec<[f64; 2]>,
}

impl ShortTransform {
    pub fn new(spec: &GeneratorSpec) -> Self {
        let width = spec.width;
        let angle = |at: usize| TAU * at as f64 / width as f64;
        Self {
            width,
            hop: spec.hop,
            window: (0..width).map(|at| 0.5 - 0.5 * angle(at).cos()).collect(),
            circle: (0..width)
                .map(|at| [angle(at).cos(), angle(at).sin()])
                .collect(),
        }
    }

    fn bins(&self) -> usize {
        self.width / 2 + 1
    }

    /// Magnitudes, then phases, of frames centred at every hop: `[1, frames, bins]`. The sound is mirrored at its ends.
    pub fn spectra(&self, samples: &[f64], like: &Tensor) -> Result<Tensor> {
        let (half, bins) = (self.width / 2, self.bins());
        let frames = samples.len() / self.hop + 1;
        let last = samples.len().saturating_sub(1);
        let sample = |at: usize| {
            let mirrored = match at.checked_sub(half) {
                Some(at) if at > last => (2 * last).saturating_sub(at),
                Some(at) => at,
                None => (half - at).min(last),
            };
            samples.get(mirrored).copied().unwrap_or(0.0)
        };
        let mut found = vec![0f32; frames * 2 * bins];
        for (frame, row) in found.chunks_exact_mut(2 * bins).enumerate() {
            let values: Vec<f64> = (0..self.width)
                .map(|at| sample(frame * self.hop + at) * self.window[at])
                .collect();
            let (magnitudes, phases) = row.split_at_mut(bins);
            for (bin, (magnitude, phase)) in magnitudes.iter_mut().zip(phases).enumerate() {
                let (mut real, mut imaginary) = (0.0, 0.0);
                for (at, value) in values.iter().enumerate() {
                    let [cosine, sine] = self.circle[bin * at % self.width];
                    real += value * cosine;
                    imaginary -= value * sine;
                }
                // The first and the last bin are real, and so is a mirrored frame; rounding must not flip their sign.
                if bin == 0 || bin == half || frame == 0 {
                    imaginary = 0.0;
                }
                *magnitude = real.hypot(imaginary) as f32;
                *phase = match imaginary == 0.0 && real < 0.0 {
                    true => PI as f32,
                    false => imaginary.atan2(real) as f32,
                };
            }
        }
        Tensor::from_vec(found, (1, frames, 2 * bins), like.device())
    }

    /// Inverse STFT of the network's output: logarithms of magnitudes, then angles before a sine.
    pub fn sound(&self, described: &Tensor) -> Result<Vec<f32>> {
        let bins = self.bins();
        let rows: Vec<f32> = described.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        let frames = rows.len() / (2 * bins);
        let length = self.hop * frames.saturating_sub(1);
        let mut sums = vec![0f64; self.hop * frames + self.width];
        let mut weights = vec![0f64; sums.len()];
        for (frame, row) in rows.chunks_exact(2 * bins).enumerate() {
            let (magnitudes, phases) = row.split_at(bins);
            let parts: Vec<[f64; 2]> = magnitudes
                .iter()
                .zip(phases)
                .map(|(magnitude, phase)| {
                    let (magnitude, phase) = (f64::from(*magnitude).exp(), f64::from(*phase).sin());
                    [magnitude * phase.cos(), magnitude * phase.sin()]
                })
                .collect();
            let span = frame * self.hop..frame * self.hop + self.width;
            let places = sums[span.clone()].iter_mut().zip(&mut weights[span]);
            for (at, (sum, weight)) in places.enumerate() {
                let value = self.value(&parts, at);
                *sum += value * self.window[at];
                *weight += self.window[at] * self.window[at];
            }
        }
        let half = self.width / 2;
        let whole = sums.iter().zip(&weights).skip(half).take(length);
        Ok(whole.map(|(sum, weight)| (sum / weight) as f32).collect())
    }

    /// A sample of a spectrum whose other half is its mirror image.
    fn value(&self, parts: &[[f64; 2]], at: usize) -> f64 {
        let last = parts.len() - 1;
        let parts = parts.iter().enumerate();
        let sum = parts.map(|(bin, [real, imaginary])| {
            let [cosine, sine] = self.circle[bin * at % self.width];
            match bin == 0 || bin == last {
                true => real * cosine,
                false => 2.0 * (real * cosine - imaginary * sine),
            }
        });
        sum.sum::<f64>() / self.width as f64
    }
}
