//! An image made smaller row by row: a pixel is the mean of the area that it covers.

use super::{Channels, ImageError, Pixels, Size};

const CHANNELS: usize = Channels::Rgba.count();

/// Downscales an image row by row, top first, with two rows of the result in memory besides its pixels.
pub struct AreaMean {
    from: Size,
    to: Size,
    columns: Vec<Share>,
    /// Rows taken.
    taken: u32,
    /// The last row, as wide as the smaller image.
    row: Vec<f32>,
    /// Sums of the current row of the result.
    sums: Vec<f32>,
    bytes: Vec<u8>,
}

/// How a pixel or a row is divided between two of the smaller image: the first of them, and the weights of both.
struct Share {
    first: usize,
    weights: [f32; 2],
}

impl AreaMean {
    /// Neither side of the smaller image is longer.
    pub fn new(from: Size, to: Size) -> Self {
        let width = to.width as usize * CHANNELS;
        Self {
            from,
            to,
            columns: (0..from.width)
                .map(|x| Share::of(x, from.width, to.width))
                .collect(),
            taken: 0,
            row: vec![0.0; width],
            sums: vec![0.0; width],
            bytes: Vec::with_capacity(width * to.height as usize),
        }
    }

    /// The next row, as many pixels as the larger image is wide.
    pub fn push(&mut self, pixels: impl Iterator<Item = [u8; CHANNELS]>) {
        self.row.fill(0.0);
        for (share, pixel) in self.columns.iter().zip(pixels) {
            let start = share.first * CHANNELS;
            for (index, value) in pixel.map(f32::from).into_iter().enumerate() {
                self.row[start + index] += value * share.weights[0];
            }
            if share.weights[1] > 0.0 {
                let start = start + CHANNELS;
                for (index, value) in pixel.map(f32::from).into_iter().enumerate() {
                    self.row[start + index] += value * share.weights[1];
                }
            }
        }
        let Share { first, weights } = Share::of(self.taken, self.from.height, self.to.height);
        self.taken += 1;
        for (sum, value) in self.sums.iter_mut().zip(&self.row) {
            *sum += value * weights[0];
        }
        let is_full = self.taken == self.from.height || {
            Share::of(self.taken, self.from.height, self.to.height).first > first
        };
        if is_full {
            let bytes = self.sums.iter().map(|sum| sum.round() as u8);
            self.bytes.extend(bytes);
            for (sum, value) in self.sums.iter_mut().zip(&self.row) {
                *sum = value * weights[1];
            }
        }
    }

    /// Fails where a row is missing.
    pub fn finish(self) -> Result<Pixels, ImageError> {
        Pixels::new(self.to, Channels::Rgba, self.bytes)
    }
}

impl Share {
    /// In units of which each pixel of the smaller image has `from`, and each of the larger one `to`.
    fn of(at: u32, from: u32, to: u32) -> Self {
        let [at, from, to] = [at, from, to].map(u64::from);
        let start = at * to;
        let first = start / from;
        let inside = to.min((first + 1) * from - start);
        let weight = |units: u64| units as f32 / from as f32;
        Self {
            first: first as usize,
            weights: [weight(inside), weight(to - inside)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AreaMean;
    use crate::image::Size;

    fn reduced(from: Size, to: Size, value: impl Fn(u32, u32) -> u8) -> Vec<u8> {
        let mut mean = AreaMean::new(from, to);
        for y in 0..from.height {
            mean.push((0..from.width).map(|x| [value(x, y), 0, 100, 255]));
        }
        let pixels = mean.finish().unwrap();
        assert_eq!(pixels.size(), to);
        for pixel in pixels.bytes().chunks_exact(4) {
            assert_eq!(pixel[1..], [0, 100, 255]);
        }
        pixels.bytes().chunks_exact(4).map(|it| it[0]).collect()
    }

    const fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    #[test]
    fn a_pixel_is_the_mean_of_its_area() {
        // Columns of 0, 60, 120: the first of two is 0 and half of 60.
        let columns = reduced(size(3, 1), size(2, 1), |x, _| 60 * x as u8);
        assert_eq!(columns, [20, 100]);
        let rows = reduced(size(1, 5), size(1, 2), |_, y| 50 * y as u8);
        assert_eq!(rows, [40, 160]);
        let blocks = reduced(size(4, 4), size(2, 2), |x, y| (10 * x + 40 * y) as u8);
        assert_eq!(blocks, [25, 45, 105, 125]);
    }

    #[test]
    fn an_image_of_the_same_size_stays() {
        let same = reduced(size(5, 3), size(5, 3), |x, y| (x * 7 + y * 50) as u8);
        let expected: Vec<u8> = (0..3)
            .flat_map(|y| (0..5).map(move |x| x * 7 + y * 50))
            .collect();
        assert_eq!(same, expected);
    }

    #[test]
    fn an_image_without_its_last_row_is_refused() {
        let mut mean = AreaMean::new(size(2, 4), size(1, 2));
        for _ in 0..3 {
            mean.push([[1; 4], [2; 4]].into_iter());
        }
        assert!(mean.finish().is_err());
    }
}
