//! Shapes of well-known models by name, so that a benchmark needs no file of theirs.

use super::{
    experts::ExpertsSpec,
    family::Family,
    recurrent::{DeltaNetSpec, RecurrenceSpec, RecurrentLayers},
    rope::{Rope, RopeScaling},
    spec::{Biases, DecoderSpec, NormPlacement, QueryKeyNorm, Scales, SoftCaps},
};
use crate::networks::layers::{GateActivation, Routing};
use muster_kernels::RecurrenceShape;

impl DecoderSpec {
    /// The shape that goes by this name, its rope as a GGUF file of the model has it.
    pub fn named(name: &str) -> Option<Self> {
        let shape = SHAPES.iter().find(|shape| shape.name == name);
        shape.map(Shape::spec)
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        SHAPES.iter().map(|shape| shape.name)
    }
}

struct Shape {
    name: &'static str,
    family: Family,
    vocab: usize,
    hidden: usize,
    feed: usize,
    /// How many experts, how many of them a token has, and the width of one.
    experts: Option<(usize, usize, usize)>,
    layers: usize,
    /// Query heads, key heads, numbers in a head.
    heads: (usize, usize, usize),
    context: usize,
    theta: f64,
    /// The rope factor of Llama 3.1 and later.
    slowed: Option<f64>,
    tied: bool,
}

const LLAMA_3: Shape = Shape {
    name: "",
    family: Family::Llama,
    vocab: 128_256,
    hidden: 0,
    feed: 0,
    experts: None,
    layers: 0,
    heads: (0, 8, 128),
    context: 131_072,
    theta: 500_000.0,
    slowed: Some(32.0),
    tied: true,
};

const QWEN35: Shape = Shape {
    name: "",
    family: Family::Qwen35,
    vocab: 248_320,
    hidden: 4096,
    feed: 12_288,
    experts: None,
    layers: 32,
    heads: (16, 4, 256),
    context: 32_768,
    theta: 10_000_000.0,
    slowed: None,
    tied: false,
};

const SHAPES: &[Shape] = &[
    Shape {
        name: "llama-3.2-1b",
        hidden: 2048,
        feed: 8192,
        layers: 16,
        heads: (32, 8, 64),
        ..LLAMA_3
    },
    Shape {
        name: "llama-3.2-3b",
        hidden: 3072,
        feed: 8192,
        layers: 28,
        heads: (24, 8, 128),
        ..LLAMA_3
    },
    Shape {
        name: "llama-3.1-8b",
        hidden: 4096,
        feed: 14_336,
        layers: 32,
        heads: (32, 8, 128),
        slowed: Some(8.0),
        tied: false,
        ..LLAMA_3
    },
    Shape {
        name: "qwen2.5-0.5b",
        family: Family::Qwen2,
        vocab: 151_936,
        hidden: 896,
        feed: 4864,
        experts: None,
        layers: 24,
        heads: (14, 2, 64),
        context: 32_768,
        theta: 1_000_000.0,
        slowed: None,
        tied: true,
    },
    Shape {
        name: "qwen3-0.6b",
        family: Family::Qwen3,
        vocab: 151_936,
        hidden: 1024,
        feed: 3072,
        experts: None,
        layers: 28,
        heads: (16, 8, 128),
        context: 40_960,
        theta: 1_000_000.0,
        slowed: None,
        tied: true,
    },
    Shape {
        name: "qwen3-30b-a3b",
        family: Family::Qwen3Moe,
        vocab: 151_936,
        hidden: 2048,
        feed: 6144,
        experts: Some((128, 8, 768)),
        layers: 48,
        heads: (32, 4, 128),
        context: 40_960,
        theta: 1_000_000.0,
        slowed: None,
        tied: false,
    },
    // A few layers of it, for machines that the whole does not fit.
    Shape {
        name: "qwen3-30b-a3b-layers",
        family: Family::Qwen3Moe,
        vocab: 151_936,
        hidden: 2048,
        feed: 6144,
        experts: Some((128, 8, 768)),
        layers: 12,
        heads: (32, 4, 128),
        context: 40_960,
        theta: 1_000_000.0,
        slowed: None,
        tied: false,
    },
    Shape {
        name: "qwen3.5-9b",
        ..QWEN35
    },
    // A few layers of it, one of which attends.
    Shape {
        name: "qwen3.5-9b-layers",
        layers: 4,
        ..QWEN35
    },
    Shape {
        name: "tiny-recurrent",
        vocab: 1024,
        hidden: 256,
        feed: 512,
        layers: 4,
        heads: (4, 2, 64),
        context: 4096,
        ..QWEN35
    },
    Shape {
        name: "tiny-experts",
        family: Family::Qwen3Moe,
        vocab: 1024,
        hidden: 256,
        feed: 512,
        experts: Some((12, 3, 256)),
        layers: 2,
        heads: (4, 2, 64),
        context: 4096,
        theta: 1_000_000.0,
        slowed: None,
        tied: false,
    },
    Shape {
        name: "tiny",
        vocab: 1024,
        hidden: 256,
        feed: 512,
        layers: 2,
        heads: (4, 2, 64),
        context: 4096,
        slowed: None,
        tied: false,
        ..LLAMA_3
    },
];

impl Shape {
    fn spec(&self) -> DecoderSpec {
        let (heads, kv_heads, head_dim) = self.heads;
        DecoderSpec {
            family: self.family,
            vocab_size: self.vocab,
            hidden_size: self.hidden,
            intermediate_size: self.feed,
            intermediate_sizes: Vec::new(),
            experts: self.experts.map(|(count, active, feed)| ExpertsSpec {
                count,
                intermediate_size: feed,
                routing: Routing::softmax(active, true),
                has_correction: false,
                has_biases: false,
                shared: None,
                scales_inputs: false,
                is_beside_dense: false,
                dense_layers: Vec::new(),
            }),
            layers: self.layers,
            prediction_layers: 0,
            heads,
            kv_heads,
            head_dim,
            global_heads: None,
            shared_layers: 0,
            norms_values: false,
            layer_inputs: None,
            alternating_updates: None,
            gate_cutoffs: Vec::new(),
            scales_layers: false,
            latent: None,
            context: self.context,
            // Rounded to f32 as in files of these models.
            norm_eps: match self.family {
                Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe | Family::Qwen35 => {
                    f64::from(1e-6_f32)
                }
                _ => f64::from(1e-5_f32),
            },
            rope: match self.family {
                Family::Qwen35 => self.rope(head_dim / 4),
                _ => self.rope(head_dim),
            },
            norms: NormPlacement::Before,
            query_key_norm: match self.family {
                Family::Qwen3 | Family::Qwen3Moe | Family::Qwen35 => Some(QueryKeyNorm::PerHead),
                _ => None,
            },
            activation: GateActivation::Silu,
            rope_axes: None,
            vision: None,
            window_rope: None,
            layers_without_rope: Vec::new(),
            attention_scale: None,
            query_temperature: None,
            attention_sinks: false,
            attention_gate: self.family.rules().gates_attention,
            soft_caps: SoftCaps::default(),
            scales: Scales::default(),
            biases: Biases {
                query_key_value: self.family == Family::Qwen2,
                ..Biases::default()
            },
            is_bidirectional: false,
            tied_embeddings: self.tied,
            windows: Vec::new(),
            chunks: Vec::new(),
            recurrent: self.recurrent(),
        }
    }

    /// Every fourth layer of Qwen3.5 is attention; the others have half as many key heads as value heads, and the
    /// hidden size as width of values.
    fn recurrent(&self) -> Option<RecurrentLayers> {
        if self.family != Family::Qwen35 {
            return None;
        }
        let net = DeltaNetSpec {
            kernel: 4,
            heads: RecurrenceShape {
                key_heads: self.hidden / 256,
                value_heads: self.hidden / 128,
                key_dim: 128,
                value_dim: 128,
                is_tiled: true,
            },
        };
        let layers = (0..self.layers).filter(|layer| layer % 4 != 3).collect();
        RecurrentLayers::new(RecurrenceSpec::DeltaNet(net), layers)
    }

    fn rope(&self, head_dim: usize) -> Rope {
        let plain = Rope::plain(self.theta, self.family.rules().gguf_rope_style, head_dim);
        let Some(factor) = self.slowed else {
            return plain;
        };
        let slowed = Rope {
            scaling: RopeScaling::Llama3 {
                factor,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
                original_context: 8192,
            },
            ..plain.clone()
        };
        let (before, after) = (
            plain.inverse_frequencies(self.context),
            slowed.inverse_frequencies(self.context),
        );
        let factors = before
            .iter()
            .zip(after)
            .map(|(before, after)| (before / after) as f32);
        Rope {
            scaling: RopeScaling::Factors(factors.collect()),
            ..plain
        }
    }
}
