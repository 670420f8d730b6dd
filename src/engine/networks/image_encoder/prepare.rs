//! An image as CLIP's encoder takes it: its shorter side at the encoder's, the middle cut out, each color around zero.

use crate::networks::image_encoder::ClipVisionSpec;

/// Means and deviations of the colors that CLIP was trained with.
const MEAN: [f32; 3] = [0.48145466, 0.4578275, 0.40821073];
const DEVIATION: [f32; 3] = [0.26862954, 0.261_302_6, 0.275_777_1];
/// How far the cubic reaches, in places of the smaller image.
const REACH: f64 = 2.0;

/// Levels `[height, width, color]` of an image of bytes `[height, width, color]`.
pub fn prepare(bytes: &[u8], size: [usize; 2], spec: &ClipVisionSpec) -> Vec<f32> {
    let middle = middle(bytes, size, spec.image_size);
    let level =
        |(at, byte): (usize, u8)| (f32::from(byte) / 255.0 - MEAN[at % 3]) / DEVIATION[at % 3];
    middle.into_iter().enumerate().map(level).collect()
}

/// The square in the middle. Lines are rounded to bytes before columns are, as image programs do it.
pub fn middle(bytes: &[u8], [width, height]: [usize; 2], side: usize) -> Vec<u8> {
    let shorter = width.min(height);
    let scaled = |length: usize| length * side / shorter;
    let columns = Taps::all(width, scaled(width), side);
    let rows = Taps::all(height, scaled(height), side);
    let mut across = Vec::with_capacity(height * side * 3);
    for line in bytes.chunks_exact(width * 3) {
        for taps in &columns {
            across.extend(taps.sum(|place, color| line[place * 3 + color]));
        }
    }
    let mut result = Vec::with_capacity(side * side * 3);
    for taps in &rows {
        for column in 0..side {
            result.extend(taps.sum(|place, color| across[(place * side + column) * 3 + color]));
        }
    }
    result
}

/// The places that make up one of another size, by their weights.
struct Taps {
    first: usize,
    weights: Vec<f64>,
}

impl Taps {
    /// Of the middle `side` of `to` places.
    fn all(from: usize, to: usize, side: usize) -> Vec<Self> {
        let scale = from as f64 / to as f64;
        let cut = (to - side) / 2;
        (cut..cut + side)
            .map(|at| Self::of(at, from, scale))
            .collect()
    }

    fn of(at: usize, from: usize, scale: f64) -> Self {
        let wide = scale.max(1.0);
        let (center, reach) = ((at as f64 + 0.5) * scale, REACH * wide);
        let first = ((center - reach + 0.5).max(0.0)) as usize;
        let end = ((center + reach + 0.5) as usize).min(from);
        let weight = |place: usize| cubic((place as f64 - center + 0.5) / wide);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        Self {
            first,
            weights: weights.into_iter().map(|it| it / sum).collect(),
        }
    }

    fn sum(&self, byte: impl Fn(usize, usize) -> u8) -> [u8; 3] {
        [0, 1, 2].map(|color| {
            let places = self.weights.iter().enumerate();
            let sum: f64 = places
                .map(|(at, weight)| weight * f64::from(byte(self.first + at, color)))
                .sum();
            (sum + 0.5).clamp(0.0, 255.0) as u8
        })
    }
}

/// Keys' cubic with a = -1/2.
fn cubic(x: f64) -> f64 {
    let x = x.abs();
    match x {
        _ if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        _ if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        _ => 0.0,
    }
}
