//! Sums of rows that were computed apart.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use candle_core::{Result, Tensor};

use super::level::{Level, at_every_level};
use super::math::multiply_add;
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// See [`crate::weighted_sums`], which checks the arguments.
pub fn weighted_sums(x: &Tensor, rows: &[u32], weights: &[f32], each: usize) -> Result<Tensor> {
    let cols = x.dim(1)?;
    let sums = rows.len() / each;
    with_floats(x, |values| {
        let mut result = vec![0f32; sums * cols];
        let parts = Disjoint::new(&mut result);
        share(sums, rows.len() * cols / 4, |range| {
            for index in range {
                // SAFETY: each row of the result is visited once.
                let sum = unsafe { parts.part(index * cols..(index + 1) * cols) };
                let terms = index * each..(index + 1) * each;
                for (row, weight) in rows[terms.clone()].iter().zip(&weights[terms]) {
                    let row = &values[*row as usize * cols..][..cols];
                    add_row(Level::best(), *weight, row, sum);
                }
            }
        });
        from_floats(result, &[sums, cols])
    })
}

at_every_level! {
    /// `sum += weight * row`.
    fn add_row(weight: f32, row: &[f32], sum: &mut [f32]) = add_row_as;
}

#[inline(always)]
fn add_row_as<const FAST: bool>(weight: f32, row: &[f32], sum: &mut [f32]) {
    for (sum, number) in sum.iter_mut().zip(row) {
        *sum = multiply_add::<FAST>(weight, *number, *sum);
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn each_sum_has_its_own_rows_and_weights() {
        let x: Vec<f32> = (0..12).map(|at| at as f32).collect();
        let x = Tensor::from_vec(x, (4, 3), &Device::Cpu).unwrap();
        let sums = crate::weighted_sums(&x, &[3, 0, 1, 1], &[1.0, 2.0, 0.5, -1.0], 2).unwrap();
        let sums: Vec<Vec<f32>> = sums.to_vec2().unwrap();
        assert_eq!(sums, [[9.0, 12.0, 15.0], [-1.5, -2.0, -2.5]]);
        assert!(crate::weighted_sums(&x, &[4], &[1.0], 1).is_err());
        assert!(crate::weighted_sums(&x, &[1, 2, 3], &[1.0; 3], 2).is_err());
    }
}
