//! Text networks of candle-transformers, each behind one small trait, for families without a [`DecoderSpec`].
//!
//! Such a network keeps its own cache of one sequence, so a model of it runs one job at a time: without batches, prefixes shared
//! between jobs and speculation. Weights and caches are f32, because half of the networks count positions in the type of their
//! weights. Only families whose networks agree with the reference are listed (`golden.rs`).
//!
//! [`DecoderSpec`]: super::text::DecoderSpec

mod config;
mod family;
mod load;
mod networks;

pub use self::{family::SingleSequenceFamily, load::load};

use candle_core::{Result, Tensor};

/// The library that the networks are from, as lists of models name it.
pub const LIBRARY: &str = "candle-transformers";

/// Most tokens of one pass, which bounds the scores of attention.
const PASS_TOKENS: usize = 128;

/// A network with the cache of one sequence.
pub trait SingleSequenceNetwork: Send {
    /// Forgets the sequence.
    fn clear(&mut self) -> Result<()>;

    /// Most tokens that a pass after `past` computed ones may have.
    fn pass_tokens(&self, _past: usize) -> usize {
        PASS_TOKENS
    }

    /// Computes the next tokens of the sequence, `[1, tokens]` after `past` computed ones. Returns the logits of the last
    /// one.
    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor>;
}

/// Sizes and settings of a network, from its `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct SingleSequenceSpec {
    pub family: SingleSequenceFamily,
    pub vocab_size: usize,
    pub layers: usize,
    /// The most tokens of a sequence.
    pub context: usize,
    sizes: LayerSizes,
    /// Whether files may have an output matrix that is a copy of the embedding table.
    ties_embeddings: bool,
    /// The configuration that the network's own type is parsed from, without the context.
    settings: serde_json::Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerSizes {
    Attention {
        hidden: usize,
        feed: usize,
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        rope_dims: usize,
    },
    Mamba {
        inner: usize,
    },
}

/// Numbers of a state of Mamba for each channel, and its width of convolutions: constants of the network.
const MAMBA_STATE: usize = 16;
const MAMBA_CONVOLUTION: usize = 4;

/// Bytes of a number of weights, caches and activations.
const F32_BYTES: u64 = 4;

impl SingleSequenceSpec {
    pub fn kv_bytes_per_token(&self) -> u64 {
        match self.sizes {
            LayerSizes::Attention {
                kv_heads, head_dim, ..
            } => F32_BYTES * (2 * self.layers * kv_heads * head_dim) as u64,
            LayerSizes::Mamba { .. } => 0,
        }
    }

    /// Activations of a pass, and the state of a recurrent network.
    pub fn workspace_bytes(&self) -> u64 {
        let numbers = match self.sizes {
            LayerSizes::Attention {
                hidden,
                feed,
                heads,
                head_dim,
                ..
            } => self.family.most_pass_tokens() * (6 * hidden + 3 * feed + 4 * heads * head_dim),
            // A state is replaced by a new one, and its terms have the same size.
            LayerSizes::Mamba { inner } => {
                let state = inner * (MAMBA_STATE + MAMBA_CONVOLUTION);
                (self.layers + 6) * state
            }
        };
        F32_BYTES * (numbers + 4 * self.vocab_size) as u64
    }

    /// Memory for each token of the longest sequence besides the cache: one layer's keys and values once more while they
    /// grow, repeated for the heads that share them, the scores with their mask, and the tables of the rope.
    pub fn scratch_bytes_per_token(&self) -> u64 {
        let LayerSizes::Attention {
            heads,
            kv_heads,
            head_dim,
            rope_dims,
            ..
        } = self.sizes
        else {
            return 0;
        };
        let keys = 2 * kv_heads * head_dim + 4 * heads * head_dim;
        let scores = self.family.most_pass_tokens() * (4 * heads + 3);
        let tables = 3 * rope_dims * self.family.rope_tables(self.layers);
        F32_BYTES * (keys + scores + tables) as u64
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod refusals;
