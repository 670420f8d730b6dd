//! Stands where CUDA is not built in: nothing is done, and no tensor is on a GPU.

use candle_core::{Result, Tensor};

use super::Lowering;
use crate::cpu::Mask;

pub fn product(_: &Tensor, _: &Tensor, _: Option<&Tensor>) -> Result<Option<Tensor>> {
    Ok(None)
}

pub fn convolve(
    _: &Tensor,
    _: &Tensor,
    _: Option<&Tensor>,
    lowering: &Lowering,
) -> Result<Option<Tensor>> {
    let Lowering {
        seen: [_, _],
        outputs: _,
        taps: _,
        groups: _,
    } = lowering;
    Ok(None)
}

pub fn group_norm(
    _: &Tensor,
    _: usize,
    _: Option<&Tensor>,
    _: Option<&Tensor>,
    _: f32,
) -> Result<Option<Tensor>> {
    Ok(None)
}

pub fn layer_norm(
    _: &Tensor,
    _: Option<&Tensor>,
    _: Option<&Tensor>,
    _: f32,
) -> Result<Option<Tensor>> {
    Ok(None)
}

pub fn attention(_: &Tensor, _: &Tensor, _: &Tensor, _: f32, _: Mask) -> Result<Option<Tensor>> {
    Ok(None)
}
