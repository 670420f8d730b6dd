//! The feed-forward part of a layer: a gated one, or experts.

use candle_core::{Result, Tensor};

use super::{Experts, Linear};
use muster_kernels as kernels;

#[derive(Debug)]
pub enum FeedForward {
    Dense(GatedFeedForward),
    Experts(Box<Experts>),
}

#[derive(Debug)]
pub struct GatedFeedForward {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
    pub activation: GateActivation,
}

/// The function that a gate goes through before it multiplies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GateActivation {
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
    /// gpt-oss's: see [`kernels::swiglu_oai`].
    SwigluOai {
        alpha: f32,
        limit: f32,
    },
}

impl FeedForward {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(dense) => dense.forward(x),
            Self::Experts(experts) => experts.forward(x),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Dense(dense) => dense.bytes(),
            Self::Experts(experts) => experts.bytes(),
        }
    }

    /// Bytes of them that a step of so many rows reads.
    pub fn step_bytes(&self, rows: u64) -> u64 {
        match self {
            Self::Dense(dense) => dense.bytes(),
            Self::Experts(experts) => experts.step_bytes(rows),
        }
    }
}

impl GatedFeedForward {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [gate, up] = Linear::together([&self.gate, &self.up], x)?;
        self.down.forward(&self.activation.gated(&gate, &up)?)
    }

    pub fn bytes(&self) -> u64 {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}

impl GateActivation {
    /// `activation(gate) * up`, or what stands for it.
    pub fn gated(self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        match self {
            Self::Silu => kernels::silu_mul(gate, up),
            Self::GeluTanh => kernels::gelu_mul(gate, up),
            Self::SwigluOai { alpha, limit } => kernels::swiglu_oai(gate, up, alpha, limit),
        }
    }
}
