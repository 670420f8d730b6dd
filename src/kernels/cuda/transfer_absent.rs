//! Stub without CUDA: no tensor is on a GPU.

use candle_core::{Device, Result, Tensor};

pub fn upload(_: &[u32], _: &Device) -> Result<Option<Tensor>> {
    Ok(None)
}

#[derive(Debug, Default)]
pub struct NoPinnedFloats;

pub use NoPinnedFloats as PinnedFloats;

impl NoPinnedFloats {
    pub fn read(&mut self, _: &Tensor) -> Result<Option<&mut [f32]>> {
        Ok(None)
    }
}
