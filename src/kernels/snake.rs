//! The periodic activation of networks that make sound (Ziyin et al., 2020).

use candle_core::{Device, Result, Tensor};

use super::cpu;

/// `x + sin²(alpha · x) / alpha`, with an `alpha` for each channel (the last dimension).
pub fn snake(x: &Tensor, alpha: &Tensor) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::snake(x, alpha),
        _ => x + x.broadcast_mul(alpha)?.sin()?.sqr()?.broadcast_div(alpha)?,
    }
}
