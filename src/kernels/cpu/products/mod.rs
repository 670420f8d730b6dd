//! Products of activations with packed weights.
//!
//! A weight matrix is cut into panels of sixteen rows, a panel into blocks along the columns. A micro-kernel
//! multiplies one panel with a group of up to eight activation rows; the driver here cuts the work into
//! panels and groups. Each result is accumulated along its row in one fixed order, whatever the group.

#![expect(unsafe_code, reason = "threads write disjoint parts of one result")]

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
mod pack;
mod portable;

use candle_core::quantized::GgmlDType;
use candle_core::{D, Result, Tensor, bail};

use self::activations::{Activations, Form};
use self::blocks::Kind;
use super::level::Level;
use super::memory::Aligned;
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// Rows of weights in a panel.
const PANEL_ROWS: usize = 16;

/// Activation rows that a micro-kernel takes at once.
const GROUP_ROWS: usize = 8;

/// A weight matrix in panels.
#[derive(Debug)]
pub struct Matrix {
    kind: Kind,
    rows: usize,
    cols: usize,
    panels: Aligned,
}

impl Matrix {
    pub fn supports(dtype: GgmlDType, rows: usize, cols: usize) -> bool {
        let fits = |kind: Kind| rows > 0 && cols > 0 && cols.is_multiple_of(kind.stored_cols());
        Kind::of(dtype).is_some_and(fits)
    }

    pub fn pack(dtype: GgmlDType, bytes: &[u8], rows: usize, cols: usize) -> Result<Self> {
        let kind = match Kind::of(dtype) {
            Some(kind) if Self::supports(dtype, rows, cols) => kind,
            _ => bail!("no packing for {dtype:?} weights of {rows} x {cols}"),
        };
        let row_bytes = cols / kind.stored_cols() * kind.stored_bytes();
        if rows.checked_mul(row_bytes) != Some(bytes.len()) {
            bail!(
                "{} bytes were given for {dtype:?} weights of {rows} x {cols}, which take {rows} x {row_bytes}",
                bytes.len()
            );
        }
        let panels = pack::pack(kind, bytes, rows, cols)?;
        Ok(Self {
            kind,
            rows,
            cols,
            panels,
        })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn bytes(&self) -> usize {
        self.panels.bytes()
    }

    fn panel(&self, index: usize) -> &[u8] {
        let bytes = self.kind.panel_bytes(self.cols);
        &self.panels.view::<u8>()[index * bytes..(index + 1) * bytes]
    }

    fn panel_count(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }
}

/// The products of all `matrices` with `x`, whose quantization they share.
pub fn products(matrices: &[&Matrix], x: &Tensor) -> Result<Vec<Tensor>> {
    products_at(Level::best(), matrices, x)
}

fn products_at(level: Level, matrices: &[&Matrix], x: &Tensor) -> Result<Vec<Tensor>> {
    let cols = x.dim(D::Minus1)?;
    for matrix in matrices {
        if matrix.cols != cols {
            bail!(
                "rows of {cols} do not fit weights of {} x {}",
                matrix.rows,
                matrix.cols
            );
        }
    }
    let prepared = with_floats(x, |values| Ok(prepare(matrices, values, cols)))?;
    let mut results = Vec::with_capacity(matrices.len());
    for matrix in matrices {
        let Some(activations) = prepared.iter().find(|a| a.form() == matrix.kind.form()) else {
            bail!("activations were not prepared for {:?}", matrix.kind);
        };
        let values = multiply(level, matrix, activations);
        let mut shape = x.dims().to_vec();
        shape.pop();
        shape.push(matrix.rows);
        results.push(from_floats(values, &shape)?);
    }
    Ok(results)
}

/// The activations in every form that one of the matrices wants.
fn prepare(matrices: &[&Matrix], values: &[f32], cols: usize) -> Vec<Activations> {
    let forms = [Form::Floats, Form::Blocks32, Form::Blocks256];
    let wanted = forms
        .into_iter()
        .filter(|form| matrices.iter().any(|matrix| matrix.kind.form() == *form));
    wanted
        .map(|form| Activations::new(form, values, cols))
        .collect()
}

fn multiply(level: Level, matrix: &Matrix, activations: &Activations) -> Vec<f32> {
    let mut result = vec![0f32; activations.rows() * matrix.rows];
    let parts = Disjoint::new(&mut result);
    let cost = result_cost(matrix, activations.rows());
    share(matrix.panel_count(), cost, |panels| {
        for index in panels {
            let first = index * PANEL_ROWS;
            let width = PANEL_ROWS.min(matrix.rows - first);
            for group in activations.groups() {
                let mut sums = [[0f32; PANEL_ROWS]; GROUP_ROWS];
                let sums = &mut sums[..group.rows];
                kernel(level, matrix, index, &group, sums);
                for (row, sums) in sums.iter().enumerate() {
                    let at = (group.first + row) * matrix.rows + first;
                    // SAFETY: each panel is visited once and owns its columns.
                    let out = unsafe { parts.part(at..at + width) };
                    out.copy_from_slice(&sums[..width]);
                }
            }
        }
    });
    result
}

/// About how many nanoseconds one thread would take.
fn result_cost(matrix: &Matrix, rows: usize) -> usize {
    (matrix.rows * matrix.cols / 16).saturating_mul(rows.div_ceil(4))
}

fn kernel(
    level: Level,
    matrix: &Matrix,
    panel: usize,
    group: &activations::Group,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let (kind, panel, cols) = (matrix.kind, matrix.panel(panel), matrix.cols);
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected; panels and groups of one matrix fit each other.
        Level::Avx512 => unsafe { avx512::multiply(kind, panel, cols, group, sums) },
        _ => portable::multiply(kind, panel, cols, group, sums),
    }
}

#[cfg(test)]
mod tests;
