//! Attention with grouped heads over pages of keys and values.

use candle_core::{Result, Tensor};

use super::{AdapterTarget, LayerAdaptation, Linear, RmsNorm};
use muster_kernels::{
    self as kernels, AttentionOptions, AttentionPlan, Constants, HeadNorm, LayerPages, RopeTable,
    RotaryHeads, StateSpan,
};

#[derive(Debug)]
pub struct Attention {
    pub query: Linear,
    /// `None` in a layer that reads the KV cache of another one.
    pub own: Option<KeyValues>,
    /// The gate: its sigmoid multiplies the gathered values.
    pub gate: Option<Linear>,
    pub output: Linear,
    pub norms: Option<QueryKeyNorms>,
    /// Attention sinks: a score per head in the softmax.
    pub sinks: Option<Constants>,
    pub head_dim: usize,
    pub options: AttentionOptions,
}

/// Projects hidden states to keys and values.
#[derive(Debug)]
pub struct KeyValues {
    pub key: Linear,
    /// `None` where values are the keys as they are before their norm.
    pub value: Option<Linear>,
    /// Over each head of the values.
    pub value_norm: Option<RmsNorm>,
}

/// Norms of queries and keys, in this order, before rope.
#[derive(Debug)]
pub enum QueryKeyNorms {
    /// Per head; only queries in a layer without its own keys.
    PerHead(RmsNorm, Option<RmsNorm>),
    /// All heads of a row together.
    Whole(RmsNorm, RmsNorm),
}

/// Positions of the rows of a step.
pub struct Positions<'a> {
    pub plan: &'a AttentionPlan,
    /// The states of their sequences; none where no layer is recurrent.
    pub states: &'a [StateSpan],
    /// The rope table and the row of each position; `None` in a layer without rope.
    pub rope: Option<(&'a RopeTable, &'a Tensor)>,
    /// A factor for the queries of each row, `[rows, 1, 1]`.
    pub query_scales: Option<&'a Tensor>,
    pub adaptation: LayerAdaptation<'a>,
}

impl Attention {
    /// Attention of the rows of `x`, before the output projection.
    pub fn gather(
        &self,
        x: &Tensor,
        positions: &Positions<'_>,
        pages: &mut LayerPages,
    ) -> Result<Tensor> {
        let Some(own) = &self.own else {
            return self.gather_shared(x, positions, pages);
        };
        let (gate, q, k, v) = self.products(own, x)?;
        let adapted = |target, product| positions.adaptation.add(target, x, product);
        let gate = gate.map(|gate| adapted(AdapterTarget::AttentionGate, gate));
        let gate = gate.transpose()?;
        let q = adapted(AdapterTarget::Query, q)?;
        let k = adapted(AdapterTarget::Key, k)?;
        let v = adapted(AdapterTarget::Value, v)?;
        let mut v = self.in_heads(&v)?;
        if let Some(norm) = &own.value_norm {
            v = norm.forward(&v)?;
        }
        let (mut q, mut k) = self.in_heads_normed_whole(q, k)?;
        let mut heads = RotaryHeads {
            norms: self.head_norms(),
            rope: positions.rope,
        };
        if let Some(scales) = positions.query_scales {
            q = heads.applied(0, &q)?.broadcast_mul(scales)?;
            k = heads.applied(1, &k)?;
            heads = RotaryHeads::default();
        }
        let (plan, options, sinks) = (positions.plan, self.options, self.sinks.as_ref());
        let gathered = kernels::rotary_attention([&q, &k, &v], &heads, pages, plan, options, sinks);
        let gathered = gathered?.flatten_from(1)?;
        match gate {
            Some(gate) => (gate.neg()?.exp()? + 1.0)?.recip()? * gathered,
            None => Ok(gathered),
        }
    }

    /// The same from keys and values that another layer has written.
    fn gather_shared(
        &self,
        x: &Tensor,
        positions: &Positions<'_>,
        pages: &LayerPages,
    ) -> Result<Tensor> {
        let mut q = self.in_heads(&self.query.forward(x)?)?;
        if let Some(QueryKeyNorms::PerHead(norm, _)) = &self.norms {
            q = norm.forward(&q)?;
        }
        if let Some((rope, at)) = positions.rope {
            q = kernels::rotate(&q, rope, at)?;
        }
        if let Some(scales) = positions.query_scales {
            q = q.broadcast_mul(scales)?;
        }
        let gathered = kernels::shared_attention(&q, pages, positions.plan, self.options)?;
        gathered.flatten_from(1)
    }

    /// The optional gate, queries, keys and values.
    fn products(
        &self,
        own: &KeyValues,
        x: &Tensor,
    ) -> Result<(Option<Tensor>, Tensor, Tensor, Tensor)> {
        let (query, key) = (&self.query, &own.key);
        match (&self.gate, &own.value) {
            (None, Some(value)) => {
                let [q, k, v] = Linear::together([query, key, value], x)?;
                Ok((None, q, k, v))
            }
            (None, None) => {
                let [q, k] = Linear::together([query, key], x)?;
                Ok((None, q, k.clone(), k))
            }
            (Some(gate), Some(value)) => {
                let [gate, q, k, v] = Linear::together([gate, query, key, value], x)?;
                Ok((Some(gate), q, k, v))
            }
            (Some(gate), None) => {
                let [gate, q, k] = Linear::together([gate, query, key], x)?;
                Ok((Some(gate), q, k.clone(), k))
            }
        }
    }

    pub fn bytes(&self) -> u64 {
        let own = self.own.as_ref().map_or(0, KeyValues::bytes);
        let gate = self.gate.as_ref().map_or(0, Linear::bytes);
        self.query.bytes() + own + self.output.bytes() + gate
    }

    /// Norms of each head; none where all heads of a row are normed together.
    fn head_norms(&self) -> [Option<HeadNorm<'_>>; 2] {
        match &self.norms {
            Some(QueryKeyNorms::PerHead(query, key)) => {
                [Some(query.of_heads()), key.as_ref().map(RmsNorm::of_heads)]
            }
            Some(QueryKeyNorms::Whole(..)) | None => [None, None],
        }
    }

    /// Queries and keys by head, after a norm of all heads together.
    fn in_heads_normed_whole(&self, q: Tensor, k: Tensor) -> Result<(Tensor, Tensor)> {
        match &self.norms {
            Some(QueryKeyNorms::Whole(query, key)) => {
                let (q, k) = (query.forward(&q)?, key.forward(&k)?);
                Ok((self.in_heads(&q)?, self.in_heads(&k)?))
            }
            Some(QueryKeyNorms::PerHead(..)) | None => Ok((self.in_heads(&q)?, self.in_heads(&k)?)),
        }
    }

    fn in_heads(&self, rows: &Tensor) -> Result<Tensor> {
        let (tokens, width) = rows.dims2()?;
        rows.reshape((tokens, width / self.head_dim, self.head_dim))
    }
}

impl KeyValues {
    fn bytes(&self) -> u64 {
        self.key.bytes() + self.value.as_ref().map_or(0, Linear::bytes)
    }
}
