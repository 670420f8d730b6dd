//! The blocks of a U-Net: residual blocks of convolutions, and transformers with cross-attention to the text.

use candle_core::{D, Tensor};

use super::spec::UnetSpec;
use crate::networks::adapter::Pass;
use crate::networks::blocks::{
    AffineNorm, ComponentReader, ConvolutionLayer, Projection, block_end,
};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Mask, dense_attention, gelu_erf_mul, silu};

/// Epsilon of the norm before a transformer.
const TRANSFORMER_EPS: f64 = 1e-6;
const LAYER_EPS: f64 = 1e-5;
/// Width of the feed-forward layer, relative to the model's.
const FEED_FACTOR: usize = 4;

/// A convolution of 3 by 3 that keeps the size.
pub fn same() -> Axis {
    Axis {
        padding: [1, 1],
        ..Axis::default()
    }
}

/// Two convolutions with a shortcut. U-Nets add the time embedding between them, autoencoders have none.
#[derive(Debug)]
pub struct Resnet {
    first_norm: AffineNorm,
    first: ConvolutionLayer,
    time: Option<Projection>,
    second_norm: AffineNorm,
    second: ConvolutionLayer,
    shortcut: Option<Projection>,
    groups: usize,
}

/// Settings that all residual blocks of a network share.
#[derive(Debug, Clone, Copy)]
pub struct ResnetShape {
    pub groups: usize,
    pub norm_eps: f64,
    pub time_width: Option<usize>,
}

impl Resnet {
    pub fn load(
        reader: &mut ComponentReader,
        name: &str,
        (inputs, outputs): (usize, usize),
        shape: ResnetShape,
    ) -> Result<Self, Flaw> {
        let convolution = |reader: &mut ComponentReader, part: &str, inputs| {
            reader.convolution(&format!("{name}.{part}"), [outputs, inputs, 3], same())
        };
        let eps = shape.norm_eps;
        Ok(Self {
            first_norm: reader.norm(&format!("{name}.norm1"), inputs, eps)?,
            first: convolution(reader, "conv1", inputs)?,
            time: match shape.time_width {
                Some(width) => {
                    let name = format!("{name}.time_emb_proj");
                    Some(reader.projection(&name, (outputs, width), true)?)
                }
                None => None,
            },
            second_norm: reader.norm(&format!("{name}.norm2"), outputs, eps)?,
            second: convolution(reader, "conv2", outputs)?,
            shortcut: match inputs == outputs {
                true => None,
                false => {
                    let name = format!("{name}.conv_shortcut");
                    Some(reader.projection(&name, (outputs, inputs), true)?)
                }
            },
            groups: shape.groups,
        })
    }

    /// `time` is the time embedding after its activation.
    pub fn forward(
        &self,
        x: &Tensor,
        time: Option<&Tensor>,
        pass: Pass<'_>,
    ) -> candle_core::Result<Tensor> {
        let inner = silu(&self.first_norm.of_groups(x, self.groups)?)?;
        let mut inner = self.first.forward(&inner, pass)?;
        if let (Some(projection), Some(time)) = (&self.time, time) {
            let shift = projection.forward(time, pass)?.unsqueeze(1)?.unsqueeze(1)?;
            inner = inner.broadcast_add(&shift)?;
        }
        let inner = silu(&self.second_norm.of_groups(&inner, self.groups)?)?;
        let inner = self.second.forward(&inner, pass)?;
        match &self.shortcut {
            Some(shortcut) => shortcut.forward(x, pass)? + inner,
            None => x + inner,
        }
    }
}

/// Transformer blocks over all places of a map.
#[derive(Debug)]
pub struct Transformer {
    norm: AffineNorm,
    inward: Projection,
    blocks: Vec<TransformerBlock>,
    outward: Projection,
    groups: usize,
}

#[derive(Debug)]
struct TransformerBlock {
    self_norm: AffineNorm,
    own: CrossAttention,
    cross_norm: AffineNorm,
    cross: CrossAttention,
    feed_norm: AffineNorm,
    /// Values and gates.
    up: Projection,
    down: Projection,
}

impl Transformer {
    pub fn load(
        reader: &mut ComponentReader,
        name: &str,
        (channels, depth, heads): (usize, usize, usize),
        spec: &UnetSpec,
    ) -> Result<Self, Flaw> {
        let square = (channels, channels);
        let mut blocks = Vec::with_capacity(depth);
        for index in 0..depth {
            let name = format!("{name}.transformer_blocks.{index}");
            let norm = |reader: &mut ComponentReader, part: &str| {
                reader.norm(&format!("{name}.{part}"), channels, LAYER_EPS)
            };
            let feed = FEED_FACTOR * channels;
            blocks.push(TransformerBlock {
                self_norm: norm(reader, "norm1")?,
                own: CrossAttention::load(reader, &format!("{name}.attn1"), square, heads)?,
                cross_norm: norm(reader, "norm2")?,
                cross: CrossAttention::load(
                    reader,
                    &format!("{name}.attn2"),
                    (channels, spec.context),
                    heads,
                )?,
                feed_norm: norm(reader, "norm3")?,
                up: reader.projection(
                    &format!("{name}.ff.net.0.proj"),
                    (2 * feed, channels),
                    true,
                )?,
                down: reader.projection(&format!("{name}.ff.net.2"), (channels, feed), true)?,
            });
        }
        Ok(Self {
            norm: reader.norm(&format!("{name}.norm"), channels, TRANSFORMER_EPS)?,
            inward: reader.projection(&format!("{name}.proj_in"), square, true)?,
            blocks,
            outward: reader.projection(&format!("{name}.proj_out"), square, true)?,
            groups: spec.groups,
        })
    }

    pub fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// Calls `block_end` between its blocks.
    pub async fn forward(
        &self,
        x: &Tensor,
        context: &Tensor,
        pass: Pass<'_>,
    ) -> candle_core::Result<Tensor> {
        let (batch, height, width, channels) = x.dims4()?;
        let normed = self.norm.of_groups(x, self.groups)?;
        let rows = normed.reshape((batch, height * width, channels))?;
        let mut rows = self.inward.forward(&rows, pass)?;
        for block in &self.blocks {
            rows = block.forward(&rows, context, pass)?;
            block_end().await;
        }
        let rows = self.outward.forward(&rows, pass)?;
        x + rows.reshape(x.dims())?
    }
}

impl TransformerBlock {
    fn forward(&self, x: &Tensor, context: &Tensor, pass: Pass<'_>) -> candle_core::Result<Tensor> {
        let normed = self.self_norm.of_rows(x)?;
        let x = (x + self.own.forward(&normed, &normed, pass)?)?;
        let normed = self.cross_norm.of_rows(&x)?;
        let x = (&x + self.cross.forward(&normed, context, pass)?)?;
        let up = self.up.forward(&self.feed_norm.of_rows(&x)?, pass)?;
        let half = up.dim(D::Minus1)? / 2;
        let (values, gates) = (
            up.narrow(D::Minus1, 0, half)?,
            up.narrow(D::Minus1, half, half)?,
        );
        let fed = gelu_erf_mul(&gates, &values)?;
        let fed = self.down.forward(&fed, pass)?;
        x + fed
    }
}

/// Attention of one sequence to another, or to itself.
#[derive(Debug)]
struct CrossAttention {
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    heads: usize,
}

impl CrossAttention {
    fn load(
        reader: &mut ComponentReader,
        name: &str,
        (channels, context): (usize, usize),
        heads: usize,
    ) -> Result<Self, Flaw> {
        let mut projection = |part: &str, inputs, has_bias| {
            reader.projection(&format!("{name}.{part}"), (channels, inputs), has_bias)
        };
        Ok(Self {
            query: projection("to_q", channels, false)?,
            key: projection("to_k", context, false)?,
            value: projection("to_v", context, false)?,
            output: projection("to_out.0", channels, true)?,
            heads,
        })
    }

    fn forward(&self, x: &Tensor, context: &Tensor, pass: Pass<'_>) -> candle_core::Result<Tensor> {
        let in_heads = |rows: Tensor| {
            let (batch, tokens, channels) = rows.dims3()?;
            rows.reshape((batch, tokens, self.heads, channels / self.heads))
        };
        let q = in_heads(self.query.forward(x, pass)?)?;
        let k = in_heads(self.key.forward(context, pass)?)?;
        let v = in_heads(self.value.forward(context, pass)?)?;
        let scale = (q.dim(D::Minus1)? as f32).powf(-0.5);
        let attended = dense_attention(&q, &k, &v, scale, Mask::None)?;
        self.output
            .forward(&attended.flatten_from(D::Minus2)?, pass)
    }
}
