//! Multi-head latent attention (DeepSeek-V2): each token has one latent for the keys and values of all heads, and a key
//! part with rope.
//!
//! Pages store the latent and that part. Queries are projected to latents instead of keys to heads (matrix absorption),
//! so that a token needs as little memory as the paper intends.

use candle_core::{Result, Tensor};

use super::{Linear, Positions, RmsNorm};
use crate::networks::weights::{Weight, WeightSpan};
use muster_kernels::{self as kernels, AttentionOptions, LayerPages};

#[derive(Debug)]
pub struct LatentAttention {
    pub query: LatentQuery,
    /// Projects to a latent, followed by the key part with rope.
    pub latent: Linear,
    pub latent_norm: RmsNorm,
    /// Per head, maps the query part without rope to a latent.
    pub keys: Vec<Weight>,
    /// Per head, maps a latent to a value.
    pub values: Vec<Weight>,
    pub output: Linear,
    pub sizes: LatentSizes,
    pub options: AttentionOptions,
}

/// Projects hidden states to queries.
#[derive(Debug)]
pub enum LatentQuery {
    Whole(Linear),
    /// Through fewer numbers, which are normed.
    LowRank {
        down: Linear,
        norm: RmsNorm,
        up: Linear,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentSizes {
    /// Numbers of a latent.
    pub rank: usize,
    /// Numbers of a head's query and key without rope.
    pub plain_dim: usize,
    /// Numbers of both with rope.
    pub rope_dim: usize,
    /// Numbers of a head's value.
    pub value_dim: usize,
}

impl LatentSizes {
    /// Numbers of a head's query.
    pub fn query_dim(self) -> usize {
        self.plain_dim + self.rope_dim
    }

    /// Numbers that are kept of a token.
    pub fn kept(self) -> usize {
        self.rank + self.rope_dim
    }
}

impl LatentAttention {
    /// Attention of the rows of `x`, before the output projection.
    pub fn gather(
        &self,
        x: &Tensor,
        positions: &Positions<'_>,
        pages: &mut LayerPages,
    ) -> Result<Tensor> {
        let sizes = self.sizes;
        let rows = x.dim(0)?;
        let (queries, kept) = self.query.with(&self.latent, x)?;
        let queries = queries.reshape((rows, self.keys.len(), sizes.query_dim()))?;
        let plain = queries.narrow(2, 0, sizes.plain_dim)?;
        let turning = queries.narrow(2, sizes.plain_dim, sizes.rope_dim)?;
        let latent = kept.narrow(1, 0, sizes.rank)?.contiguous()?;
        let latent = self.latent_norm.forward(&latent)?.unsqueeze(1)?;
        let key = kept.narrow(1, sizes.rank, sizes.rope_dim)?.unsqueeze(1)?;
        let (turning, key) = match positions.rope {
            Some((rope, at)) => (
                kernels::rotate(&turning.contiguous()?, rope, at)?,
                kernels::rotate(&key.contiguous()?, rope, at)?,
            ),
            None => (turning, key),
        };
        let mut queries = Tensor::cat(&[by_head(&self.keys, &plain)?, turning], 2)?;
        if let Some(scales) = positions.query_scales {
            queries = queries.broadcast_mul(scales)?;
        }
        let latents = Tensor::cat(&[latent, key], 2)?;
        let gathered = kernels::paged_latent_attention(
            &queries,
            &latents,
            pages,
            positions.plan,
            self.options,
        )?;
        by_head(&self.values, &gathered)?.flatten_from(1)
    }

    pub fn bytes(&self) -> u64 {
        let heads = self.keys.iter().chain(&self.values);
        let heads: u64 = heads.map(Weight::bytes).sum();
        self.query.bytes() + self.latent.bytes() + self.output.bytes() + heads
    }
}

impl LatentQuery {
    /// The queries of the rows of `x`, and their product with `beside`.
    fn with(&self, beside: &Linear, x: &Tensor) -> Result<(Tensor, Tensor)> {
        match self {
            Self::Whole(query) => {
                let [queries, other] = Linear::together([query, beside], x)?;
                Ok((queries, other))
            }
            Self::LowRank { down, norm, up } => {
                let [low, other] = Linear::together([down, beside], x)?;
                Ok((up.forward(&norm.forward(&low)?)?, other))
            }
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Whole(query) => query.bytes(),
            Self::LowRank { down, up, .. } => down.bytes() + up.bytes(),
        }
    }
}

/// The product of each head of `x [rows, heads, n]` with its own matrix: `[rows, heads, m]`.
fn by_head(weights: &[Weight], x: &Tensor) -> Result<Tensor> {
    let (rows, heads, _) = x.dims3()?;
    if rows == 0 || heads != weights.len() {
        candle_core::bail!(
            "{rows} rows of {heads} heads do not fit {} matrices",
            weights.len()
        );
    }
    let sorted = x.transpose(0, 1)?.contiguous()?.flatten(0, 1)?;
    let spans = weights.iter().enumerate().map(|(head, weight)| WeightSpan {
        rows: head * rows..(head + 1) * rows,
        weights: [weight],
    });
    let products = Weight::products_of_spans(&spans.collect::<Vec<_>>(), &sorted)?;
    let Some(product) = products.first() else {
        candle_core::bail!("{heads} heads gave no product");
    };
    let width = product.dim(1)?;
    let product = product.reshape((heads, rows, width))?;
    product.transpose(0, 1)?.contiguous()
}
