//! Mamba-2 in the variant of Granite 4: a short convolution, a state space, and a gated norm.

use candle_core::{Result, Tensor};

use super::{Linear, RmsNorm};
use muster_kernels::{self as kernels, LayerStates, ShortConvolution, StateSpace, StateSpan};

#[derive(Debug)]
pub struct StateSpaceLayer {
    /// Gates the values before the norm.
    pub gate: Linear,
    /// Values, keys and queries, in this order.
    pub inputs: Linear,
    /// The step of each head.
    pub step: Linear,
    pub convolution: ShortConvolution,
    pub space: StateSpace,
    /// Over the values of a group, without weights.
    pub norm: RmsNorm,
    /// The weights of the norm, of all values.
    pub scale: Tensor,
    pub output: Linear,
}

impl StateSpaceLayer {
    /// The output of the states for the rows of `x`, before the output projection.
    pub fn gather(
        &self,
        x: &Tensor,
        spans: &[StateSpan],
        states: &mut LayerStates,
    ) -> Result<Tensor> {
        let [gate, inputs, steps] = Linear::together([&self.gate, &self.inputs, &self.step], x)?;
        let inputs = self.convolution.forward(&inputs, states, spans)?;
        let values = self.space.forward(&inputs, &steps, states, spans)?;
        let gated = kernels::silu_mul(&gate, &values)?;
        let (rows, width) = gated.dims2()?;
        let groups = gated.reshape((rows, (), self.norm.weight.dim(0)?))?;
        let normed = self.norm.forward(&groups)?.reshape((rows, width))?;
        normed.broadcast_mul(&self.scale)
    }

    pub fn bytes(&self) -> u64 {
        let parts = [&self.gate, &self.inputs, &self.step, &self.output];
        parts.into_iter().map(Linear::bytes).sum()
    }
}
