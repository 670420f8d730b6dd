//! Root mean square norm.

use candle_core::{Result, Tensor};

use muster_kernels as kernels;

#[derive(Debug)]
pub struct RmsNorm {
    pub weight: Tensor,
    pub eps: f64,
}

impl RmsNorm {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        kernels::rms_norm(x, &self.weight, self.eps)
    }

    /// The sum of both, and the sum normed.
    pub fn after_adding(&self, x: &Tensor, delta: &Tensor) -> Result<(Tensor, Tensor)> {
        kernels::add_rms_norm(x, delta, &self.weight, self.eps)
    }
}
