//! Random weights for measurements, generated on demand.

use std::path::Path;

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use half::f16;

use super::{Flaw, TensorBytes, TensorHeader, TensorSource, TensorType};

/// Tensors of small random numbers for any name.
pub struct InventedTensors {
    dtype: GgmlDType,
}

impl InventedTensors {
    /// The usual type on a device: f32 on a CPU, f16 on a GPU.
    pub fn on(device: &Device) -> Self {
        let dtype = match device {
            Device::Cpu => GgmlDType::F32,
            _ => GgmlDType::F16,
        };
        Self { dtype }
    }
}

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
        let numbers = invented(&header.shape);
        TensorBytes::Owned(match self.dtype {
            GgmlDType::F16 => numbers
                .flat_map(|number| f16::from_f32(number).to_le_bytes())
                .collect(),
            _ => numbers.flat_map(f32::to_le_bytes).collect(),
        })
    }

    fn weight(
        &self,
        name: &str,
        shapes: &[&[usize]],
        _: &str,
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let shape = shapes.first().map_or(&[][..], |shape| shape).to_vec();
        let dtype = TensorType::Weight(self.dtype);
        let header = TensorHeader::described(name.to_owned(), shape, dtype);
        let bytes = self.bytes(&header);
        Ok((header, self.dtype, bytes))
    }
}

/// Scaled so that products stay small: each output is a sum over all dimensions but the first.
fn invented(shape: &[usize]) -> impl Iterator<Item = f32> {
    let count: usize = shape.iter().product();
    let inputs = (count / shape.first().copied().unwrap_or(1).max(1)).max(1);
    let scale = (3.0 / inputs as f32).sqrt();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ count as u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        number * scale
    })
}
