//! The language model that reads the phonemes: one layer of an ALBERT, applied again and again.

use candle_core::{D, Result, Tensor};

use super::AlbertSpec;
use crate::networks::blocks::{AffineNorm, ComponentReader, Projection, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Mask, dense_attention, gelu};

const NORM_EPS: f64 = 1e-12;
const STEM: &str = "bert.embeddings";
const LAYER: &str = "bert.encoder.albert_layer_groups.0.albert_layers.0";

pub(super) struct Albert {
    spec: AlbertSpec,
    words: Tensor,
    positions: Tensor,
    /// The token type embedding of single texts.
    kind: Tensor,
    norm: AffineNorm,
    widen: Projection,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    attention_norm: AffineNorm,
    up: Projection,
    down: Projection,
    feed_norm: AffineNorm,
}

impl Albert {
    pub fn load(
        spec: AlbertSpec,
        tokens: usize,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (size, width, feed) = (spec.embedding, spec.width, spec.feed);
        let mut table = |name: &str, rows| {
            reader.table(&format!("{STEM}.{name}_embeddings.weight"), (rows, size))
        };
        let words = table("word", tokens)?;
        let positions = table("position", spec.positions)?;
        let kind = table("token_type", 2)?.narrow(0, 0, 1)?;
        let mut part = |name: &str, shape| {
            let name = format!("{LAYER}.{name}");
            reader.projection(&name, shape, true)
        };
        let square = (width, width);
        Ok(Self {
            words,
            positions,
            kind,
            query: part("attention.query", square)?,
            key: part("attention.key", square)?,
            value: part("attention.value", square)?,
            output: part("attention.dense", square)?,
            up: part("ffn", (feed, width))?,
            down: part("ffn_output", (width, feed))?,
            norm: reader.norm(&format!("{STEM}.LayerNorm"), size, NORM_EPS)?,
            widen: reader.projection(
                "bert.encoder.embedding_hidden_mapping_in",
                (width, size),
                true,
            )?,
            attention_norm: reader.norm(
                &format!("{LAYER}.attention.LayerNorm"),
                width,
                NORM_EPS,
            )?,
            feed_norm: reader.norm(&format!("{LAYER}.full_layer_layer_norm"), width, NORM_EPS)?,
            spec,
        })
    }

    /// States of the tokens, `[tokens, width]`.
    pub async fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let words = self.words.index_select(ids, 0)?;
        let positions = self.positions.narrow(0, 0, ids.dim(0)?)?;
        let x = (words + positions)?.broadcast_add(&self.kind)?;
        let mut x = self.widen.apply(&self.norm.of_rows(&x)?)?;
        for _ in 0..self.spec.layers {
            block_end().await;
            x = self.layer(&x)?;
        }
        block_end().await;
        Ok(x)
    }

    fn layer(&self, x: &Tensor) -> Result<Tensor> {
        let (rows, width) = x.dims2()?;
        let size = width / self.spec.heads;
        let in_heads = |projection: &Projection| {
            projection
                .apply(x)?
                .reshape((1, rows, self.spec.heads, size))
        };
        let (q, k, v) = (
            in_heads(&self.query)?,
            in_heads(&self.key)?,
            in_heads(&self.value)?,
        );
        let scale = (size as f32).powf(-0.5);
        let attended = dense_attention(&q, &k, &v, scale, Mask::None)?;
        let attended = attended.squeeze(0)?.flatten_from(D::Minus2)?;
        let x = (x + self.output.apply(&attended)?)?;
        let x = self.attention_norm.of_rows(&x)?;
        let fed = self.down.apply(&gelu(&self.up.apply(&x)?)?)?;
        self.feed_norm.of_rows(&(x + fed)?)
    }
}
