//! Normalization: by root mean square, by layer, by group.

use candle_core::{D, Device, Result, Tensor};

use super::{cpu, cuda};

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
    if x.device().is_cpu() {
        return cpu::add_rms_norm(x, delta, weight, eps as f32);
    }
    match cuda::add_rms_norm(x, delta, weight, eps as f32)? {
        Some(both) => Ok(both),
        None => {
            let sum = (x + delta)?;
            let normed = rms_norm(&sum, weight, eps)?;
            Ok((sum, normed))
        }
    }
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension.
pub fn layer_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    if x.device().is_cpu() {
        return cpu::layer_norm(x, weight, bias, eps as f32);
    }
    if let Some(normed) = cuda::layer_norm(x, weight, bias, eps as f32)? {
        return normed.to_dtype(x.dtype());
    }
    let centered = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let deviation = (centered.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    scale_and_shift(centered.broadcast_div(&deviation)?, weight, bias)
}

/// The same over groups of channels (the last dimension) and all places of each of the first dimension's entries.
pub fn group_norm(
    x: &Tensor,
    groups: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    if x.device().is_cpu() {
        return cpu::group_norm(x, groups, weight, bias, eps as f32);
    }
    if let Some(normed) = cuda::group_norm(x, groups, weight, bias, eps as f32)? {
        return normed.to_dtype(x.dtype());
    }
    let (batch, channels) = (x.dim(0)?, x.dim(D::Minus1)?);
    let grouped = x.reshape((batch, (), groups, channels / groups))?;
    let mean = grouped.mean_keepdim(1)?.mean_keepdim(3)?;
    let centered = grouped.broadcast_sub(&mean)?;
    let variance = centered.sqr()?.mean_keepdim(1)?.mean_keepdim(3)?;
    let normed = centered.broadcast_div(&(variance + eps)?.sqrt()?)?;
    scale_and_shift(normed.reshape(x.dims())?, weight, bias)
}

fn scale_and_shift(x: Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    let x = match weight {
        Some(weight) => x.broadcast_mul(weight)?,
        None => x,
    };
    match bias {
        Some(bias) => x.broadcast_add(bias),
        None => Ok(x),
    }
}
