//! Products of activations with packed weights.
//!
//! A weight matrix is cut into panels of sixteen rows, a panel into blocks along the columns. A micro-kernel
//! multiplies one panel with a group of up to eight activation rows; the driver here cuts the work into
//! panels and groups. Each result is accumulated along its row in one fixed order, whatever the group.

#![expect(unsafe_code, reason = "threads write disjoint parts of one result")]

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
mod pack;
mod portable;

use std::ops::Range;

use candle_core::{D, Result, Tensor, bail};

use self::activations::{Activations, Form};
use self::blocks::Kind;
pub use self::blocks::WeightType;
use super::level::Level;
use super::memory::Aligned;
use super::tensors::{from_floats, with_floats};
use super::threads::share;

/// Rows of weights in a panel.
const PANEL_ROWS: usize = 16;

/// Activation rows that a micro-kernel takes at once.
const GROUP_ROWS: usize = 8;

/// Prefetch distance in bytes: a page.
#[cfg(target_arch = "x86_64")]
const FETCHED_AHEAD: usize = 4096;

/// A weight matrix in panels.
#[derive(Debug)]
pub struct Matrix {
    kind: Kind,
    rows: usize,
    cols: usize,
    panels: Aligned,
}

impl Matrix {
    pub fn supports(stored: WeightType, rows: usize, cols: usize) -> bool {
        let fits = rows > 0 && cols > 0 && cols.is_multiple_of(stored.block_size());
        fits && Kind::of(stored).is_some()
    }

    pub fn pack(stored: WeightType, bytes: &[u8], rows: usize, cols: usize) -> Result<Self> {
        let kind = match Kind::of(stored) {
            Some(kind) if Self::supports(stored, rows, cols) => kind,
            _ => bail!("no packing for {stored:?} weights of {rows} x {cols}"),
        };
        let row_bytes = cols / stored.block_size() * stored.type_size();
        if rows.checked_mul(row_bytes) != Some(bytes.len()) {
            bail!(
                "got {} bytes for {stored:?} weights of {rows} x {cols}, expected {rows} x {row_bytes}",
                bytes.len()
            );
        }
        let panels = pack::pack(stored, kind, bytes, rows, cols)?;
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

/// The products of all `matrices` with `x`, which is quantized once for all of them.
pub fn products(matrices: &[&Matrix], x: &Tensor) -> Result<Vec<Tensor>> {
    products_at(Level::best(), matrices, x)
}

fn products_at(level: Level, matrices: &[&Matrix], x: &Tensor) -> Result<Vec<Tensor>> {
    let rows = x.elem_count() / x.dim(D::Minus1)?.max(1);
    let span = MatrixSpan {
        rows: 0..rows,
        matrices: matrices.to_vec(),
    };
    products_of_spans_at(level, &[span], x)
}

/// Neighbouring rows, and the matrices that multiply these rows alone.
#[derive(Debug, Clone)]
pub struct MatrixSpan<'a> {
    pub rows: Range<usize>,
    pub matrices: Vec<&'a Matrix>,
}

/// For each place in the spans' lists of matrices, one tensor of the products of all rows of `x`. The spans follow one
/// another and cover all rows.
pub fn products_of_spans(spans: &[MatrixSpan], x: &Tensor) -> Result<Vec<Tensor>> {
    products_of_spans_at(Level::best(), spans, x)
}

fn products_of_spans_at(level: Level, spans: &[MatrixSpan], x: &Tensor) -> Result<Vec<Tensor>> {
    let cols = x.dim(D::Minus1)?;
    let rows = x.elem_count() / cols.max(1);
    let widths = check_spans(spans, rows, cols)?;
    let prepared = with_floats(x, |values| {
        let prepared = spans.iter().map(|span| {
            let values = &values[span.rows.start * cols..span.rows.end * cols];
            prepare(level, &span.matrices, values, cols)
        });
        Ok(prepared.collect::<Vec<_>>())
    })?;
    let mut results: Vec<Vec<f32>> = widths
        .iter()
        .map(|width| Vec::with_capacity(rows * width))
        .collect();
    let mut jobs = Vec::new();
    for (span, prepared) in spans.iter().zip(&prepared) {
        for (matrix, result) in span.matrices.iter().zip(&mut results) {
            let Some(activations) = prepared.iter().find(|a| a.form() == matrix.kind.form()) else {
                bail!("activations were not prepared for {:?}", matrix.kind);
            };
            let at = span.rows.start * matrix.rows;
            // SAFETY: the capacity holds the products of all rows.
            let start = unsafe { result.as_mut_ptr().add(at) };
            jobs.push(Job::new(matrix, activations, start));
        }
    }
    multiply(level, &jobs);
    let results = results.into_iter().zip(widths).map(|(mut result, width)| {
        // SAFETY: the spans cover all rows, and their jobs wrote every column of them.
        unsafe { result.set_len(rows * width) };
        let mut shape = x.dims().to_vec();
        shape.pop();
        shape.push(width);
        from_floats(result, &shape)
    });
    results.collect()
}

/// The widths of the results.
fn check_spans(spans: &[MatrixSpan], rows: usize, cols: usize) -> Result<Vec<usize>> {
    let widths = spans.first().map_or(&[][..], |span| &span.matrices);
    let widths: Vec<usize> = widths.iter().map(|matrix| matrix.rows).collect();
    let mut next = 0;
    for span in spans {
        if let Some(matrix) = span.matrices.iter().find(|matrix| matrix.cols != cols) {
            bail!(
                "rows of {cols} do not fit weights of {} x {}",
                matrix.rows,
                matrix.cols
            );
        }
        if !span
            .matrices
            .iter()
            .map(|it| it.rows)
            .eq(widths.iter().copied())
        {
            bail!("the matrices of a span have other sizes than those of the first");
        }
        if span.rows.start != next || span.rows.end < next {
            bail!(
                "a span of the rows {:?} does not begin at {next}",
                span.rows
            );
        }
        next = span.rows.end;
    }
    match next == rows {
        true => Ok(widths),
        false => bail!("the spans cover {next} rows of {rows}"),
    }
}

/// The activations in all forms that the matrices need.
fn prepare(level: Level, matrices: &[&Matrix], values: &[f32], cols: usize) -> Vec<Activations> {
    let forms = [Form::Floats, Form::Blocks32, Form::Blocks256];
    let wanted = forms
        .into_iter()
        .filter(|form| matrices.iter().any(|matrix| matrix.kind.form() == *form));
    wanted
        .map(|form| Activations::new(level, form, values, cols))
        .collect()
}

/// Activations that are multiplied with a panel while it is in a near cache, in bytes.
const NEAR_BYTES: usize = 1 << 20;

/// A product, cut into pieces: a panel times a block of activation rows.
struct Job<'a> {
    matrix: &'a Matrix,
    activations: &'a Activations,
    block_rows: usize,
    /// Start of its result.
    start: *mut f32,
}

// SAFETY: threads write through `start`, each its own pieces.
unsafe impl Sync for Job<'_> {}

/// Destination of a micro-kernel's sums: `width` columns of each row of the group, rows `stride` apart.
#[derive(Clone, Copy)]
struct Place {
    start: *mut f32,
    stride: usize,
    width: usize,
}

impl<'a> Job<'a> {
    fn new(matrix: &'a Matrix, activations: &'a Activations, start: *mut f32) -> Self {
        let near = NEAR_BYTES / activations.row_bytes().max(1);
        Self {
            matrix,
            activations,
            block_rows: near.next_multiple_of(GROUP_ROWS).max(GROUP_ROWS),
            start,
        }
    }

    fn pieces(&self) -> usize {
        self.matrix.panel_count() * self.activations.rows().div_ceil(self.block_rows)
    }

    /// About how many nanoseconds one thread would take.
    fn cost(&self) -> usize {
        let once = self.matrix.rows * self.matrix.cols / 16;
        once.saturating_mul(self.activations.rows().div_ceil(4))
    }

    /// # Safety
    /// No two threads do the same piece.
    unsafe fn do_pieces(&self, level: Level, pieces: Range<usize>) {
        let panels = self.matrix.panel_count();
        let mut next = pieces.start;
        while next < pieces.end {
            let (block, first) = (next / panels, next % panels);
            let count = (panels - first).min(pieces.end - next);
            // SAFETY: the caller's promise.
            unsafe { self.do_panels(level, block, first..first + count) };
            next += count;
        }
    }

    /// # Safety
    /// No two threads do the same panel of a block.
    unsafe fn do_panels(&self, level: Level, block: usize, panels: Range<usize>) {
        let first = block * self.block_rows;
        let groups = self.activations.groups(first, first + self.block_rows);
        let groups: Vec<_> = groups.collect();
        for panel in panels {
            let column = panel * PANEL_ROWS;
            for group in &groups {
                let at = group.first * self.matrix.rows + column;
                let place = Place {
                    // SAFETY: the row and column are within the result.
                    start: unsafe { self.start.add(at) },
                    stride: self.matrix.rows,
                    width: PANEL_ROWS.min(self.matrix.rows - column),
                };
                // SAFETY: the place is within the result and belongs to this piece.
                unsafe { kernel(level, self.matrix, panel, group, place) };
            }
        }
    }
}

fn multiply(level: Level, jobs: &[Job]) {
    let pieces = jobs.iter().map(Job::pieces).sum();
    let cost = jobs.iter().map(Job::cost).fold(0, usize::saturating_add);
    share(pieces, cost, |range| {
        let mut first = 0;
        for job in jobs {
            let end = first + job.pieces();
            let pieces = range.start.max(first)..range.end.min(end);
            if !pieces.is_empty() {
                // SAFETY: `share` hands out every piece once.
                unsafe { job.do_pieces(level, pieces.start - first..pieces.end - first) };
            }
            first = end;
        }
    });
}

/// # Safety
/// The place can be written, for as many rows as the group has.
unsafe fn kernel(
    level: Level,
    matrix: &Matrix,
    panel: usize,
    group: &activations::Group,
    place: Place,
) {
    let (kind, panel, cols) = (matrix.kind, matrix.panel(panel), matrix.cols);
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected; panels and groups of one matrix fit each other.
        Level::Avx512 | Level::Avx512Bf16 => unsafe {
            avx512::multiply(kind, panel, cols, group, place);
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::AvxVnni => unsafe { avx2::multiply(true, kind, panel, cols, group, place) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2::multiply(false, kind, panel, cols, group, place) },
        _ => {
            let mut sums = [[0f32; PANEL_ROWS]; GROUP_ROWS];
            let sums = &mut sums[..group.rows];
            portable::multiply(kind, panel, cols, group, sums);
            for (row, sums) in sums.iter().enumerate() {
                for (column, sum) in sums[..place.width].iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { place.start.add(row * place.stride + column).write(*sum) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
