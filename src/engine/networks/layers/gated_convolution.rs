//! LFM2's layers without attention: a short convolution between two gates.

use candle_core::{Result, Tensor};

use super::Linear;
use muster_kernels::{LayerStates, ShortConvolution, StateSpan};

#[derive(Debug)]
pub struct GatedConvolution {
    /// The gate before the convolution, the gate after it, and its input.
    pub inputs: [Linear; 3],
    pub convolution: ShortConvolution,
    pub output: Linear,
}

impl GatedConvolution {
    /// The gated convolution of the rows of `x` with the last tokens of their sequences, before the output product.
    pub fn gather(
        &self,
        x: &Tensor,
        spans: &[StateSpan],
        states: &mut LayerStates,
    ) -> Result<Tensor> {
        let [before, after, input] = Linear::together(self.inputs.each_ref(), x)?;
        let gated = (before * input)?;
        after * self.convolution.forward(&gated, states, spans)?
    }

    pub fn bytes(&self) -> u64 {
        let inputs = self.inputs.iter().map(Linear::bytes);
        inputs.sum::<u64>() + self.output.bytes()
    }
}
