//! Gated activations, `activation(gate) * up` in one pass, and soft caps.

use candle_core::{Device, Result, Tensor};

use super::cpu;

/// `silu(gate) * up`.
pub fn silu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    match gate.device() {
        Device::Cpu => cpu::gate(gate, up, cpu::Gate::Silu),
        _ => gate.silu()? * up,
    }
}

/// `gelu(gate) * up`, with the tanh approximation that Gemma uses.
pub fn gelu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    match gate.device() {
        Device::Cpu => cpu::gate(gate, up, cpu::Gate::GeluTanh),
        _ => gate.gelu()? * up,
    }
}

/// `gelu(gate) * up`, exact.
pub fn gelu_erf_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.gelu_erf()? * up
}

/// `cap * tanh(x / cap)`, of f32.
pub fn soft_cap(x: &Tensor, cap: f64) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::soft_cap(x, cap as f32),
        _ => (x / cap)?.tanh()? * cap,
    }
}
