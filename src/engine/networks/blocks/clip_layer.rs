//! A layer of CLIP, which its encoders of texts and of images share.

use candle_core::{D, Tensor};

use super::component::{AffineNorm, ComponentReader, Projection};
use crate::networks::adapter::Pass;
use crate::networks::weights::Flaw;
use muster_kernels::{Mask, dense_attention, gelu_erf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClipActivation {
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    Gelu,
}

#[derive(Debug, Clone, Copy)]
pub struct ClipLayerShape {
    pub hidden: usize,
    pub feed: usize,
    pub heads: usize,
    pub activation: ClipActivation,
    pub norm_eps: f64,
}

pub struct ClipLayer {
    shape: ClipLayerShape,
    attention_norm: AffineNorm,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    feed_norm: AffineNorm,
    up: Projection,
    down: Projection,
}

impl ClipActivation {
    /// By its name in `config.json`.
    pub fn named(name: &str) -> Result<Self, Flaw> {
        match name {
            "quick_gelu" => Ok(Self::QuickGelu),
            "gelu" => Ok(Self::Gelu),
            other => Err(Flaw::unsupported(
                "hidden_act",
                other,
                "quick_gelu and gelu",
            )),
        }
    }
}

impl ClipLayer {
    pub fn read(
        reader: &mut ComponentReader<'_>,
        stem: &str,
        shape: ClipLayerShape,
    ) -> Result<Self, Flaw> {
        let ClipLayerShape {
            hidden,
            feed,
            norm_eps,
            ..
        } = shape;
        let mut attention = |part: &str| {
            let name = format!("{stem}.self_attn.{part}_proj");
            reader.projection(&name, (hidden, hidden), true)
        };
        let [query, key, value, output] = [
            attention("q")?,
            attention("k")?,
            attention("v")?,
            attention("out")?,
        ];
        Ok(Self {
            shape,
            query,
            key,
            value,
            output,
            attention_norm: reader.norm(&format!("{stem}.layer_norm1"), hidden, norm_eps)?,
            feed_norm: reader.norm(&format!("{stem}.layer_norm2"), hidden, norm_eps)?,
            up: reader.projection(&format!("{stem}.mlp.fc1"), (feed, hidden), true)?,
            down: reader.projection(&format!("{stem}.mlp.fc2"), (hidden, feed), true)?,
        })
    }

    /// `[batch, places, hidden]`.
    pub fn forward(&self, x: &Tensor, mask: Mask, pass: Pass<'_>) -> candle_core::Result<Tensor> {
        let (batch, places, hidden) = x.dims3()?;
        let heads = self.shape.heads;
        let head = hidden / heads;
        let normed = self.attention_norm.of_rows(x)?;
        let in_heads = |projection: &Projection| {
            let rows = projection.forward(&normed, pass)?;
            rows.reshape((batch, places, heads, head))
        };
        let scale = (head as f32).powf(-0.5);
        let (q, k, v) = (
            in_heads(&self.query)?,
            in_heads(&self.key)?,
            in_heads(&self.value)?,
        );
        let attended = dense_attention(&q, &k, &v, scale, mask)?;
        let attended = self
            .output
            .forward(&attended.flatten_from(D::Minus2)?, pass)?;
        let x = (x + attended)?;
        let up = self.up.forward(&self.feed_norm.of_rows(&x)?, pass)?;
        let up = match self.shape.activation {
            ClipActivation::Gelu => gelu_erf(&up)?,
            ClipActivation::QuickGelu => (&up * ((&up * -1.702)?.exp()? + 1.0)?.recip()?)?,
        };
        x + self.down.forward(&up, pass)?
    }
}
