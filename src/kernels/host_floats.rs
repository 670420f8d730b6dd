//! Reading tensors on the host.

use candle_core::{DType, Device, Result, Storage, Tensor, bail};

use super::cuda;

/// Host memory for the numbers of a tensor, reused from tensor to tensor. Pinned for GPUs: one copy, into pages that are
/// mapped.
#[derive(Debug, Default)]
pub struct HostFloats {
    pinned: cuda::PinnedFloats,
    plain: Vec<f32>,
}

impl HostFloats {
    /// Reads a tensor as f32, in row-major order.
    pub fn read(&mut self, x: &Tensor) -> Result<&mut [f32]> {
        let x = x.to_dtype(DType::F32)?.contiguous()?;
        if let Some(numbers) = self.pinned.read(&x)? {
            return Ok(numbers);
        }
        let x = x.to_device(&Device::Cpu)?;
        let (storage, layout) = x.storage_and_layout();
        let (Storage::Cpu(storage), Some((from, to))) = (&*storage, layout.contiguous_offsets())
        else {
            bail!("numbers on the host are in order");
        };
        self.plain.clear();
        self.plain
            .extend_from_slice(&storage.as_slice::<f32>()?[from..to]);
        Ok(&mut self.plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_order() {
        let mut host = HostFloats::default();
        let x = Tensor::arange(0f32, 6.0, &Device::Cpu).unwrap();
        let x = x.reshape((2, 3)).unwrap();
        assert_eq!(
            host.read(&x.t().unwrap()).unwrap(),
            [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
        );
        let second = x.narrow(0, 1, 1).unwrap().to_dtype(DType::F16).unwrap();
        assert_eq!(host.read(&second).unwrap(), [3.0, 4.0, 5.0]);
        assert_eq!(host.read(&x.narrow(0, 0, 0).unwrap()).unwrap(), [0f32; 0]);
    }
}
