//! Facts that files imply by the family's name: without a field in `config.json` or a key in GGUF.

use super::{
    family::Family,
    gpt_oss,
    spec::{NormPlacement, SoftCaps},
};
use crate::networks::layers::{GateActivation, RouterScore};
use muster_kernels::RopeStyle;

pub struct FamilyRules {
    /// The rope style in GGUF files: converters reorder the rows of some families' queries and keys to interleaved
    /// pairs.
    pub gguf_rope_style: RopeStyle,
    /// Files of the hub store the norms' weights less one.
    pub norms_add_one: bool,
    pub norms: NormPlacement,
    /// Norms of queries and keys go over all heads together.
    pub norms_whole_queries: bool,
    pub activation: GateActivation,
    /// Defaults for GGUF files.
    pub soft_caps: SoftCaps,
    /// Embeddings are multiplied by the root of the hidden size.
    pub scales_embeddings: bool,
    /// Default window for GGUF files.
    pub window: Option<usize>,
    /// The period of global layers; zero if none are global. `None` for families whose files list the layers with a
    /// window.
    pub window_period: Option<usize>,
    pub window_rope: WindowRope,
    /// The period of layers without rope.
    pub period_without_rope: Option<usize>,
    /// Default factor of attention scores in GGUF files.
    pub attention_scale: Option<f64>,
    /// The number of layers of the model whose attention scores are divided by the root of the hidden size per head
    /// instead of the head size.
    pub layers_scaled_by_share: Option<usize>,
    /// Whether the routing weights of a token's experts are normalized, as default for GGUF files; `None` for families
    /// without experts.
    pub normalizes_experts: Option<bool>,
    /// Default score function of a router in GGUF files.
    pub expert_score: RouterScore,
    pub expert_layout: ExpertLayout,
    /// The norm before feed-forward has the name of a norm after attention.
    pub names_feed_norm_by_attention: bool,
    /// Attention outputs have a gate, which is part of the query matrix.
    pub gates_attention: bool,
    /// In GGUF files value heads of recurrent layers alternate between key heads.
    pub tiles_value_heads: bool,
    /// Values are normed, without weights.
    pub norms_values: bool,
    /// The last layers may share the KV caches of earlier ones.
    pub shares_caches: bool,
    /// Whether YaRN's interpolation range is rounded to whole indices, which GGUF files omit.
    pub truncates_yarn: bool,
}

/// How files of the hub hold matrices of all experts in one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertLayout {
    /// Row by row, gates before ups.
    Rows,
    /// Column by column, gates before ups.
    Columns,
    /// Dense ones by columns, with gates and ups interleaved.
    ColumnsByTurns,
}

/// The rope of layers with a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WindowRope {
    AsElsewhere,
    /// The same base, without scaling.
    Unscaled,
    /// A separate base, without scaling.
    Own {
        theta: f64,
    },
}

const LLAMA: FamilyRules = FamilyRules {
    gguf_rope_style: RopeStyle::Pairs,
    norms_add_one: false,
    norms: NormPlacement::Before,
    norms_whole_queries: false,
    activation: GateActivation::Silu,
    soft_caps: SoftCaps {
        attention: None,
        logits: None,
    },
    scales_embeddings: false,
    window: None,
    window_period: None,
    window_rope: WindowRope::AsElsewhere,
    period_without_rope: None,
    attention_scale: None,
    layers_scaled_by_share: None,
    normalizes_experts: None,
    expert_score: RouterScore::Softmax,
    expert_layout: ExpertLayout::Rows,
    names_feed_norm_by_attention: false,
    gates_attention: false,
    tiles_value_heads: false,
    norms_values: false,
    shares_caches: false,
    truncates_yarn: true,
};

/// Three of four layers are delta nets.
const QWEN_NEXT: FamilyRules = FamilyRules {
    norms_add_one: true,
    normalizes_experts: Some(true),
    names_feed_norm_by_attention: true,
    gates_attention: true,
    ..QWEN
};

const QWEN: FamilyRules = FamilyRules {
    gguf_rope_style: RopeStyle::Halves,
    ..LLAMA
};

const GEMMA: FamilyRules = FamilyRules {
    norms_add_one: true,
    norms: NormPlacement::Around,
    activation: GateActivation::GeluTanh,
    scales_embeddings: true,
    ..QWEN
};

impl Family {
    pub fn rules(self) -> FamilyRules {
        match self {
            // GGUF files of all four have the architecture `llama`: those of Mistral have a window in all layers, those
            // of Mixtral experts.
            Self::Llama | Self::Mistral | Self::Ministral | Self::Mixtral => FamilyRules {
                window_period: Some(0),
                normalizes_experts: Some(true),
                ..LLAMA
            },
            Self::Llama4 => FamilyRules {
                window_period: Some(0),
                normalizes_experts: Some(false),
                expert_score: RouterScore::Sigmoid,
                expert_layout: ExpertLayout::Columns,
                ..LLAMA
            },
            Self::Ministral3 | Self::Granite => LLAMA,
            Self::Qwen2 | Self::Qwen3 | Self::Qwen3Vl => QWEN,
            Self::Qwen2Moe => FamilyRules {
                normalizes_experts: Some(false),
                ..QWEN
            },
            Self::Glm4Moe => FamilyRules {
                normalizes_experts: Some(true),
                expert_score: RouterScore::Sigmoid,
                names_feed_norm_by_attention: true,
                ..QWEN
            },
            // Files leave out the function of a router where it is a softmax.
            Self::DeepseekV2 | Self::DeepseekV3 | Self::Glm4MoeLite => FamilyRules {
                normalizes_experts: Some(false),
                ..LLAMA
            },
            Self::Qwen3Moe => FamilyRules {
                normalizes_experts: Some(true),
                ..QWEN
            },
            Self::Qwen3Next => QWEN_NEXT,
            Self::Qwen35Moe => FamilyRules {
                tiles_value_heads: true,
                ..QWEN_NEXT
            },
            Self::Qwen35 => FamilyRules {
                normalizes_experts: None,
                tiles_value_heads: true,
                ..QWEN_NEXT
            },
            Self::Gemma2 => FamilyRules {
                soft_caps: SoftCaps {
                    attention: Some(50.0),
                    logits: Some(30.0),
                },
                window: Some(4096),
                window_period: Some(2),
                layers_scaled_by_share: Some(46),
                ..GEMMA
            },
            Self::Gemma3 => FamilyRules {
                window_period: Some(6),
                window_rope: WindowRope::Own { theta: 10_000.0 },
                layers_scaled_by_share: Some(62),
                ..GEMMA
            },
            Self::Gemma3n => FamilyRules {
                norms_add_one: false,
                soft_caps: SoftCaps {
                    attention: None,
                    logits: Some(30.0),
                },
                window_period: Some(5),
                window_rope: WindowRope::Own { theta: 10_000.0 },
                attention_scale: Some(1.0),
                norms_values: true,
                shares_caches: true,
                ..GEMMA
            },
            Self::Gemma4 => FamilyRules {
                norms_add_one: false,
                window_rope: WindowRope::Own { theta: 10_000.0 },
                attention_scale: Some(1.0),
                norms_values: true,
                shares_caches: true,
                normalizes_experts: Some(true),
                ..GEMMA
            },
            Self::Phi3 => FamilyRules {
                window_period: Some(0),
                ..QWEN
            },
            Self::Olmo2 | Self::Olmo3 => FamilyRules {
                norms: NormPlacement::After,
                norms_whole_queries: true,
                window_period: Some(4),
                window_rope: WindowRope::Unscaled,
                ..QWEN
            },
            Self::Olmoe => FamilyRules {
                norms_whole_queries: true,
                normalizes_experts: Some(false),
                ..QWEN
            },
            Self::GptOss => FamilyRules {
                activation: GateActivation::SwigluOai {
                    alpha: gpt_oss::ALPHA,
                    limit: gpt_oss::LIMIT,
                },
                window_period: Some(2),
                normalizes_experts: Some(true),
                expert_layout: ExpertLayout::ColumnsByTurns,
                names_feed_norm_by_attention: true,
                truncates_yarn: false,
                ..QWEN
            },
            Self::GraniteHybrid => FamilyRules {
                normalizes_experts: Some(true),
                ..LLAMA
            },
            Self::Lfm2 => QWEN,
            Self::Lfm2Moe => FamilyRules {
                normalizes_experts: Some(true),
                expert_score: RouterScore::Sigmoid,
                ..QWEN
            },
            Self::SmolLm3 => FamilyRules {
                period_without_rope: Some(4),
                ..LLAMA
            },
        }
    }
}

impl FamilyRules {
    pub fn embedding_scale(&self, hidden_size: usize) -> f64 {
        match self.scales_embeddings {
            true => (hidden_size as f64).sqrt(),
            false => 1.0,
        }
    }

    pub fn layers_without_rope(&self, layers: usize) -> Vec<usize> {
        let Some(period) = self.period_without_rope else {
            return Vec::new();
        };
        (0..layers)
            .filter(|layer| (layer + 1).is_multiple_of(period))
            .collect()
    }

    /// The base of rope in layers with a window, where it is not scaled as elsewhere.
    pub fn window_theta(&self, elsewhere: f64) -> Option<f64> {
        match self.window_rope {
            WindowRope::AsElsewhere => None,
            WindowRope::Unscaled => Some(elsewhere),
            WindowRope::Own { theta } => Some(theta),
        }
    }
}
