//! Pictures and rows of samples in other sizes.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use candle_core::{Result, Tensor, bail};

use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// Interpolation between samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resampling {
    /// The nearest sample.
    Nearest,
    /// Linear interpolation. With aligned corners the outermost samples keep their positions; without, the image's
    /// edges do.
    Linear { align_corners: bool },
}

/// Two places and the share of the second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Between {
    pub places: [u32; 2],
    pub share: f32,
}

impl Resampling {
    /// The source position of each of `to` samples among `from`.
    pub fn places(self, from: usize, to: usize) -> Vec<Between> {
        let last = from.saturating_sub(1);
        let step = from as f64 / to as f64;
        let place = |at: usize| match self {
            Self::Nearest => {
                let place = ((at as f64 * step) as usize).min(last) as u32;
                Between {
                    places: [place; 2],
                    share: 0.0,
                }
            }
            Self::Linear { align_corners } => {
                let exact = match align_corners {
                    true if to > 1 => at as f64 * last as f64 / (to - 1) as f64,
                    true => 0.0,
                    false => ((at as f64 + 0.5) * step - 0.5).max(0.0),
                };
                let first = (exact as usize).min(last);
                Between {
                    places: [first as u32, (first + 1).min(last) as u32],
                    share: (exact - first as f64) as f32,
                }
            }
        };
        (0..to).map(place).collect()
    }
}

/// See [`crate::resample()`].
pub fn resample(x: &Tensor, [height, width]: [usize; 2], how: Resampling) -> Result<Tensor> {
    let (batch, from_height, from_width, channels) = x.dims4()?;
    if x.elem_count() == 0 || height * width == 0 {
        bail!("{from_height} x {from_width} places cannot become {height} x {width}");
    }
    let (ys, xs) = (
        how.places(from_height, height),
        how.places(from_width, width),
    );
    let result = with_floats(x, |values| {
        let mut result = vec![0f32; batch * height * width * channels];
        let cost = result.len() * 2;
        let rows = Disjoint::new(&mut result);
        let len = width * channels;
        share(batch * height, cost, |range| {
            for row in range {
                // SAFETY: each row is visited once.
                let out = unsafe { rows.part(row * len..(row + 1) * len) };
                let y = ys[row % height];
                let lines = y.places.map(|place| {
                    let first =
                        (row / height * from_height + place as usize) * from_width * channels;
                    &values[first..first + from_width * channels]
                });
                for (out, x) in out.chunks_exact_mut(channels).zip(&xs) {
                    let at = |line: &'_ [f32], place: u32, channel: usize| {
                        line[place as usize * channels + channel]
                    };
                    if how == Resampling::Nearest {
                        let first = x.places[0] as usize * channels;
                        out.copy_from_slice(&lines[0][first..first + channels]);
                        continue;
                    }
                    for (channel, out) in out.iter_mut().enumerate() {
                        let [above, below] = lines.map(|line| {
                            let [left, right] = x.places.map(|place| at(line, place, channel));
                            left + (right - left) * x.share
                        });
                        *out = above + (below - above) * y.share;
                    }
                }
            }
        });
        Ok(result)
    })?;
    from_floats(result, &[batch, height, width, channels])
}
