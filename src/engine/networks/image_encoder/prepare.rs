//! An image as CLIP's encoder takes it: its shorter side at the encoder's, the middle cut out, each color around zero.

use crate::networks::image_encoder::ClipVisionSpec;
use crate::networks::vision::resize::{Filter, Weights, resize_part};

/// Means and deviations of the colors that CLIP was trained with.
const MEAN: [f32; 3] = [0.48145466, 0.4578275, 0.40821073];
const DEVIATION: [f32; 3] = [0.26862954, 0.261_302_6, 0.275_777_1];

/// Levels `[height, width, color]` of an image of bytes `[height, width, color]`.
pub fn prepare(bytes: &[u8], size: [usize; 2], spec: &ClipVisionSpec) -> Vec<f32> {
    let middle = middle(bytes, size, spec.image_size);
    let level =
        |(at, byte): (usize, u8)| (f32::from(byte) / 255.0 - MEAN[at % 3]) / DEVIATION[at % 3];
    middle.into_iter().enumerate().map(level).collect()
}

/// The square in the middle.
pub fn middle(bytes: &[u8], size: [usize; 2], side: usize) -> Vec<u8> {
    let shorter = size[0].min(size[1]);
    let scaled = size.map(|length| length * side / shorter);
    let cut = scaled.map(|length| {
        let first = (length - side) / 2;
        first..first + side
    });
    let by = (Filter::Bicubic, Weights::Pillow);
    resize_part(bytes, size, scaled, cut, by)
}
