//! What a decoder is: sizes and the handful of facts in which families differ.

use candle_core::{DType, Device, Result};

use super::family::Family;
use muster_kernels::{AttentionScratch, AttentionShape, RopeStyle, RopeTable};

/// Everything the one decoder needs to know to be a Llama, a Mistral or a Qwen.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderSpec {
    pub family: Family,
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// The most tokens a sequence may have.
    pub context: usize,
    pub norm_eps: f64,
    pub rope: Rope,
    /// Queries and keys are normed, head by head, before they are turned.
    pub query_key_norm: bool,
    pub biases: Biases,
    /// The output matrix is the embedding table.
    pub tied_embeddings: bool,
    /// How many tokens a layer sees, for layers that do not see all: the first entry is the first layer's,
    /// and layers past the end see all.
    pub windows: Vec<Option<usize>>,
}

/// Which products have something added to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Biases {
    pub query_key_value: bool,
    pub attention_output: bool,
    pub feed_forward: bool,
}

/// How positions turn queries and keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub scaling: RopeScaling,
    pub style: RopeStyle,
    /// How many of a head's numbers turn; the rest stay as they are.
    pub dims: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions are divided by the factor.
    Linear {
        factor: f64,
    },
    /// Llama 3.1: long waves are slowed by the factor, short ones stay, those between are blended.
    Llama3 {
        factor: f64,
        low_frequency_factor: f64,
        high_frequency_factor: f64,
        original_context: usize,
    },
    /// Each frequency is divided by its own factor, as GGUF files store what the above comes to.
    Factors(Vec<f32>),
}

impl DecoderSpec {
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.windows.get(layer).copied().flatten()
    }

    /// Width of all query heads together.
    pub fn query_size(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads together; values have the same.
    pub fn kv_size(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    pub fn kv_bytes_per_token(&self, dtype: DType) -> u64 {
        2 * (self.layers * self.kv_size() * dtype.size_in_bytes()) as u64
    }

    /// What the table of cosines and sines takes on a device where it is made for the whole context.
    pub fn rope_bytes_per_token(&self) -> u64 {
        (self.rope.dims * size_of::<f32>()) as u64
    }

    /// What attention takes of a device other than the CPU, with so many new tokens in a step.
    pub fn attention_scratch(&self, stored: DType, new_tokens: usize) -> AttentionScratch {
        let shape = AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            stored,
        };
        shape.scratch(new_tokens, self.context)
    }

    /// The numbers in all matrices that a token is multiplied by, the output's included.
    pub fn multiplied_parameters(&self) -> u64 {
        let attention = 2 * self.hidden_size * (self.query_size() + self.kv_size());
        let feed_forward = 3 * self.hidden_size * self.intermediate_size;
        (self.layers * (attention + feed_forward) + self.vocab_size * self.hidden_size) as u64
    }

    pub fn rope_table(&self, device: &Device) -> Result<RopeTable> {
        RopeTable::new(
            self.rope.inverse_frequencies(),
            self.context,
            self.rope.style,
            1.0,
            device,
        )
    }
}

impl Rope {
    pub fn plain(theta: f64, style: RopeStyle, dims: usize) -> Self {
        Self {
            theta,
            scaling: RopeScaling::None,
            style,
            dims,
        }
    }

    pub fn inverse_frequencies(&self) -> Vec<f64> {
        let half = self.dims / 2;
        let plain = (0..half).map(|i| self.theta.powf(-(i as f64) / half as f64));
        // References keep these as f32, and their rounding counts at far positions.
        let rounded = |frequency: f64| f64::from(frequency as f32);
        let scaled = plain
            .enumerate()
            .map(|(i, plain)| self.scaling.scaled(i, plain));
        scaled.map(rounded).collect()
    }
}

impl RopeScaling {
    fn scaled(&self, index: usize, frequency: f64) -> f64 {
        match self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Factors(factors) => frequency / factors.get(index).map_or(1.0, |&f| f.into()),
            Self::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_context,
            } => {
                let turns = *original_context as f64 * frequency / std::f64::consts::TAU;
                let share_kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                share_kept * frequency + (1.0 - share_kept) * frequency / factor
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama3() -> Rope {
        Rope {
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
                original_context: 8192,
            },
            ..Rope::plain(500_000.0, RopeStyle::Halves, 128)
        }
    }

    #[test]
    fn llama3_scaling_keeps_short_waves_and_slows_long_ones() {
        let plain = Rope::plain(500_000.0, RopeStyle::Halves, 128).inverse_frequencies();
        let scaled = llama3().inverse_frequencies();
        assert_eq!(scaled[0], plain[0]);
        assert!((scaled[63] * 8.0 / plain[63] - 1.0).abs() < 1e-6);
        let between = plain
            .iter()
            .zip(&scaled)
            .filter(|(p, s)| s < p && **s > **p / 7.9);
        assert!(between.count() > 3);
    }

    #[test]
    fn linear_scaling_divides_positions() {
        let rope = Rope {
            scaling: RopeScaling::Linear { factor: 4.0 },
            ..Rope::plain(10_000.0, RopeStyle::Pairs, 4)
        };
        assert_eq!(rope.inverse_frequencies(), [0.25, f64::from(0.0025_f32)]);
    }
}
