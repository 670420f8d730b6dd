//! Sums of rows that were computed apart.

use candle_core::{Device, Result, Tensor, bail};

use super::cpu;

/// Each result row is a weighted sum of `each` rows of `x [rows, cols]`: the `i`-th has the rows and weights from
/// `i * each`, added in this order.
pub fn weighted_sums(x: &Tensor, rows: &[u32], weights: &[f32], each: usize) -> Result<Tensor> {
    let count = x.dim(0)?;
    if each == 0 || rows.len() != weights.len() || !rows.len().is_multiple_of(each) {
        let (rows, weights) = (rows.len(), weights.len());
        bail!("{rows} rows and {weights} weights do not make sums of {each}");
    }
    if let Some(row) = rows.iter().find(|&&row| row as usize >= count) {
        bail!("row {row} is out of range (rows: {count})");
    }
    if let Device::Cpu = x.device() {
        return cpu::weighted_sums(x, rows, weights, each);
    }
    let sums = rows.len() / each;
    let device = x.device();
    let weights = Tensor::from_slice(weights, (sums, each, 1), device)?.to_dtype(x.dtype())?;
    let rows = x.index_select(&Tensor::new(rows, device)?, 0)?;
    let rows = rows.reshape((sums, each, x.dim(1)?))?;
    rows.broadcast_mul(&weights)?.sum(1)
}
