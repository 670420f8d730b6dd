//! The periodic activation of networks that make sound.

#![expect(unsafe_code, reason = "threads write disjoint parts of one result")]

use candle_core::{D, Result, Tensor, bail};

use super::level::{Level, at_every_level};
use super::math::sine_squared;
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// Rows that a thread takes at once.
const ROWS: usize = 16;

at_every_level! {
    /// `inverse` is that of `beta`.
    fn snake_rows(x: &[f32], alpha: &[f32], inverse: &[f32], out: &mut [f32]) = snake_rows_as;
}

#[inline(always)]
fn snake_rows_as<const FAST: bool>(x: &[f32], alpha: &[f32], inverse: &[f32], out: &mut [f32]) {
    let rows = x.chunks_exact(alpha.len());
    for (row, out) in rows.zip(out.chunks_exact_mut(alpha.len())) {
        for ((out, x), (alpha, inverse)) in out.iter_mut().zip(row).zip(alpha.iter().zip(inverse)) {
            *out = x + sine_squared(alpha * x) * inverse;
        }
    }
}

/// See [`crate::snake()`].
pub fn snake(x: &Tensor, alpha: &Tensor, beta: &Tensor) -> Result<Tensor> {
    let channels = x.dim(D::Minus1)?;
    if alpha.dims() != [channels] || beta.dims() != [channels] || channels == 0 {
        bail!(
            "factors of shapes {:?} and {:?} do not fit {channels} channels",
            alpha.dims(),
            beta.dims()
        );
    }
    let alpha = with_floats(alpha, |values| Ok(values.to_vec()))?;
    let inverse: Vec<f32> = with_floats(beta, |values| {
        Ok(values.iter().map(|beta| 1.0 / beta).collect())
    })?;
    let result = with_floats(x, |values| {
        let mut result = vec![0f32; values.len()];
        let parts = Disjoint::new(&mut result);
        let size = ROWS * channels;
        share(values.len().div_ceil(size), 2 * values.len(), |chunks| {
            let range = chunks.start * size..(chunks.end * size).min(values.len());
            // SAFETY: `share` hands out ranges that do not overlap.
            let out = unsafe { parts.part(range.clone()) };
            snake_rows(Level::best(), &values[range], &alpha, &inverse, out);
        });
        Ok(result)
    })?;
    from_floats(result, x.dims())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn every_channel_has_its_own_period() {
        let x = Tensor::randn(0f32, 20.0, (3, 50, 7), &Device::Cpu).unwrap();
        let alpha = Tensor::new(&[0.1f32, 0.5, -1.0, 2.0, 3.3, 10.0, 40.0], &Device::Cpu).unwrap();
        let beta = alpha.affine(0.5, 0.1).unwrap();
        let found = snake(&x, &alpha, &beta)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f32>();
        let values: Vec<f32> = x.flatten_all().unwrap().to_vec1().unwrap();
        let alpha: Vec<f32> = alpha.to_vec1().unwrap();
        for (at, (found, x)) in found.unwrap().into_iter().zip(values).enumerate() {
            let alpha = alpha[at % 7];
            let beta = f64::from(alpha * 0.5 + 0.1);
            let sine = f64::from(alpha * x).sin();
            let wanted = f64::from(x) + sine * sine / beta;
            let gap = (f64::from(found) - wanted).abs();
            assert!(
                gap < 1e-6 * (1.0 / beta.abs() + wanted.abs()),
                "{x} {alpha}: {gap:e}"
            );
        }
    }
}
