//! The blocks that vision towers are made of: attention of all patches to each other, and a feed-forward part.

use candle_core::{D, Result, Tensor};

use crate::networks::blocks::{AffineNorm, ComponentReader, Projection};
use crate::networks::layers::RmsNorm;
use crate::networks::weights::{Flaw, sized};
use muster_kernels::{
    GateKind, Mask, RopeTable, dense_attention, gelu, gelu_erf_mul, gelu_mul, rotate, silu_mul,
};

/// Sizes of a block and the facts in which families differ.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockShape {
    pub hidden: usize,
    pub intermediate: usize,
    pub heads: usize,
    pub epsilon: f64,
    /// Norms have no bias and leave the mean.
    pub has_root_norms: bool,
    /// Whether products of attention and feed-forward have biases.
    pub has_bias: bool,
    /// Activation of the gates, if the block has any.
    pub gate: GateKind,
}

impl BlockShape {
    /// Without biases and with affine norms.
    pub fn checked(
        hidden: usize,
        intermediate: usize,
        heads: usize,
    ) -> std::result::Result<Self, Flaw> {
        let hidden = sized("vision_config.hidden_size", hidden)?;
        if heads == 0 || !hidden.is_multiple_of(heads) {
            let found = format!("{heads} heads of {hidden}");
            let wanted = "heads that divide the hidden size";
            return Err(Flaw::broken("the heads of vision_config", found, wanted));
        }
        Ok(Self {
            hidden,
            intermediate: sized("vision_config.intermediate_size", intermediate)?,
            heads,
            epsilon: 1e-6,
            has_root_norms: false,
            has_bias: false,
            gate: GateKind::Silu,
        })
    }
}

/// Names of a block's parts in files.
pub struct BlockNames {
    pub attention_norm: &'static str,
    pub attention: AttentionNames,
    pub output: &'static str,
    pub feed_norm: &'static str,
    pub feed: FeedNames,
}

pub enum AttentionNames {
    /// Queries, keys and values in one matrix, in this order.
    Joined(&'static str),
    Apart([&'static str; 3]),
}

pub enum FeedNames {
    /// Up and down, with a gelu between (its tanh approximation).
    Plain([&'static str; 2]),
    /// Gate, up and down.
    Gated([&'static str; 3]),
}

pub enum Norm {
    Affine(AffineNorm),
    Root(RmsNorm),
}

pub struct Block {
    heads: usize,
    gate: GateKind,
    attention_norm: Norm,
    attention: Mixing,
    output: Projection,
    feed_norm: Norm,
    feed: FeedProducts,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one of these in a layer"
)]
enum Mixing {
    Joined(Projection),
    Apart([Projection; 3]),
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one of these in a layer"
)]
enum FeedProducts {
    Plain {
        up: Projection,
        down: Projection,
    },
    Gated {
        gate: Projection,
        up: Projection,
        down: Projection,
    },
}

impl Norm {
    pub fn read(
        name: &str,
        size: usize,
        shape: &BlockShape,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        Ok(match shape.has_root_norms {
            true => Self::Root(RmsNorm {
                weight: reader.vector(&format!("{name}.weight"), size)?,
                eps: shape.epsilon,
            }),
            false => Self::Affine(reader.norm(name, size, shape.epsilon)?),
        })
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Affine(norm) => norm.of_rows(x),
            Self::Root(norm) => norm.forward(x),
        }
    }
}

impl Block {
    /// Reads the block whose names begin with `stem`.
    pub fn read(
        stem: &str,
        names: &BlockNames,
        shape: &BlockShape,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, feed, has_bias) = (shape.hidden, shape.intermediate, shape.has_bias);
        let name = |part: &str| format!("{stem}.{part}");
        let attention_norm = Norm::read(&name(names.attention_norm), hidden, shape, reader)?;
        let feed_norm = Norm::read(&name(names.feed_norm), hidden, shape, reader)?;
        let mut matrix = |part: &str, size| reader.projection(&name(part), size, has_bias);
        let square = (hidden, hidden);
        Ok(Self {
            heads: shape.heads,
            gate: shape.gate,
            attention_norm,
            attention: match names.attention {
                AttentionNames::Joined(part) => Mixing::Joined(matrix(part, (3 * hidden, hidden))?),
                AttentionNames::Apart([query, key, value]) => Mixing::Apart([
                    matrix(query, square)?,
                    matrix(key, square)?,
                    matrix(value, square)?,
                ]),
            },
            output: matrix(names.output, square)?,
            feed_norm,
            feed: match names.feed {
                FeedNames::Plain([up, down]) => FeedProducts::Plain {
                    up: matrix(up, (feed, hidden))?,
                    down: matrix(down, (hidden, feed))?,
                },
                FeedNames::Gated([gate, up, down]) => FeedProducts::Gated {
                    gate: matrix(gate, (feed, hidden))?,
                    up: matrix(up, (feed, hidden))?,
                    down: matrix(down, (hidden, feed))?,
                },
            },
        })
    }

    /// `x` are patches `[patches, hidden]`; each attends to its own group of consecutive patches. Without groups, each
    /// attends to all.
    pub fn forward(
        &self,
        x: &Tensor,
        turned: Option<&(RopeTable, Tensor)>,
        groups: &[usize],
    ) -> Result<Tensor> {
        let attended = self.attended(&self.attention_norm.forward(x)?, turned, groups)?;
        let x = (x + self.output.apply(&attended)?)?;
        let normed = self.feed_norm.forward(&x)?;
        x + self.feed.forward(&normed, self.gate)?
    }

    fn attended(
        &self,
        x: &Tensor,
        turned: Option<&(RopeTable, Tensor)>,
        groups: &[usize],
    ) -> Result<Tensor> {
        let (patches, hidden) = x.dims2()?;
        let head = hidden / self.heads;
        let shape = (patches, self.heads, head);
        let [q, k, v] = match &self.attention {
            Mixing::Joined(product) => {
                let all = product.apply(x)?;
                let part = |at: usize| {
                    let part = all.narrow(D::Minus1, at * hidden, hidden)?;
                    part.contiguous()?.reshape(shape)
                };
                [part(0)?, part(1)?, part(2)?]
            }
            Mixing::Apart([q, k, v]) => {
                let part = |product: &Projection| product.apply(x)?.reshape(shape);
                [part(q)?, part(k)?, part(v)?]
            }
        };
        let (q, k) = match turned {
            Some((table, at)) => (rotate(&q, table, at)?, rotate(&k, table, at)?),
            None => (q, k),
        };
        let scale = (head as f32).powf(-0.5);
        let of_group = |first: usize, count: usize| {
            let part = |x: &Tensor| x.narrow(0, first, count)?.contiguous()?.unsqueeze(0);
            let attended = dense_attention(&part(&q)?, &part(&k)?, &part(&v)?, scale, Mask::None)?;
            attended.reshape((count, hidden))
        };
        if groups.is_empty() {
            return of_group(0, patches);
        }
        let mut first = 0;
        let mut parts = Vec::with_capacity(groups.len());
        for &count in groups {
            parts.push(of_group(first, count)?);
            first += count;
        }
        Tensor::cat(&parts, 0)
    }
}

impl FeedProducts {
    fn forward(&self, x: &Tensor, kind: GateKind) -> Result<Tensor> {
        match self {
            Self::Plain { up, down } => down.apply(&gelu(&up.apply(x)?)?),
            Self::Gated { gate, up, down } => {
                let (gate, up) = (gate.apply(x)?, up.apply(x)?);
                let gated = match kind {
                    GateKind::Silu => silu_mul(&gate, &up)?,
                    GateKind::Gelu => gelu_erf_mul(&gate, &up)?,
                    GateKind::GeluTanh => gelu_mul(&gate, &up)?,
                };
                down.apply(&gated)
            }
        }
    }
}
