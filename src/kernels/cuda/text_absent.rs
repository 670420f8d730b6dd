//! Stands where CUDA is not built in: nothing is done, and no tensor is on a GPU.

use candle_core::{Device, Result, Tensor};

use crate::{GateKind, RopeStyle};

pub fn open_gpu(index: usize) -> Result<Device> {
    Device::new_cuda(index)
}

pub fn give_back_gpu_memory(_: usize) -> Result<()> {
    Ok(())
}

pub fn gpu_free_bytes(index: usize) -> Result<u64> {
    Device::new_cuda(index).map(|_| 0)
}

pub fn select_rows(_: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
    Ok(None)
}

pub fn rotate(
    _: &Tensor,
    _: RopeStyle,
    _: &Tensor,
    _: &Tensor,
    _: &Tensor,
) -> Result<Option<Tensor>> {
    Ok(None)
}

pub fn gate(_: &Tensor, _: &Tensor, _: GateKind) -> Result<Option<Tensor>> {
    Ok(None)
}

pub fn add_rms_norm(
    _: &Tensor,
    _: &Tensor,
    _: &Tensor,
    _: f32,
) -> Result<Option<(Tensor, Tensor)>> {
    Ok(None)
}
