//! The gated feed-forward part of a layer.

use candle_core::{Result, Tensor};

use super::Linear;
use muster_kernels as kernels;

#[derive(Debug)]
pub struct FeedForward {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

impl FeedForward {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [gate, up] = Linear::together([&self.gate, &self.up], x)?;
        self.down.forward(&kernels::silu_mul(&gate, &up)?)
    }

    pub fn bytes(&self) -> u64 {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}
