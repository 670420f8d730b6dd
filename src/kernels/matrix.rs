//! Weights packed for the matrix products of this machine's CPU.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

pub use super::cpu::WeightType;
use super::{cpu, cuda};

/// A weight matrix `[rows = out, cols = in]`, laid out in tiles of sixteen rows.
///
/// The layout is the same for every instruction set; which one computes is chosen at run time.
#[derive(Debug)]
pub struct PackedMatrix(cpu::Matrix);

impl PackedMatrix {
    /// Whether [`Self::pack`] takes this type and shape.
    pub fn supports(stored: impl Into<WeightType>, rows: usize, cols: usize) -> bool {
        cpu::Matrix::supports(stored.into(), rows, cols)
    }

    /// Packs `bytes`, row-major blocks of GGUF, possibly in a mapped file: allocates only the packed copy.
    pub fn pack(
        stored: impl Into<WeightType>,
        bytes: &[u8],
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        cpu::Matrix::pack(stored.into(), bytes, rows, cols).map(Self)
    }

    pub fn rows(&self) -> usize {
        self.0.rows()
    }

    pub fn cols(&self) -> usize {
        self.0.cols()
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// `x · selfᵀ`: from f32 `[.., cols]` to f32 `[.., rows]`.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        let mut results = Self::products(&[self], x)?;
        match results.pop() {
            Some(result) => Ok(result),
            None => candle_core::bail!("a product of one matrix gave no result"),
        }
    }

    /// The products of several matrices with the same `x`, which is quantized once for all of them.
    pub fn products(matrices: &[&Self], x: &Tensor) -> Result<Vec<Tensor>> {
        let inner: Vec<_> = matrices.iter().map(|matrix| &matrix.0).collect();
        cpu::products(&inner, x)
    }

    /// For each index in the spans' lists of matrices, one tensor of the products of all rows of `x [rows, cols]`. The
    /// spans follow one another and cover all rows; a matrix that no span names is not read.
    pub fn products_of_spans(spans: &[PackedSpan<'_>], x: &Tensor) -> Result<Vec<Tensor>> {
        let inner = spans.iter().map(|span| cpu::MatrixSpan {
            rows: span.rows.clone(),
            matrices: span.matrices.iter().map(|matrix| &matrix.0).collect(),
        });
        cpu::products_of_spans(&inner.collect::<Vec<_>>(), x)
    }
}

/// Neighbouring rows, and the matrices that multiply these rows alone.
#[derive(Debug, Clone)]
pub struct PackedSpan<'a> {
    pub rows: Range<usize>,
    pub matrices: Vec<&'a PackedMatrix>,
}

/// `x · weightᵀ` for a dense weight `[outputs, inputs]` on a device: in its type if `x` has it and that is narrow,
/// otherwise in f32, with operands of the weight's type.
pub fn dense_product(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let is_narrow = weight.dtype() != DType::F32 && x.dtype() == weight.dtype();
    if is_narrow && x.rank() == 2 {
        return x.matmul(&weight.t()?);
    }
    match cuda::product(x, weight, None)? {
        Some(product) if is_narrow => product.to_dtype(x.dtype()),
        Some(product) => Ok(product),
        None => x
            .to_dtype(DType::F32)?
            .broadcast_matmul(&weight.to_dtype(DType::F32)?.t()?),
    }
}
