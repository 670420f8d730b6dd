//! Random weights for measurements, made up as a network asks for them.

use std::path::Path;

use candle_core::quantized::GgmlDType;

use super::{Flaw, TensorBytes, TensorHeader, TensorSource, TensorType};

/// Every tensor that is asked for, of small random numbers in f32.
pub struct InventedTensors;

impl TensorSource for InventedTensors {
    fn path(&self) -> &Path {
        Path::new("random weights")
    }

    fn headers(&self) -> &[TensorHeader] {
        &[]
    }

    fn header(&self, _: &str) -> Option<&TensorHeader> {
        None
    }

    fn bytes(&self, header: &TensorHeader) -> TensorBytes {
        TensorBytes::Owned(invented(&header.shape))
    }

    fn weight(
        &self,
        name: &str,
        shapes: &[&[usize]],
        _: &str,
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let shape = shapes.first().map_or(&[][..], |shape| shape).to_vec();
        let dtype = TensorType::Weight(GgmlDType::F32);
        let header = TensorHeader::described(name.to_owned(), shape, dtype);
        let bytes = self.bytes(&header);
        Ok((header, GgmlDType::F32, bytes))
    }
}

/// Numbers whose products stay small: each output is a sum over everything but the first dimension.
fn invented(shape: &[usize]) -> Vec<u8> {
    let count: usize = shape.iter().product();
    let inputs = (count / shape.first().copied().unwrap_or(1).max(1)).max(1);
    let scale = (3.0 / inputs as f32).sqrt();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ count as u64;
    let mut out = Vec::with_capacity(4 * count);
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        out.extend((number * scale).to_le_bytes());
    }
    out
}
