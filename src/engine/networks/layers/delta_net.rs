//! The gated delta net of Qwen3-Next: a short convolution, the gated delta rule, and a gated norm.

use candle_core::{Result, Tensor};

use super::{Linear, RmsNorm};
use muster_kernels::{self as kernels, DeltaRule, LayerStates, ShortConvolution, StateSpan};

#[derive(Debug)]
pub struct GatedDeltaNet {
    /// Queries, keys and values, in this order.
    pub qkv: Linear,
    /// The gate of the values before the output.
    pub gate: Linear,
    /// The step of each value head, and `beta`, the proportion that it writes.
    pub step: Linear,
    pub beta: Linear,
    pub convolution: ShortConvolution,
    pub rule: DeltaRule,
    /// Over each value head.
    pub norm: RmsNorm,
    pub output: Linear,
}

impl GatedDeltaNet {
    /// The values that rows of `x` read from the states of their sequences, before the output product.
    pub fn gather(
        &self,
        x: &Tensor,
        spans: &[StateSpan],
        states: &mut LayerStates,
    ) -> Result<Tensor> {
        let parts = [&self.qkv, &self.gate, &self.step, &self.beta];
        let [qkv, gate, steps, betas] = Linear::together(parts, x)?;
        let qkv = self.convolution.forward(&qkv, states, spans)?;
        let values = self.rule.forward(&qkv, &steps, &betas, states, spans)?;
        let (rows, width) = values.dims2()?;
        let heads = values.reshape((rows, (), self.rule.shape.value_dim))?;
        let normed = self.norm.forward(&heads)?.reshape((rows, width))?;
        kernels::silu_mul(&gate, &normed)
    }

    pub fn bytes(&self) -> u64 {
        let parts = [&self.qkv, &self.gate, &self.step, &self.beta, &self.output];
        parts.into_iter().map(Linear::bytes).sum()
    }
}
