//! Root mean square norm.

use candle_core::{Result, Tensor};

use muster_kernels::{self as kernels, HeadNorm};

#[derive(Debug)]
pub struct RmsNorm {
    pub weight: Tensor,
    pub eps: f64,
}

impl RmsNorm {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        kernels::rms_norm(x, &self.weight, self.eps)
    }

    /// The same norm of each head, for attention.
    pub fn of_heads(&self) -> HeadNorm<'_> {
        HeadNorm {
            weight: &self.weight,
            eps: self.eps,
        }
    }

    /// The sum of both, and the sum normed.
    pub fn after_adding(&self, x: &Tensor, delta: &Tensor) -> Result<(Tensor, Tensor)> {
        kernels::add_rms_norm(x, delta, &self.weight, self.eps)
    }
}
