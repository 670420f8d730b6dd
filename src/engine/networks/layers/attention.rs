//! Attention with grouped heads over pages of keys and values.

use candle_core::{Result, Tensor};

use super::{Linear, RmsNorm};
use muster_kernels::{
    self as kernels, AttentionOptions, AttentionPlan, LayerPages, RopeTable, StateSpan,
};

#[derive(Debug)]
pub struct Attention {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    /// The gate: its sigmoid multiplies the gathered values.
    pub gate: Option<Linear>,
    pub output: Linear,
    pub norms: Option<QueryKeyNorms>,
    /// For each head a score in the softmax that no token has.
    pub sinks: Option<Vec<f32>>,
    pub head_dim: usize,
    pub options: AttentionOptions,
}

/// Norms of queries and keys, in this order, before they turn.
#[derive(Debug)]
pub enum QueryKeyNorms {
    /// Each head by itself.
    PerHead(RmsNorm, RmsNorm),
    /// All heads of a row together.
    Whole(RmsNorm, RmsNorm),
}

/// Where the rows of a step stand.
pub struct Positions<'a> {
    pub plan: &'a AttentionPlan,
    /// The states of their sequences; none where no layer is recurrent.
    pub states: &'a [StateSpan],
    /// How positions turn queries and keys, and the row of the table for each of them; `None` in a layer where nothing
    /// turns.
    pub rope: Option<(&'a RopeTable, &'a Tensor)>,
    /// A factor for the queries of each row, `[rows, 1, 1]`.
    pub query_scales: Option<&'a Tensor>,
}

impl Attention {
    /// What the rows of `x` gather from their sequences, before the output product.
    pub fn gather(
        &self,
        x: &Tensor,
        positions: &Positions<'_>,
        pages: &mut LayerPages,
    ) -> Result<Tensor> {
        let parts = [&self.query, &self.key, &self.value];
        let (gate, [q, k, v]) = match &self.gate {
            None => (None, Linear::together(parts, x)?),
            Some(gate) => {
                let [query, key, value] = parts;
                let [gate, q, k, v] = Linear::together([gate, query, key, value], x)?;
                (Some(gate), [q, k, v])
            }
        };
        let (mut q, mut k) = self.normed_heads(q, k)?;
        let v = self.in_heads(&v)?;
        if let Some((rope, at)) = positions.rope {
            q = kernels::rotate(&q, rope, at)?;
            k = kernels::rotate(&k, rope, at)?;
        }
        if let Some(scales) = positions.query_scales {
            q = q.broadcast_mul(scales)?;
        }
        let (plan, options) = (positions.plan, self.options);
        let gathered = match &self.sinks {
            None => kernels::paged_attention(&q, &k, &v, pages, plan, options),
            Some(sinks) => {
                kernels::paged_attention_with_sinks([&q, &k, &v], pages, plan, options, sinks)
            }
        };
        let gathered = gathered?.flatten_from(1)?;
        match gate {
            Some(gate) => (gate.neg()?.exp()? + 1.0)?.recip()? * gathered,
            None => Ok(gathered),
        }
    }

    pub fn bytes(&self) -> u64 {
        let parts = [&self.query, &self.key, &self.value, &self.output];
        let gate = self.gate.as_ref().map_or(0, Linear::bytes);
        parts.into_iter().map(Linear::bytes).sum::<u64>() + gate
    }

    fn normed_heads(&self, q: Tensor, k: Tensor) -> Result<(Tensor, Tensor)> {
        match &self.norms {
            None => Ok((self.in_heads(&q)?, self.in_heads(&k)?)),
            Some(QueryKeyNorms::PerHead(query, key)) => {
                let (q, k) = (self.in_heads(&q)?, self.in_heads(&k)?);
                Ok((query.forward(&q)?, key.forward(&k)?))
            }
            Some(QueryKeyNorms::Whole(query, key)) => {
                let (q, k) = (query.forward(&q)?, key.forward(&k)?);
                Ok((self.in_heads(&q)?, self.in_heads(&k)?))
            }
        }
    }

    fn in_heads(&self, rows: &Tensor) -> Result<Tensor> {
        let (tokens, width) = rows.dims2()?;
        rows.reshape((tokens, width / self.head_dim, self.head_dim))
    }
}
