//! Activations, also gated ones, `activation(gate) * up` in one pass, and soft caps.

use candle_core::{Device, Result, Tensor};

use super::{cpu, cuda};

/// The function that a gate goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateKind {
    Silu,
    GeluTanh,
    Gelu,
}

/// `x * sigmoid(x)`.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::activate(x, cpu::Gate::Silu),
        _ => x.silu(),
    }
}

/// The tanh approximation of `x * Φ(x)`.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::activate(x, cpu::Gate::GeluTanh),
        _ => x.gelu(),
    }
}

/// `silu(gate) * up`.
pub fn silu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.device().is_cpu() {
        return cpu::gate(gate, up, cpu::Gate::Silu);
    }
    match cuda::gate(gate, up, GateKind::Silu)? {
        Some(result) => Ok(result),
        None => gate.silu()? * up,
    }
}

/// `gelu(gate) * up`, with the tanh approximation that Gemma uses.
pub fn gelu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.device().is_cpu() {
        return cpu::gate(gate, up, cpu::Gate::GeluTanh);
    }
    match cuda::gate(gate, up, GateKind::GeluTanh)? {
        Some(result) => Ok(result),
        None => gate.gelu()? * up,
    }
}

/// `gelu(gate) * up`, exact.
pub fn gelu_erf_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.device().is_cpu() {
        return cpu::gate(gate, up, cpu::Gate::Gelu);
    }
    match cuda::gate(gate, up, GateKind::Gelu)? {
        Some(result) => Ok(result),
        None => gate.gelu_erf()? * up,
    }
}

/// gpt-oss's gate: `gate * sigmoid(alpha * gate) * (up + 1)`, with `gate` at most `limit` and `up` between `-limit`
/// and `limit`.
pub fn swiglu_oai(gate: &Tensor, up: &Tensor, alpha: f32, limit: f32) -> Result<Tensor> {
    if gate.device().is_cpu() {
        return cpu::swiglu_oai(gate, up, alpha, limit);
    }
    let gate = gate.minimum(limit)?;
    let up = (up.clamp(-limit, limit)? + 1.0)?;
    let share = candle_core::Tensor::ones_like(&gate)?
        .div(&((&gate * f64::from(-alpha))?.exp()? + 1.0)?)?;
    (gate * share)? * up
}

/// `x * Φ(x)`.
pub fn gelu_erf(x: &Tensor) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::activate(x, cpu::Gate::Gelu),
        _ => x.gelu_erf(),
    }
}

/// `cap * tanh(x / cap)`, of f32.
pub fn soft_cap(x: &Tensor, cap: f64) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::soft_cap(x, cap as f32),
        _ => (x / cap)?.tanh()? * cap,
    }
}
