//! Root-mean-square normalization.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use candle_core::{D, Result, Tensor, bail};

use super::level::{Level, at_every_level};
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// Lanes of partial sums, the same for all instruction sets, so that results have the same bits.
const LANES: usize = 16;

pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let cols = width(x, weight)?;
    with_floats(x, |x_values| {
        with_floats(weight, |weight| {
            let mut result = vec![0f32; x_values.len()];
            let rows = Disjoint::new(&mut result);
            share(x_values.len() / cols, x_values.len(), |range| {
                for row in range {
                    let span = row * cols..(row + 1) * cols;
                    // SAFETY: each row is visited once.
                    let out = unsafe { rows.part(span.clone()) };
                    norm_row(&x_values[span], weight, eps, out);
                }
            });
            from_floats(result, x.dims())
        })
    })
}

pub fn add_rms_norm(
    x: &Tensor,
    delta: &Tensor,
    weight: &Tensor,
    eps: f32,
) -> Result<(Tensor, Tensor)> {
    let cols = width(x, weight)?;
    if x.dims() != delta.dims() {
        bail!(
            "a residual of shape {:?} does not fit {:?}",
            delta.dims(),
            x.dims()
        );
    }
    with_floats(x, |x_values| {
        with_floats(delta, |delta| {
            with_floats(weight, |weight| {
                let mut sums = vec![0f32; x_values.len()];
                let mut normed = vec![0f32; x_values.len()];
                let (sum_rows, rows) = (Disjoint::new(&mut sums), Disjoint::new(&mut normed));
                share(x_values.len() / cols, 2 * x_values.len(), |range| {
                    for row in range {
                        let span = row * cols..(row + 1) * cols;
                        // SAFETY: each row is visited once.
                        let sum = unsafe { sum_rows.part(span.clone()) };
                        // SAFETY: each row is visited once.
                        let out = unsafe { rows.part(span.clone()) };
                        let terms = x_values[span.clone()].iter().zip(&delta[span]);
                        for (sum, (a, b)) in sum.iter_mut().zip(terms) {
                            *sum = a + b;
                        }
                        norm_row(sum, weight, eps, out);
                    }
                });
                Ok((from_floats(sums, x.dims())?, from_floats(normed, x.dims())?))
            })
        })
    })
}

fn width(x: &Tensor, weight: &Tensor) -> Result<usize> {
    let cols = x.dim(D::Minus1)?;
    if weight.dims() != [cols] || cols == 0 {
        bail!(
            "a norm of shape {:?} does not fit rows of {cols}",
            weight.dims()
        );
    }
    Ok(cols)
}

at_every_level! {
    fn norm_row_at(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = norm_row_as;
}

fn norm_row(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    norm_row_at(Level::best(), x, weight, eps, out);
}

#[inline(always)]
fn norm_row_as<const FAST: bool>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mean = sum_of_squares(x) / x.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    let tail: f32 = rest.iter().map(|value| value * value).sum();
    lanes.iter().sum::<f32>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn a_row_has_the_wanted_length_and_does_not_depend_on_others() {
        let x = Tensor::randn(0f32, 2.0, (7, 100), &Device::Cpu).unwrap();
        let weight = Tensor::randn(0f32, 1.0, 100, &Device::Cpu).unwrap();
        let all = rms_norm(&x, &weight, 1e-5).unwrap();
        let wanted = candle_nn::ops::rms_norm_slow(&x, &weight, 1e-5).unwrap();
        let gap = (&all - wanted).unwrap().abs().unwrap().max_all().unwrap();
        assert!(gap.to_scalar::<f32>().unwrap() < 1e-5);
        for row in 0..7 {
            let alone = rms_norm(&x.narrow(0, row, 1).unwrap(), &weight, 1e-5).unwrap();
            let among = all.narrow(0, row, 1).unwrap();
            assert_eq!(
                alone.to_vec2::<f32>().unwrap(),
                among.to_vec2::<f32>().unwrap()
            );
        }
    }

    #[test]
    fn adding_first_is_the_same_as_adding_before() {
        let x = Tensor::randn(0f32, 2.0, (3, 64), &Device::Cpu).unwrap();
        let delta = Tensor::randn(0f32, 2.0, (3, 64), &Device::Cpu).unwrap();
        let weight = Tensor::ones(64, candle_core::DType::F32, &Device::Cpu).unwrap();
        let (sum, normed) = add_rms_norm(&x, &delta, &weight, 1e-6).unwrap();
        let wanted = (&x + &delta).unwrap();
        assert_eq!(
            sum.to_vec2::<f32>().unwrap(),
            wanted.to_vec2::<f32>().unwrap()
        );
        let wanted = rms_norm(&wanted, &weight, 1e-6).unwrap();
        assert_eq!(
            normed.to_vec2::<f32>().unwrap(),
            wanted.to_vec2::<f32>().unwrap()
        );
    }
}
