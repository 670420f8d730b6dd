//! The description of a decoder: sizes, and the facts in which families differ.

use super::{
    experts::ExpertsSpec,
    family::Family,
    latent::LatentSpec,
    layer_kinds::{AlternatingUpdateSpec, GlobalHeads, LayerInputSpec},
    recurrent::RecurrentLayers,
    rope::{Rope, RopeAxes},
};
use crate::networks::{layers::GateActivation, vision::VisionFamily};
use muster_kernels::{AttentionReach, AttentionScratch, AttentionShape, KvDtype};

/// Everything the one decoder needs to know to be a Llama, a Gemma or a Qwen.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderSpec {
    pub family: Family,
    pub vocab_size: usize,
    pub hidden_size: usize,
    /// Width of dense feed-forward parts.
    pub intermediate_size: usize,
    /// The same of each layer, where they differ.
    pub intermediate_sizes: Vec<usize>,
    pub experts: Option<ExpertsSpec>,
    pub layers: usize,
    /// Multi-token prediction layers after these, which stay in the file.
    pub prediction_layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// The key heads and the head size of layers without a window, where these differ from the above.
    pub global_heads: Option<GlobalHeads>,
    /// The number of last layers without their own KV cache: each shares that of the last earlier layer of its kind,
    /// with or without a window.
    pub shared_layers: usize,
    /// Values are normed too, without weights.
    pub norms_values: bool,
    /// Inputs that each layer has besides the hidden state.
    pub layer_inputs: Option<LayerInputSpec>,
    /// Hidden states are several streams, of which a layer computes one.
    pub alternating_updates: Option<AlternatingUpdateSpec>,
    /// Activation sparsity: the cutoff of a layer's gates, in standard deviations above the mean; indexed like windows.
    pub gate_cutoffs: Vec<Option<f64>>,
    /// Whether the residual stream after each layer has a factor.
    pub scales_layers: bool,
    /// Keys and values are made of latents, of which all heads share one for each token.
    pub latent: Option<LatentSpec>,
    /// The most tokens a sequence may have.
    pub context: usize,
    pub norm_eps: f64,
    pub norms: NormPlacement,
    /// Queries and keys are normed before they are turned.
    pub query_key_norm: Option<QueryKeyNorm>,
    pub activation: GateActivation,
    pub rope: Rope,
    /// The rope axes of image tokens, if their positions have rows and columns.
    pub rope_axes: Option<RopeAxes>,
    /// The vision tower's family.
    pub vision: Option<VisionFamily>,
    /// The rope of layers with a window, if it differs.
    pub window_rope: Option<Rope>,
    /// Layers without rope, ascending.
    pub layers_without_rope: Vec<usize>,
    /// Factor of attention scores; `None` is one over the root of the head size.
    pub attention_scale: Option<f64>,
    /// The temperature of queries at far positions.
    pub query_temperature: Option<QueryTemperature>,
    /// Each head has a score in the softmax that no token has.
    pub attention_sinks: bool,
    /// Whether attention outputs have a gate.
    pub attention_gate: bool,
    pub soft_caps: SoftCaps,
    pub scales: Scales,
    pub biases: Biases,
    /// Bidirectional attention: the decoder is an encoder and generates no text.
    pub is_bidirectional: bool,
    /// The output matrix is the embedding table.
    pub tied_embeddings: bool,
    /// How many tokens a layer sees, for layers that do not see all: the first entry is the first layer's,
    /// and layers past the end see all.
    pub windows: Vec<Option<usize>>,
    /// Into chunks of how many tokens a layer's positions are cut, of which a token sees its own alone; as with windows.
    pub chunks: Vec<Option<usize>>,
    /// Layers that keep a state in place of keys and values.
    pub recurrent: Option<RecurrentLayers>,
}

/// Position of the norms of attention and feed-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlacement {
    /// On the way in.
    Before,
    /// On the way out, before the sum.
    After,
    /// On both ways.
    Around,
}

/// Over which numbers queries and keys are normed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKeyNorm {
    PerHead,
    /// Over all heads together.
    Whole,
    /// Per head, without weights, in layers with rope.
    Unweighted,
}

/// Llama 4's attention temperature: queries are multiplied by `1 + weight * ln(1 + floor(position / span))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryTemperature {
    pub weight: f64,
    pub span: usize,
    /// The position of the first token: 0 or 1.
    pub first: usize,
    /// Whether it applies only to layers without rope.
    pub is_of_unturned: bool,
}

/// Limits that numbers approach: `cap * tanh(x / cap)`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SoftCaps {
    pub attention: Option<f64>,
    pub logits: Option<f64>,
}

/// Factors of Gemma and Granite; 1 in other families.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// Factor of embeddings.
    pub embedding: f64,
    /// Factor of attention and feed-forward outputs before the residual sum.
    pub residual: f64,
    /// Divisor of logits.
    pub logits: f64,
}

/// The products that have biases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Biases {
    pub query_key_value: bool,
    pub attention_output: bool,
    pub feed_forward: bool,
}

impl DecoderSpec {
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.windows.get(layer).copied().flatten()
    }

    /// The rope of a layer.
    pub fn rope(&self, layer: usize) -> Option<&Rope> {
        match &self.window_rope {
            _ if self.layers_without_rope.contains(&layer) => None,
            Some(rope) if self.window(layer).is_some() => Some(rope),
            _ => Some(&self.rope),
        }
    }

    /// Which tokens a token sees in a layer.
    pub fn reach(&self, layer: usize) -> AttentionReach {
        match self.chunks.get(layer).copied().flatten() {
            _ if self.is_bidirectional => AttentionReach::Sequence,
            Some(size) => AttentionReach::Chunk(size),
            None => AttentionReach::Past,
        }
    }

    pub fn attention_scale(&self) -> f64 {
        let plain = 1.0 / (self.head_dim as f64).sqrt();
        self.attention_scale.unwrap_or(plain)
    }

    /// The epsilon of norms that read the running sum. The decoder keeps that sum divided by the residual scale,
    /// so that layers add to it as they are; the norms undo the division when their epsilon shrinks with it.
    pub fn stream_norm_eps(&self) -> f64 {
        self.norm_eps / (self.scales.residual * self.scales.residual)
    }

    /// Width of all query heads of a layer together.
    pub fn query_size(&self, layer: usize) -> usize {
        self.heads * self.layer_heads(layer).head_dim
    }

    /// Width of all key heads of a layer together; values have the same.
    pub fn kv_size(&self, layer: usize) -> usize {
        let heads = self.layer_heads(layer);
        heads.kv_heads * heads.head_dim
    }

    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> u64 {
        let layers = (0..self.layers).filter(|&layer| self.keeps_pages(layer));
        let numbers = layers.map(|layer| self.kept_numbers(layer));
        dtype.bytes(numbers.sum()) as u64
    }

    /// Bytes per token of the rope tables on a device where they are built for the whole context.
    pub fn rope_bytes_per_token(&self) -> u64 {
        let ropes = [Some(&self.rope), self.window_rope.as_ref()];
        let dims = ropes.into_iter().flatten().map(|rope| rope.dims);
        (dims.sum::<usize>() * size_of::<f32>()) as u64
    }

    /// GPU scratch memory of attention, with this many new tokens in a step.
    pub fn attention_scratch(&self, stored: KvDtype, new_tokens: usize) -> AttentionScratch {
        let shape = AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.widest_head(),
            stored,
            is_plain: !self.attention_sinks
                && self.chunks.is_empty()
                && self.latent.is_none()
                && !self.is_bidirectional,
        };
        shape.scratch(new_tokens, self.context)
    }

    /// The numbers in all matrices that a token is multiplied by, the output's included.
    pub fn multiplied_parameters(&self) -> u64 {
        let layers = (0..self.layers).map(|layer| {
            let (before, after) = self.mixer_parameters(layer);
            let input = self.layer_input_parameters();
            (before + after + input) as u64 + self.feed_parameters(layer)
        });
        let head = self.vocab_size * self.hidden_size;
        layers.sum::<u64>() + (head + self.all_inputs_parameters()) as u64
    }
}

impl NormPlacement {
    pub fn has_before(self) -> bool {
        self != Self::After
    }

    pub fn has_after(self) -> bool {
        self != Self::Before
    }
}

impl QueryTemperature {
    /// Factor of the query at a position.
    pub fn scale(&self, position: usize) -> f64 {
        let spans = ((position + self.first) / self.span) as f64;
        1.0 + self.weight * (1.0 + spans).ln()
    }
}

impl Default for Scales {
    fn default() -> Self {
        Self {
            embedding: 1.0,
            residual: 1.0,
            logits: 1.0,
        }
    }
}
