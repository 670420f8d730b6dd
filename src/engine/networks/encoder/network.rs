//! The encoder: embedding tables, layers with bidirectional attention, and pooling of the last hidden states.

use candle_core::{D, Device, Result, Tensor, bail};

use super::config::{Activation, EncoderFamily, EncoderSpec};
use crate::networks::layers::{Embedding, Linear};
use muster_kernels::{gelu, gelu_erf};

/// An encoder on a device.
pub struct Encoder {
    pub(super) spec: EncoderSpec,
    pub(super) device: Device,
    pub(super) tables: Tables,
    pub(super) norm: LayerNorm,
    pub(super) layers: Vec<EncoderLayer>,
    pub(super) head: Option<ScoreHead>,
}

pub(super) struct Tables {
    pub words: Embedding,
    pub positions: Embedding,
    pub types: Embedding,
}

pub(super) struct EncoderLayer {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    pub attention_norm: LayerNorm,
    pub up: Linear,
    pub down: Linear,
    pub feed_norm: LayerNorm,
}

/// Maps the hidden state of the first token to a score.
pub(super) struct ScoreHead {
    pub dense: Linear,
    pub scores: Linear,
}

#[derive(Debug)]
pub(super) struct LayerNorm {
    pub weight: Tensor,
    pub bias: Tensor,
    pub eps: f64,
}

/// A text, or a pair of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncoderInput {
    pub tokens: Vec<u32>,
    /// The segment of each token in a pair of texts; empty for a single text.
    pub types: Vec<u32>,
}

/// Sequences on their way through the layers.
pub struct EncoderPass {
    lengths: Vec<usize>,
    /// Hidden states of all tokens, one sequence after the other: `[tokens, hidden]`.
    states: Tensor,
    /// Layers that they have been through.
    layers: usize,
}

/// How the hidden states of a sequence become one vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The first token's state.
    First,
    #[default]
    Mean,
    /// The last token's state.
    Last,
    /// The largest of each dimension.
    Max,
}

/// Scores of one piece of attention, all heads together, in numbers: 64 MiB.
const MOST_SCORES: usize = 16 << 20;

impl From<Vec<u32>> for EncoderInput {
    fn from(tokens: Vec<u32>) -> Self {
        let types = Vec::new();
        Self { tokens, types }
    }
}

impl EncoderPass {
    /// A vector per sequence: `[sequences, hidden]`.
    pub fn pooled(&self, pooling: Pooling) -> Result<Tensor> {
        pooling.of(&self.states, &self.lengths)
    }
}

impl Pooling {
    /// Pools the hidden states of sequences of these lengths to a vector each.
    pub fn of(self, states: &Tensor, lengths: &[usize]) -> Result<Tensor> {
        let mut start = 0;
        let pooled = lengths.iter().map(|&length| {
            let states = states.narrow(0, start, length)?;
            start += length;
            match self {
                Self::First => states.narrow(0, 0, 1),
                Self::Last => states.narrow(0, length - 1, 1),
                Self::Mean => states.mean_keepdim(0),
                Self::Max => states.max_keepdim(0),
            }
        });
        Tensor::cat(&pooled.collect::<Result<Vec<_>>>()?, 0)
    }
}

impl Encoder {
    pub fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    /// The last hidden states of all tokens, one sequence after the other: `[tokens, hidden]`.
    pub fn forward(&self, batch: &[EncoderInput]) -> Result<Tensor> {
        Ok(self.pass(batch)?.states)
    }

    /// A vector per sequence: `[sequences, hidden]`.
    pub fn pooled(&self, batch: &[EncoderInput], pooling: Pooling) -> Result<Tensor> {
        self.pass(batch)?.pooled(pooling)
    }

    /// A logit per sequence: `[sequences, 1]`.
    pub fn scores(&self, batch: &[EncoderInput]) -> Result<Tensor> {
        self.scores_of(&self.pass(batch)?)
    }

    /// The same of a pass through all layers.
    pub fn scores_of(&self, pass: &EncoderPass) -> Result<Tensor> {
        let Some(head) = &self.head else {
            bail!("the encoder has no head that scores");
        };
        let first = pass.pooled(Pooling::First)?.contiguous()?;
        head.scores.forward(&head.dense.forward(&first)?.tanh()?)
    }

    /// Through all layers.
    fn pass(&self, batch: &[EncoderInput]) -> Result<EncoderPass> {
        let mut pass = self.begin(batch)?;
        while !self.advance(&mut pass)? {}
        Ok(pass)
    }

    /// Before the first layer.
    pub fn begin(&self, batch: &[EncoderInput]) -> Result<EncoderPass> {
        self.check(batch)?;
        Ok(EncoderPass {
            lengths: batch.iter().map(|one| one.tokens.len()).collect(),
            states: self.embed(batch)?,
            layers: 0,
        })
    }

    /// Runs one more layer. Returns whether that was the last one.
    pub fn advance(&self, pass: &mut EncoderPass) -> Result<bool> {
        if let Some(layer) = self.layers.get(pass.layers) {
            pass.states = self.through_layer(layer, &pass.states, &pass.lengths)?;
            pass.layers += 1;
        }
        Ok(pass.layers == self.layers.len())
    }

    fn check(&self, batch: &[EncoderInput]) -> Result<()> {
        let most = self.spec.context();
        for sequence in batch {
            let (tokens, types) = (sequence.tokens.len(), sequence.types.len());
            if tokens == 0 || tokens > most {
                bail!("a sequence has {tokens} tokens, but an encoder reads 1 to {most}");
            }
            if types != 0 && types != tokens {
                bail!("a sequence has {types} token types for {tokens} tokens");
            }
        }
        match batch.is_empty() {
            true => bail!("the batch is empty"),
            false => Ok(()),
        }
    }

    fn embed(&self, batch: &[EncoderInput]) -> Result<Tensor> {
        let (mut words, mut positions, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for sequence in batch {
            words.extend(&sequence.tokens);
            self.place(&sequence.tokens, &mut positions);
            match self.spec.token_types {
                // RoBERTa has one type for both texts.
                1 => types.extend(sequence.tokens.iter().map(|_| 0)),
                _ if sequence.types.is_empty() => types.extend(sequence.tokens.iter().map(|_| 0)),
                _ => types.extend(&sequence.types),
            }
        }
        let words = self.tables.words.gather(&words, &self.device)?;
        let positions = self.tables.positions.gather(&positions, &self.device)?;
        let types = self.tables.types.gather(&types, &self.device)?;
        self.norm.forward(&((words + types)? + positions)?)
    }

    /// The positions of a sequence's tokens. RoBERTa skips padding, at any position.
    fn place(&self, tokens: &[u32], positions: &mut Vec<u32>) {
        let first = self.spec.first_position() as u32;
        match self.spec.family {
            EncoderFamily::Bert => positions.extend(0..tokens.len() as u32),
            EncoderFamily::Roberta => {
                let mut next = first;
                positions.extend(tokens.iter().map(|&token| {
                    if token == self.spec.padding {
                        return self.spec.padding;
                    }
                    next += 1;
                    next - 1
                }));
            }
        }
    }

    fn through_layer(&self, layer: &EncoderLayer, x: &Tensor, lengths: &[usize]) -> Result<Tensor> {
        let [q, k, v] = Linear::together([&layer.query, &layer.key, &layer.value], x)?;
        let mut start = 0;
        let gathered = lengths.iter().map(|&length| {
            let part = |x: &Tensor| self.in_heads(&x.narrow(0, start, length)?);
            let attended = attend(&part(&q)?, &part(&k)?, &part(&v)?)?;
            start += length;
            // [heads, length, size] to [length, hidden].
            attended.transpose(0, 1)?.contiguous()?.flatten_from(1)
        });
        let gathered = Tensor::cat(&gathered.collect::<Result<Vec<_>>>()?, 0)?;
        let attended = layer.output.forward(&gathered)?;
        let x = layer.attention_norm.forward(&(x + attended)?)?;
        let up = layer.up.forward(&x)?;
        let up = match self.spec.activation {
            Activation::Gelu => gelu_erf(&up),
            Activation::GeluTanh => gelu(&up),
            Activation::Relu => up.relu(),
        };
        let fed = layer.down.forward(&up?)?;
        layer.feed_norm.forward(&(x + fed)?)
    }

    /// `[length, hidden]` to `[heads, length, size]`.
    fn in_heads(&self, x: &Tensor) -> Result<Tensor> {
        let (length, _) = x.dims2()?;
        let shape = (length, self.spec.heads, self.spec.head_dim());
        x.reshape(shape)?.transpose(0, 1)?.contiguous()
    }
}

/// Self-attention of one sequence, in chunks of queries that limit the memory of the scores.
fn attend(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (heads, length, size) = q.dims3()?;
    let rows = (MOST_SCORES / (heads * length)).clamp(1, length);
    let q = (q * (1.0 / (size as f64).sqrt()))?;
    let k = k.transpose(1, 2)?.contiguous()?;
    let pieces = (0..length).step_by(rows).map(|start| {
        let q = q.narrow(1, start, rows.min(length - start))?.contiguous()?;
        softmax(&q.matmul(&k)?)?.matmul(v)
    });
    Tensor::cat(&pieces.collect::<Result<Vec<_>>>()?, 1)
}

fn softmax(scores: &Tensor) -> Result<Tensor> {
    let largest = scores.max_keepdim(D::Minus1)?;
    let powers = scores.broadcast_sub(&largest)?.exp()?;
    powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)
}

impl LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        let scaled = centred.broadcast_div(&(variance + self.eps)?.sqrt()?)?;
        scaled
            .broadcast_mul(&self.weight)?
            .broadcast_add(&self.bias)
    }
}
