//! Resize of bytes with antialiasing, in the integers of Pillow and of PyTorch.

use std::ops::Range;

/// Colors of a place.
const CHANNELS: usize = 3;

/// The interpolation kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    Bilinear,
    Bicubic,
    Lanczos,
}

impl Filter {
    /// Pillow's number of it, and its name.
    pub fn of_pillow(self) -> (u32, &'static str) {
        match self {
            Self::Lanczos => (1, "Lanczos"),
            Self::Bilinear => (2, "bilinear"),
            Self::Bicubic => (3, "bicubic"),
        }
    }

    /// Radius of the kernel, in positions of the smaller image.
    fn reach(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        match self {
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Bicubic => cubic(x),
            Self::Lanczos if x.abs() < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

/// How weights are rounded to integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Rounded like Pillow's, to 22 bits.
    Pillow,
    /// Rounded like PyTorch's for bytes: to as many bits as 16-bit integers hold.
    Torch,
}

/// Resizes rows of RGB bytes from `[width, height]` to `to`. Lines are rounded to bytes before columns are.
pub fn resize(
    bytes: &[u8],
    from: [usize; 2],
    to: [usize; 2],
    filter: Filter,
    weights: Weights,
) -> Vec<u8> {
    resize_part(bytes, from, to, [0..to[0], 0..to[1]], (filter, weights))
}

/// The columns and rows `part` of the resized image.
pub fn resize_part(
    bytes: &[u8],
    [width, height]: [usize; 2],
    to: [usize; 2],
    [columns, rows]: [Range<usize>; 2],
    by: (Filter, Weights),
) -> Vec<u8> {
    let columns = Taps::all(width, to[0], columns, by);
    let rows = Taps::all(height, to[1], rows, by);
    let line = columns.places.len() * CHANNELS;
    // Only source lines of the requested rows are resized.
    let first = rows.places.iter().map(|place| place.first).min();
    let end = rows.places.iter().map(Place::end).max();
    let (first, end) = (first.unwrap_or(0), end.unwrap_or(0));
    let mut across = vec![0; (end - first) * line];
    let lines = bytes.chunks_exact(width * CHANNELS).skip(first);
    for (line, resized) in lines.zip(across.chunks_exact_mut(line)) {
        columns.along(line, resized);
    }
    let mut result = vec![0; rows.places.len() * line];
    let mut sums = vec![0; line];
    for (place, resized) in rows.places.iter().zip(result.chunks_exact_mut(line)) {
        sums.fill(rows.half());
        let lines = across.chunks_exact(line).skip(place.first - first);
        for (weight, line) in place.weights.iter().zip(lines) {
            for (sum, &byte) in sums.iter_mut().zip(line) {
                *sum += weight * i32::from(byte);
            }
        }
        for (byte, sum) in resized.iter_mut().zip(&sums) {
            *byte = rows.byte(*sum);
        }
    }
    result
}

/// The weighted sources of each position along an axis.
struct Taps {
    places: Vec<Place>,
    /// Fractional bits of a weight.
    precision: u32,
}

/// A position's weights of the sources from `first` on.
struct Place {
    first: usize,
    weights: Vec<i32>,
}

impl Place {
    fn end(&self) -> usize {
        self.first + self.weights.len()
    }
}

impl Taps {
    fn all(
        from: usize,
        to: usize,
        part: Range<usize>,
        (filter, rounding): (Filter, Weights),
    ) -> Self {
        if from == to {
            return Self::unchanged(part);
        }
        let scale = from as f64 / to as f64;
        let exact = |at| exact_weights(at, from, scale, filter);
        let precision = match rounding {
            Weights::Pillow => 22,
            Weights::Torch => {
                let most = (0..to).flat_map(|at| exact(at).1);
                torch_precision(most.fold(0.0, f64::max))
            }
        };
        let places = part.map(|at| {
            let (first, weights) = exact(at);
            let rounded = |weight: f64| (weight * f64::from(1_u32 << precision)).round() as i32;
            let weights = weights.into_iter().map(rounded).collect();
            Place { first, weights }
        });
        Self {
            places: places.collect(),
            precision,
        }
    }

    fn unchanged(part: Range<usize>) -> Self {
        let place = |first| Place {
            first,
            weights: vec![1 << 8],
        };
        Self {
            places: part.map(place).collect(),
            precision: 8,
        }
    }

    fn along(&self, line: &[u8], resized: &mut [u8]) {
        for (place, color) in self
            .places
            .iter()
            .zip(resized.as_chunks_mut::<CHANNELS>().0)
        {
            let mut sums = [self.half(); CHANNELS];
            let pixels = &line.as_chunks::<CHANNELS>().0[place.first..place.end()];
            for (weight, pixel) in place.weights.iter().zip(pixels) {
                for (sum, byte) in sums.iter_mut().zip(pixel) {
                    *sum += weight * i32::from(*byte);
                }
            }
            *color = sums.map(|sum| self.byte(sum));
        }
    }

    fn half(&self) -> i32 {
        1 << (self.precision - 1)
    }

    fn byte(&self, sum: i32) -> u8 {
        (sum >> self.precision).clamp(0, 255) as u8
    }
}

/// The first place that a place of the other size is made of, and the weights from there on.
fn exact_weights(at: usize, from: usize, scale: f64, filter: Filter) -> (usize, Vec<f64>) {
    let wide = scale.max(1.0);
    let (center, reach) = ((at as f64 + 0.5) * scale, filter.reach() * wide);
    let first = ((center - reach + 0.5).max(0.0)) as usize;
    let end = ((center + reach + 0.5) as usize).min(from);
    let weight = |place: usize| filter.weight((place as f64 - center + 0.5) / wide);
    let weights: Vec<f64> = (first..end).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    (first, weights.into_iter().map(|it| it / sum).collect())
}

/// The most bits that keep the largest weight below 2^15.
fn torch_precision(most: f64) -> u32 {
    let fits = |bits: &u32| 0.5 + most * f64::from(1_u32 << (bits + 1)) < f64::from(1 << 15);
    (0..22).find(|bits| !fits(bits)).unwrap_or(22)
}

fn sinc(x: f64) -> f64 {
    let x = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
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

#[cfg(test)]
mod tests {
    use super::*;

    const FILTERS: [Filter; 3] = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos];

    #[test]
    fn an_image_of_one_color_keeps_it_at_every_size() {
        let bytes = [12, 200, 255].repeat(7 * 5);
        for to in [[1, 1], [7, 5], [40, 3], [3, 41]] {
            for weights in [Weights::Pillow, Weights::Torch] {
                for filter in FILTERS {
                    let found = resize(&bytes, [7, 5], to, filter, weights);
                    assert_eq!(found, [12, 200, 255].repeat(to[0] * to[1]), "{to:?}");
                }
            }
        }
    }

    #[test]
    fn a_part_is_cut_out_of_the_whole() {
        let bytes: Vec<u8> = (0..11 * 9 * 3).map(|at| (at * 37 % 256) as u8).collect();
        for filter in FILTERS {
            let by = (filter, Weights::Pillow);
            let whole = resize(&bytes, [11, 9], [8, 6], filter, Weights::Pillow);
            let part = resize_part(&bytes, [11, 9], [8, 6], [2..7, 1..4], by);
            let rows = (1..4).flat_map(|row| whole[(row * 8 + 2) * 3..(row * 8 + 7) * 3].to_vec());
            assert_eq!(part, rows.collect::<Vec<u8>>());
        }
    }
}
