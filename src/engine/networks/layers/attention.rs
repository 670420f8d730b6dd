//! Attention with grouped heads over pages of keys and values.

use candle_core::{Result, Tensor};

use super::{Linear, RmsNorm};
use muster_kernels::{self as kernels, AttentionOptions, AttentionPlan, LayerPages, RopeTable};

#[derive(Debug)]
pub struct Attention {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    /// Norms of one head's query and key.
    pub head_norms: Option<(RmsNorm, RmsNorm)>,
    pub head_dim: usize,
    pub window: Option<usize>,
}

/// Where the rows of a step stand.
pub struct Positions<'a> {
    pub plan: &'a AttentionPlan,
    pub rope: &'a RopeTable,
}

impl Attention {
    /// What the rows of `x` gather from their sequences, before the output product.
    pub fn gather(
        &self,
        x: &Tensor,
        positions: &Positions<'_>,
        pages: &mut LayerPages,
    ) -> Result<Tensor> {
        let [q, k, v] = Linear::together([&self.query, &self.key, &self.value], x)?;
        let (mut q, mut k, v) = (self.in_heads(&q)?, self.in_heads(&k)?, self.in_heads(&v)?);
        if let Some((query_norm, key_norm)) = &self.head_norms {
            (q, k) = (query_norm.forward(&q)?, key_norm.forward(&k)?);
        }
        let at = positions.plan.positions();
        let q = kernels::rotate(&q, positions.rope, at)?;
        let k = kernels::rotate(&k, positions.rope, at)?;
        let options = AttentionOptions {
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.window,
            softcap: None,
        };
        let gathered = kernels::paged_attention(&q, &k, &v, pages, positions.plan, options)?;
        gathered.flatten_from(1)
    }

    pub fn bytes(&self) -> u64 {
        let parts = [&self.query, &self.key, &self.value, &self.output];
        parts.into_iter().map(Linear::bytes).sum()
    }

    fn in_heads(&self, rows: &Tensor) -> Result<Tensor> {
        let (tokens, width) = rows.dims2()?;
        rows.reshape((tokens, width / self.head_dim, self.head_dim))
    }
}
