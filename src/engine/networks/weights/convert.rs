//! Converts stored numbers: widening, narrowing, quantizing.

use std::{borrow::Cow, num::NonZero, thread};

use candle_core::{
    DType, Device, Result, Tensor, bail,
    quantized::{GgmlDType, QTensor},
};
use half::{bf16, f16};

/// Quantization of dense weights during loading. Quantized weights keep their type, and rows that are not whole blocks
/// stay dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantize {
    Q8_0,
    /// The common mix: Q6_K for the output, Q8_0 for rows that are not a multiple of 256.
    Q4K,
}

impl Quantize {
    pub fn target(self, cols: usize, is_head: bool) -> Option<GgmlDType> {
        let wanted = match (self, is_head) {
            (Self::Q8_0, _) => GgmlDType::Q8_0,
            (Self::Q4K, false) => GgmlDType::Q4K,
            (Self::Q4K, true) => GgmlDType::Q6K,
        };
        let fitting = [wanted, GgmlDType::Q8_0];
        let fits = |dtype: &GgmlDType| cols.is_multiple_of(dtype.block_size());
        fitting.into_iter().find(fits)
    }
}

pub fn is_dense(dtype: GgmlDType) -> bool {
    dense_dtype(dtype).is_some()
}

pub fn dense_dtype(dtype: GgmlDType) -> Option<DType> {
    match dtype {
        GgmlDType::F32 => Some(DType::F32),
        GgmlDType::F16 => Some(DType::F16),
        GgmlDType::BF16 => Some(DType::BF16),
        _ => None,
    }
}

pub fn ggml_dtype(dtype: DType) -> Option<GgmlDType> {
    let dense = [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16];
    dense
        .into_iter()
        .find(|&dense| dense_dtype(dense) == Some(dtype))
}

/// Dense numbers as another dense type, or as they are.
pub fn dense_as(
    dtype: GgmlDType,
    bytes: &[u8],
    wanted: Option<DType>,
) -> Result<(GgmlDType, Cow<'_, [u8]>)> {
    let Some(wanted) = wanted.filter(|&wanted| dense_dtype(dtype) != Some(wanted)) else {
        return Ok((dtype, Cow::Borrowed(bytes)));
    };
    let numbers = floats(dtype, bytes)?.into_iter();
    Ok(match wanted {
        DType::F32 => (GgmlDType::F32, numbers.flat_map(f32::to_le_bytes).collect()),
        DType::F16 => {
            let bytes = numbers.flat_map(|x| f16::from_f32(x).to_le_bytes());
            (GgmlDType::F16, bytes.collect())
        }
        DType::BF16 => {
            let bytes = numbers.flat_map(|x| bf16::from_f32(x).to_le_bytes());
            (GgmlDType::BF16, bytes.collect())
        }
        other => bail!("unsupported weight type {other:?}; use f32, f16 or bf16"),
    })
}

/// Converts stored numbers of any type to f32; `bytes` are whole blocks.
pub fn floats(dtype: GgmlDType, bytes: &[u8]) -> Result<Vec<f32>> {
    let pairs = || bytes.as_chunks::<2>().0.iter();
    Ok(match dtype {
        GgmlDType::F32 => {
            let fours = bytes.as_chunks().0.iter();
            fours.map(|four| f32::from_le_bytes(*four)).collect()
        }
        GgmlDType::F16 => pairs()
            .map(|pair| f16::from_le_bytes(*pair).to_f32())
            .collect(),
        GgmlDType::BF16 => pairs()
            .map(|pair| bf16::from_le_bytes(*pair).to_f32())
            .collect(),
        _ => {
            let count = bytes.len() / dtype.type_size() * dtype.block_size();
            let blocks = dtype.from_data(aligned(bytes));
            let storage = blocks.dequantize(count)?;
            storage.as_slice::<f32>()?.to_vec()
        }
    })
}

/// candle reads blocks in place, with the alignment of its own types.
pub fn aligned(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes.as_ptr().align_offset(align_of::<f32>()) {
        0 => Cow::Borrowed(bytes),
        _ => Cow::Owned(bytes.to_vec()),
    }
}

/// The first NaN or infinity, if any, which would spoil all results.
pub fn first_odd(dtype: GgmlDType, bytes: &[u8]) -> Result<Option<f32>> {
    /// Bytes that are checked without a branch.
    const PIECE: usize = 1 << 14;
    let is_odd = |piece: &[u8]| {
        let pairs = piece.as_chunks::<2>().0.iter().copied();
        let sixteen = |exponent: u16| {
            let odd = pairs.map(|pair| u16::from_le_bytes(pair) & exponent == exponent);
            odd.fold(false, |any, odd| any | odd)
        };
        match dtype {
            GgmlDType::F16 => sixteen(0x7c00),
            GgmlDType::BF16 => sixteen(0x7f80),
            GgmlDType::F32 => {
                let fours = piece.as_chunks::<4>().0.iter().copied();
                let exponent = 0x7f80_0000;
                let odd = fours.map(|four| u32::from_le_bytes(four) & exponent == exponent);
                odd.fold(false, |any, odd| any | odd)
            }
            _ => false,
        }
    };
    match bytes.chunks(PIECE).find(|piece| is_odd(piece)) {
        None => Ok(None),
        Some(piece) => {
            let numbers = floats(dtype, piece)?;
            Ok(numbers.into_iter().find(|number| !number.is_finite()))
        }
    }
}

/// Quantizes the rows of a dense matrix, on all the machine's threads.
pub fn quantized(
    dtype: GgmlDType,
    bytes: &[u8],
    cols: usize,
    target: GgmlDType,
) -> Result<Vec<u8>> {
    let row_bytes = cols * dtype.type_size();
    let out_row_bytes = cols / target.block_size() * target.type_size();
    let rows = bytes.len() / row_bytes;
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let rows_each = rows.div_ceil(threads).max(1);
    let mut out = vec![0; rows * out_row_bytes];
    thread::scope(|scope| {
        let parts = bytes.chunks(rows_each * row_bytes);
        let outs = out.chunks_mut(rows_each * out_row_bytes);
        let running: Vec<_> = parts
            .zip(outs)
            .map(|(part, out)| {
                scope.spawn(move || {
                    quantize_rows(dtype, part, (row_bytes, out_row_bytes), target, out)
                })
            })
            .collect();
        let finished = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a quantization thread panicked"),
        });
        finished.collect::<Result<()>>()
    })?;
    Ok(out)
}

/// Converts a few rows at a time, so that the matrix is never complete in memory as f32.
const ROWS_AT_ONCE: usize = 64;

fn quantize_rows(
    dtype: GgmlDType,
    bytes: &[u8],
    (row_bytes, out_row_bytes): (usize, usize),
    target: GgmlDType,
    out: &mut [u8],
) -> Result<()> {
    let parts = bytes.chunks(ROWS_AT_ONCE * row_bytes);
    for (part, out) in parts.zip(out.chunks_mut(ROWS_AT_ONCE * out_row_bytes)) {
        let numbers = floats(dtype, part)?;
        let tensor = Tensor::from_slice(&numbers, numbers.len(), &Device::Cpu)?;
        out.copy_from_slice(&QTensor::quantize(&tensor, target)?.data()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_not_whole_blocks_fall_back() {
        assert_eq!(Quantize::Q4K.target(512, false), Some(GgmlDType::Q4K));
        assert_eq!(Quantize::Q4K.target(512, true), Some(GgmlDType::Q6K));
        assert_eq!(Quantize::Q4K.target(896, false), Some(GgmlDType::Q8_0));
        assert_eq!(Quantize::Q8_0.target(100, false), None);
    }

    #[test]
    fn quantizing_in_parts_is_quantizing_the_whole() {
        let (rows, cols) = (131, 256);
        let matrix = Tensor::randn(0_f32, 1.0, (rows, cols), &Device::Cpu).unwrap();
        let numbers = matrix.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        for target in [GgmlDType::Q8_0, GgmlDType::Q4K, GgmlDType::Q6K] {
            let found = quantized(GgmlDType::F32, &bytes, cols, target).unwrap();
            let whole = QTensor::quantize(&matrix, target).unwrap();
            assert_eq!(found, *whole.data().unwrap());
            let widened = floats(target, &found).unwrap();
            let wanted = whole
                .dequantize(&Device::Cpu)
                .unwrap()
                .flatten_all()
                .unwrap();
            assert_eq!(widened, wanted.to_vec1::<f32>().unwrap());
        }
    }
}
