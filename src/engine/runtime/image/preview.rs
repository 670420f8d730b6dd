//! Small pictures of unfinished latents: colors as a linear map of a latent's channels.

use candle_core::{Device, Result, Tensor};

use super::networks::{DiffusionNetworks, LatentMap};
use super::pixels::{pixels, stretched};
use crate::runtime::maker::Pixels;
use muster_kernels::Edges;

/// Rows and columns of colored squares in the image that calibrates the map.
const SQUARES: usize = 4;
/// The side of a square in latents.
const SIDE: usize = 4;
/// A preview's longer side is at most this.
const MOST_SIDE: usize = 256;
/// The most pixels per latent position in each direction.
const MOST_SCALE: usize = 8;
/// Keeps the map small where the squares do not determine it.
const RIDGE: f64 = 1e-3;

/// Per color channel (red, green, blue) the factors of the latent channels, then an offset. Colors range from -1 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentColors([Vec<f64>; 3]);

impl LatentColors {
    /// The map that fits the latents of an image of plain squares best.
    pub async fn find(networks: &DiffusionNetworks) -> Result<Self> {
        let factor = networks.autoencoder.spec().factor();
        let side = SQUARES * SIDE * factor;
        let color = |at: usize| square_color(at / side / SIDE / factor, at % side / SIDE / factor);
        let values: Vec<f32> = (0..side * side).flat_map(color).collect();
        let image = Tensor::from_vec(values, (1, side, side, 3), &Device::Cpu)?;
        let latent = networks
            .encode_image(&image.to_device(&networks.device)?, Edges::Zeros)
            .await?;
        let width = SQUARES * SIDE;
        let channels = latent.len() / (width * width);
        let rows: Vec<Vec<f64>> = latent
            .chunks_exact(channels)
            .map(|latent| latent.iter().copied().chain([1.0]).collect())
            .collect();
        let wanted =
            (0..width * width).map(|at| square_color(at / width / SIDE, at % width / SIDE));
        let wanted: Vec<[f32; 3]> = wanted.collect();
        Ok(Self([0, 1, 2].map(|color| {
            let wanted = wanted.iter().map(|colors| f64::from(colors[color]));
            least_squares(&rows, &wanted.collect::<Vec<_>>())
        })))
    }

    pub fn preview(&self, latent: &LatentMap) -> Result<Pixels> {
        let color = |channels: &[f64]| {
            let color = |map: &Vec<f64>| {
                let parts = map.iter().zip(channels.iter().chain(&[1.0]));
                parts.map(|(factor, channel)| factor * channel).sum::<f64>() as f32
            };
            [color(&self.0[0]), color(&self.0[1]), color(&self.0[2])]
        };
        let channels = latent.channels().max(1);
        let values: Vec<f32> = latent
            .values
            .chunks_exact(channels)
            .flat_map(color)
            .collect();
        let (height, width) = (latent.height, latent.width);
        let image = Tensor::from_vec(values, (1, height, width, 3), &Device::Cpu)?;
        let scale = (MOST_SIDE / height.max(width)).clamp(1, MOST_SCALE);
        pixels(
            &stretched(&image, [width * scale, height * scale])?.squeeze(0)?,
            None,
        )
    }
}

/// Sixteen colors that differ in all channels: the corners of a large and of a small cube.
fn square_color(row: usize, column: usize) -> [f32; 3] {
    let at = row * SQUARES + column;
    let size = if at < 8 { 0.9 } else { 0.4 };
    [0, 1, 2].map(|bit| if at >> bit & 1 == 1 { size } else { -size })
}

/// Solves least squares: the factors of the columns of `rows` whose sum is closest to `wanted`.
fn least_squares(rows: &[Vec<f64>], wanted: &[f64]) -> Vec<f64> {
    let size = rows.first().map_or(0, Vec::len);
    let mut system = vec![vec![0.0; size + 1]; size];
    for (row, wanted) in rows.iter().zip(wanted) {
        for (line, factor) in system.iter_mut().zip(row) {
            for (sum, value) in line.iter_mut().zip(row.iter().chain([wanted])) {
                *sum += factor * value;
            }
        }
    }
    for (at, line) in system.iter_mut().enumerate() {
        line[at] += RIDGE;
    }
    // Positive definite: no pivot is needed.
    for pivot in 0..size {
        let line = system[pivot].clone();
        for (at, other) in system.iter_mut().enumerate() {
            if at != pivot {
                let factor = other[pivot] / line[pivot];
                for (value, part) in other.iter_mut().zip(&line) {
                    *value -= factor * part;
                }
            }
        }
    }
    let solved = system.iter().enumerate();
    solved.map(|(at, line)| line[size] / line[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_found_where_there_is_one() {
        let rows: Vec<Vec<f64>> = (0..20)
            .map(|at| vec![f64::from(at * 7 % 5), f64::from(at * 3 % 8), 1.0])
            .collect();
        let wanted: Vec<f64> = rows.iter().map(|row| 2.0 * row[0] - row[1] + 0.5).collect();
        let found = least_squares(&rows, &wanted);
        for (found, wanted) in found.iter().zip([2.0, -1.0, 0.5]) {
            assert!((found - wanted).abs() < 1e-2, "{found} {wanted}");
        }
    }
}
