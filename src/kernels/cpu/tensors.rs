//! Tensors of the CPU as slices.

use candle_core::{DType, Device, Result, Storage, Tensor, WithDType, bail};

/// Calls `read` with the tensor's values in row-major order, copied only if they are strided.
pub fn with_slice<T: WithDType, R>(
    tensor: &Tensor,
    read: impl FnOnce(&[T]) -> Result<R>,
) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        bail!("expected a CPU tensor, got one on {:?}", tensor.device());
    };
    match layout.contiguous_offsets() {
        Some((start, end)) => read(&storage.as_slice::<T>()?[start..end]),
        None => read(&tensor.flatten_all()?.to_vec1::<T>()?),
    }
}

/// Calls `read` with a float tensor's values as f32, converted only if they are not.
pub fn with_floats<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> Result<R>) -> Result<R> {
    match tensor.dtype() {
        DType::F32 => with_slice(tensor, read),
        _ => with_slice(&tensor.to_dtype(DType::F32)?, read),
    }
}

/// A new f32 tensor on the CPU.
pub fn from_floats(values: Vec<f32>, shape: &[usize]) -> Result<Tensor> {
    Tensor::from_vec(values, shape, &Device::Cpu)
}
