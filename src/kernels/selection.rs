//! Selection of matrix rows.

use candle_core::{Result, Tensor};

use super::cuda;

/// The rows of a matrix `[rows, columns]` with these indices (u32 `[selected]`, each below `rows`): `[selected, columns]`.
pub fn select_rows(x: &Tensor, rows: &Tensor) -> Result<Tensor> {
    match cuda::select_rows(x, rows)? {
        Some(selected) => Ok(selected),
        None => x.index_select(rows, 0),
    }
}
