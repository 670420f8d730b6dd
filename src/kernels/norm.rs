//! Root-mean-square normalization of the last dimension.

use candle_core::{Device, Result, Tensor};

use super::cpu;

/// `x / sqrt(mean(x²) + eps) * weight` over the last dimension.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::rms_norm(x, weight, eps as f32),
        _ => candle_nn::ops::rms_norm(&x.contiguous()?, weight, eps as f32),
    }
}

/// Adds `delta` to the residual stream and normalizes the sum: `(x + delta, rms_norm(x + delta))`.
pub fn add_rms_norm(
    x: &Tensor,
    delta: &Tensor,
    weight: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor)> {
    match x.device() {
        Device::Cpu => cpu::add_rms_norm(x, delta, weight, eps as f32),
        _ => {
            let sum = (x + delta)?;
            let normed = rms_norm(&sum, weight, eps)?;
            Ok((sum, normed))
        }
    }
}
