//! A matrix of weights on its device: dense or quantized is its own business.

use std::{borrow::Cow, ops::Range};

use candle_core::{DType, Device, Result, Tensor, quantized::GgmlDType};

use super::{convert, mxfp4};
use muster_kernels::{BlockMatrix, GateKind, PackedMatrix, PackedSpan, WeightType, dense_product};

/// A matrix of `rows` outputs by `cols` inputs.
#[derive(Debug)]
pub struct Weight {
    kind: Kind,
    bytes: u64,
}

/// Neighbouring rows, and the weights that multiply these rows alone.
#[derive(Debug)]
pub struct WeightSpan<'a, const N: usize> {
    pub rows: Range<usize>,
    pub weights: [&'a Weight; N],
}

#[derive(Debug)]
enum Kind {
    /// Laid out for this CPU's own products.
    Packed(PackedMatrix),
    /// In the blocks of GGUF, for types without a packed layout, and on other devices.
    Blocks(BlockMatrix),
    /// Other devices' dense matrices, in the type of the activations.
    Dense(Tensor),
}

impl Weight {
    /// Puts the bytes of a matrix, as files store it, on a device. `dense` is the type that dense weights take
    /// there; `None` leaves them as they are.
    pub fn place(
        dtype: GgmlDType,
        bytes: &[u8],
        (rows, cols): (usize, usize),
        device: &Device,
        dense: Option<DType>,
    ) -> Result<Self> {
        let (dtype, bytes) = match convert::is_dense(dtype) {
            true => convert::dense_as(dtype, bytes, dense)?,
            false => (dtype, Cow::Borrowed(bytes)),
        };
        let size = bytes.len() as u64;
        if device.is_cpu() && PackedMatrix::supports(dtype, rows, cols) {
            let packed = PackedMatrix::pack(dtype, &bytes, rows, cols)?;
            let bytes = packed.bytes() as u64;
            let kind = Kind::Packed(packed);
            return Ok(Self { kind, bytes });
        }
        let kind = match convert::dense_dtype(dtype) {
            Some(dtype) => Kind::Dense(Tensor::from_raw_buffer(
                &bytes,
                dtype,
                &[rows, cols],
                device,
            )?),
            None => {
                let bytes = convert::aligned(&bytes);
                Kind::Blocks(BlockMatrix::new(dtype, bytes, (rows, cols), device)?)
            }
        };
        Ok(Self { kind, bytes: size })
    }

    /// The same of blocks of MXFP4, as GGUF stores them. Other devices than the CPU hold the same numbers in Q5_0, which
    /// takes 5.5 bits for each of them and not 4.5.
    pub fn place_mxfp4(bytes: &[u8], shape: (usize, usize), device: &Device) -> Result<Self> {
        if device.is_cpu() {
            let packed = PackedMatrix::pack(WeightType::MxFp4, bytes, shape.0, shape.1)?;
            let bytes = packed.bytes() as u64;
            let kind = Kind::Packed(packed);
            return Ok(Self { kind, bytes });
        }
        let bytes = mxfp4::as_q5_0(bytes)?;
        Self::place(GgmlDType::Q5_0, &bytes, shape, device, None)
    }

    /// Device memory of the weight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `x [t, cols]` times the matrix: `[t, rows]`.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        match &self.kind {
            Kind::Packed(matrix) => matrix.product(x),
            Kind::Blocks(matrix) => matrix.product(x),
            Kind::Dense(matrix) => dense_product(x, matrix),
        }
    }

    /// Several products of the same rows; where the device quantizes activations it does so once.
    pub fn products(weights: &[&Self], x: &Tensor) -> Result<Vec<Tensor>> {
        let packed = weights.iter().map(|weight| weight.packed());
        if let Some(matrices) = packed.collect::<Option<Vec<_>>>() {
            return PackedMatrix::products(&matrices, x);
        }
        let blocks = weights.iter().map(|weight| weight.blocks());
        match blocks.collect::<Option<Vec<_>>>() {
            Some(matrices) => BlockMatrix::products(&matrices, x),
            None => weights.iter().map(|weight| weight.product(x)).collect(),
        }
    }

    /// `activation(gate) * up` where the device computes it with the products; else `None`.
    pub fn gated(
        [gate, up]: [&Self; 2],
        x: &Tensor,
        activation: GateKind,
    ) -> Result<Option<Tensor>> {
        match (gate.blocks(), up.blocks()) {
            (Some(gate), Some(up)) => BlockMatrix::gated([gate, up], x, activation),
            _ => Ok(None),
        }
    }

    /// The products of all rows of `x [rows, cols]`, which the spans cover consecutively: a tensor for each of the
    /// spans' weights.
    pub fn products_of_spans<const N: usize>(
        spans: &[WeightSpan<'_, N>],
        x: &Tensor,
    ) -> Result<Vec<Tensor>> {
        let packed = spans.iter().map(|span| {
            let matrices = span.weights.iter().map(|weight| weight.packed());
            Some(PackedSpan {
                rows: span.rows.clone(),
                matrices: matrices.collect::<Option<_>>()?,
            })
        });
        if let Some(spans) = packed.collect::<Option<Vec<_>>>() {
            return PackedMatrix::products_of_spans(&spans, x);
        }
        let products = (0..N).map(|at| {
            let parts = spans.iter().map(|span| {
                let rows = x.narrow(0, span.rows.start, span.rows.len())?;
                span.weights[at].product(&rows)
            });
            Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 0)
        });
        products.collect()
    }

    fn packed(&self) -> Option<&PackedMatrix> {
        match &self.kind {
            Kind::Packed(matrix) => Some(matrix),
            _ => None,
        }
    }

    fn blocks(&self) -> Option<&BlockMatrix> {
        match &self.kind {
            Kind::Blocks(matrix) => Some(matrix),
            _ => None,
        }
    }
}
