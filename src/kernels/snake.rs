//! The periodic activation of networks that make sound (Ziyin et al., 2020).

use candle_core::{Device, Result, Tensor};

use super::cpu;

/// `x + sin²(alpha · x) / beta`, with an `alpha` and a `beta` per channel (the last dimension). Networks with only one
/// of them pass it as both.
pub fn snake(x: &Tensor, alpha: &Tensor, beta: &Tensor) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::snake(x, alpha, beta),
        _ => x + x.broadcast_mul(alpha)?.sin()?.sqr()?.broadcast_div(beta)?,
    }
}
