//! Matrices in the blocks of GGUF, on other devices than the CPU.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{Device, Module, Result, Tensor};

use super::{GateKind, cuda, dense_product};

/// A matrix of `rows` outputs by `cols` inputs.
#[derive(Debug)]
pub struct BlockMatrix {
    tensor: Arc<QTensor>,
    /// candle's product of it.
    product: QMatMul,
}

impl BlockMatrix {
    /// The bytes are row-major blocks of GGUF.
    pub fn new(
        dtype: GgmlDType,
        bytes: Cow<'_, [u8]>,
        shape: (usize, usize),
        device: &Device,
    ) -> Result<Self> {
        let storage = QStorage::from_data(bytes, device, dtype)?;
        let tensor = Arc::new(QTensor::new(storage, shape)?);
        let product = QMatMul::from_arc(Arc::clone(&tensor))?;
        Ok(Self { tensor, product })
    }

    /// `x [t, cols]` times the matrix: `[t, rows]`.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        match cuda::few_rows(&[self], x)? {
            Some(mut results) if results.len() == 1 => Ok(results.remove(0)),
            _ => self.whole_product(x),
        }
    }

    /// Several products of the same rows. On GPUs few rows are rounded to eight bits once for all of them, and matrices
    /// of one type share a launch.
    pub fn products(matrices: &[&Self], x: &Tensor) -> Result<Vec<Tensor>> {
        if let Some(results) = cuda::few_rows(matrices, x)? {
            return Ok(results);
        }
        let products = matrices.iter().map(|matrix| matrix.whole_product(x));
        products.collect()
    }

    /// `activation(x · gateᵀ) * (x · upᵀ)` in one launch. `None` off GPUs, for many rows, and for matrices of several
    /// types or shapes.
    pub fn gated(
        [gate, up]: [&Self; 2],
        x: &Tensor,
        activation: GateKind,
    ) -> Result<Option<Tensor>> {
        cuda::few_gated_rows([gate, up], x, activation)
    }

    pub fn dtype(&self) -> GgmlDType {
        self.tensor.dtype()
    }

    pub fn shape(&self) -> Result<(usize, usize)> {
        self.tensor.shape().dims2()
    }

    /// The blocks in candle's hands.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "GPUs alone read it")
    )]
    pub(crate) fn blocks(&self) -> &QTensor {
        &self.tensor
    }

    pub(crate) fn whole_product(&self, x: &Tensor) -> Result<Tensor> {
        if reads_whole(x)? {
            return dense_product(x, &self.product.dequantize_f16()?)?.to_dtype(x.dtype());
        }
        self.product.forward(x)
    }
}

/// For this many rows or more on a GPU, dequantizing the whole matrix to f16 for each cuBLAS product is faster.
const ROWS_OF_WHOLE: usize = 256;

fn reads_whole(x: &Tensor) -> Result<bool> {
    Ok(x.device().is_cuda() && x.dim(0)? >= ROWS_OF_WHOLE && cuda::has_vendor_products())
}
