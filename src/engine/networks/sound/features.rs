//! The front end of Whisper: from samples to the logarithm of a mel spectrum.

use std::f64::consts::PI;
use std::sync::Arc;

use muster_kernels::cpu::each;
use realfft::{RealFftPlanner, RealToComplex};

/// Sample rate of the networks' input.
pub const SAMPLE_RATE: u32 = 16_000;
/// Frames of one window at most: the 30 s of all published networks.
pub const LONGEST_WINDOW: usize = 3000;
/// Samples of one transform, and between two of them.
const WIDTH: usize = 400;
const HOP: usize = 160;
const BINS: usize = WIDTH / 2 + 1;
/// Frames that a thread transforms with the same buffers.
const FRAMES_TOGETHER: usize = 50;
/// Nanoseconds that a frame takes.
const FRAME_COST: usize = 4000;

/// The mel spectrogram, for networks with a given number of mel bands.
pub struct Features {
    window: Vec<f32>,
    /// Per band, the first bin and the weights from it on.
    bands: Vec<(usize, Vec<f32>)>,
    transform: Arc<dyn RealToComplex<f32>>,
}

impl Features {
    pub fn new(bands: usize) -> Self {
        let angle = |at: usize| 2.0 * PI * at as f64 / WIDTH as f64;
        Self {
            window: (0..WIDTH)
                .map(|at| (0.5 - 0.5 * angle(at).cos()) as f32)
                .collect(),
            bands: mel_bands(bands),
            transform: RealFftPlanner::new().plan_fft_forward(WIDTH),
        }
    }

    pub fn bands(&self) -> usize {
        self.bands.len()
    }

    /// Number of frames of this many samples.
    pub fn frames(samples: usize) -> usize {
        samples / HOP
    }

    /// Powers of the frames `from..to` in each band, as base-10 logarithms: frame after frame. Beyond its end the sound
    /// is silent; before its beginning it is mirrored, as a centred transform has it.
    pub fn logarithms(&self, samples: &[f32], from: usize, to: usize) -> Vec<f32> {
        let half = WIDTH / 2;
        let sample = |at: usize| match at.checked_sub(half) {
            Some(at) => samples.get(at).copied().unwrap_or(0.0),
            None => samples.get(half - at).copied().unwrap_or(0.0),
        };
        let bands = self.bands.len();
        let mut found = vec![0f32; (to - from) * bands];
        let mut parts: Vec<(usize, &mut [f32])> = (from..to)
            .step_by(FRAMES_TOGETHER)
            .zip(found.chunks_mut(FRAMES_TOGETHER * bands))
            .collect();
        each(&mut parts, (to - from) * FRAME_COST, |(first, part)| {
            let mut input = self.transform.make_input_vec();
            let mut spectrum = self.transform.make_output_vec();
            let mut scratch = self.transform.make_scratch_vec();
            for (frame, powers) in (*first..).zip(part.chunks_exact_mut(bands)) {
                let values = input.iter_mut().zip(&self.window).enumerate();
                for (at, (value, weight)) in values {
                    *value = sample(frame * HOP + at) * weight;
                }
                let lengths = "the buffers are the transform's own";
                self.transform
                    .process_with_scratch(&mut input, &mut spectrum, &mut scratch)
                    .expect(lengths);
                for (power, (first, weights)) in powers.iter_mut().zip(&self.bands) {
                    let bins = spectrum[*first..].iter().zip(weights);
                    let sum: f32 = bins.map(|(bin, weight)| bin.norm_sqr() * weight).sum();
                    *power = sum.max(1e-10).log10();
                }
            }
        });
        found
    }
}

/// Logarithms as the network reads them. `loudest` is the largest of the whole sound.
pub fn leveled(logarithm: f32, loudest: f32) -> f32 {
    (logarithm.max(loudest - 8.0) + 4.0) / 4.0
}

/// Slaney's triangles, each of the same area, from 0 Hz to half the sample rate.
fn mel_bands(count: usize) -> Vec<(usize, Vec<f32>)> {
    let top = f64::from(SAMPLE_RATE) / 2.0;
    let edge = |at: usize| to_hertz(to_mel(top) * at as f64 / (count + 1) as f64);
    let hertz = |bin: usize| top * bin as f64 / (BINS - 1) as f64;
    let bands = (0..count).map(|band| {
        let [low, middle, high] = [edge(band), edge(band + 1), edge(band + 2)];
        let weight = |bin: usize| {
            let rising = (hertz(bin) - low) / (middle - low);
            let falling = (high - hertz(bin)) / (high - middle);
            rising.min(falling).max(0.0) * 2.0 / (high - low)
        };
        let first = (0..BINS).find(|&bin| weight(bin) > 0.0).unwrap_or(0);
        let weights = (first..BINS).map(|bin| weight(bin) as f32);
        (first, weights.take_while(|&weight| weight > 0.0).collect())
    });
    bands.collect()
}

/// Linear up to 1 kHz, logarithmic above.
fn to_mel(hertz: f64) -> f64 {
    match hertz < 1000.0 {
        true => hertz * 3.0 / 200.0,
        false => 15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4f64.ln(),
    }
}

fn to_hertz(mel: f64) -> f64 {
    match mel < 15.0 {
        true => mel * 200.0 / 3.0,
        false => 1000.0 * (6.4f64.ln() * (mel - 15.0) / 27.0).exp(),
    }
}
