//! Names of a decoder's tensors in files.

use super::family::{ExpertPart, Part, Role};
use super::gemma_names::{GEMMA_PARTS, GEMMA4_PARTS};
use super::llama4_names::LLAMA4_PARTS;
use super::recurrent_names::{GRANITE_HYBRID_PARTS, LFM2_PARTS, RECURRENT_PARTS};

/// The hub's name of a matrix of each expert: the text before and after the expert's number.
#[derive(Debug)]
pub struct ExpertName {
    list: String,
    matrix: &'static str,
}

impl ExpertName {
    pub fn named(&self, expert: usize) -> String {
        format!("{}.{expert}.{}.weight", self.list, self.matrix)
    }
}

/// The naming scheme of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// The Hugging Face hub's.
    Hub,
    /// The same of a network that was saved without the model around it.
    Bare,
    /// The same for a network with a vision tower.
    BesideTower(Nesting),
    /// The hub's, with Gemma 4's own for experts.
    Gemma4,
    Gemma4BesideTower,
    /// The hub's, with Llama 4's own for feed-forward parts.
    Llama4,
    Llama4BesideTower,
    /// The hub's, with LFM2's own for some parts.
    Lfm2,
    /// The hub's, with Granite 4's own for some parts.
    GraniteHybrid,
    Gguf,
}

/// Prefixes of networks with a vision tower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nesting {
    /// `model.language_model`.
    LanguageModel,
    /// `language_model.model`, as Llava began it.
    Llava,
    /// `model.text_model`.
    TextModel,
}

impl Nesting {
    fn prefix(self) -> &'static str {
        match self {
            Self::LanguageModel => "model.language_model.",
            Self::Llava => "language_model.model.",
            Self::TextModel => "model.text_model.",
        }
    }

    fn head(self) -> &'static str {
        match self {
            Self::LanguageModel | Self::TextModel => "lm_head",
            Self::Llava => "language_model.lm_head",
        }
    }
}

const PARTS: &[(Part, &str, &str)] = &[
    (Part::AttentionNorm, "input_layernorm", "attn_norm"),
    (Part::Query, "self_attn.q_proj", "attn_q"),
    (Part::Key, "self_attn.k_proj", "attn_k"),
    (Part::Value, "self_attn.v_proj", "attn_v"),
    (Part::QueryKeyValue, "self_attn.qkv_proj", "attn_qkv"),
    (Part::QueryNorm, "self_attn.q_norm", "attn_q_norm"),
    (Part::KeyNorm, "self_attn.k_norm", "attn_k_norm"),
    (Part::QueryDown, "self_attn.q_a_proj", "attn_q_a"),
    (
        Part::QueryDownNorm,
        "self_attn.q_a_layernorm",
        "attn_q_a_norm",
    ),
    (Part::QueryUp, "self_attn.q_b_proj", "attn_q_b"),
    (
        Part::LatentDown,
        "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_mqa",
    ),
    (
        Part::LatentNorm,
        "self_attn.kv_a_layernorm",
        "attn_kv_a_norm",
    ),
    (Part::LatentUp, "self_attn.kv_b_proj", "attn_kv_b"),
    (Part::LatentKeys, "self_attn.k_b_proj", "attn_k_b"),
    (Part::LatentValues, "self_attn.v_b_proj", "attn_v_b"),
    (Part::AttentionOutput, "self_attn.o_proj", "attn_output"),
    (
        Part::AttentionPostNorm,
        "post_attention_layernorm",
        "post_attention_norm",
    ),
    (Part::FeedNorm, "post_attention_layernorm", "ffn_norm"),
    (Part::FeedPreNorm, "pre_feedforward_layernorm", "ffn_norm"),
    (Part::Gate, "mlp.gate_proj", "ffn_gate"),
    (Part::Up, "mlp.up_proj", "ffn_up"),
    (Part::GateUp, "mlp.gate_up_proj", "ffn_up"),
    (Part::Down, "mlp.down_proj", "ffn_down"),
    (
        Part::FeedPostNorm,
        "post_feedforward_layernorm",
        "post_ffw_norm",
    ),
    (Part::Router, "mlp.gate", "ffn_gate_inp"),
    (
        Part::BlockSparseRouter,
        "block_sparse_moe.gate",
        "ffn_gate_inp",
    ),
    (Part::OssRouter, "mlp.router", "ffn_gate_inp"),
    (
        Part::Correction,
        "mlp.gate.e_score_correction_bias",
        "exp_probs_b",
    ),
    (
        Part::SharedGate,
        "mlp.shared_experts.gate_proj",
        "ffn_gate_shexp",
    ),
    (Part::SharedUp, "mlp.shared_experts.up_proj", "ffn_up_shexp"),
    (
        Part::SharedDown,
        "mlp.shared_experts.down_proj",
        "ffn_down_shexp",
    ),
    (
        Part::GatedSharedGate,
        "mlp.shared_expert.gate_proj",
        "ffn_gate_shexp",
    ),
    (
        Part::GatedSharedUp,
        "mlp.shared_expert.up_proj",
        "ffn_up_shexp",
    ),
    (
        Part::GatedSharedDown,
        "mlp.shared_expert.down_proj",
        "ffn_down_shexp",
    ),
    (
        Part::SharedRouter,
        "mlp.shared_expert_gate",
        "ffn_gate_inp_shexp",
    ),
    (Part::Sinks, "self_attn.sinks", "attn_sinks"),
    (Part::GateExperts, "mlp.experts.gate_proj", "ffn_gate_exps"),
    (Part::UpExperts, "mlp.experts.up_proj", "ffn_up_exps"),
    (
        Part::GateUpExperts,
        "mlp.experts.gate_up_proj",
        "ffn_gate_up_exps",
    ),
    (Part::DownExperts, "mlp.experts.down_proj", "ffn_down_exps"),
];

impl Naming {
    pub fn weight(self, role: Role) -> String {
        match (self, role) {
            (
                Self::Gguf,
                Role::Layer(
                    _,
                    Part::DeltaRates
                    | Part::SpaceRates
                    | Part::SpaceSkips
                    | Part::RouterScale
                    | Part::ExpertScales,
                ),
            ) => self.stem(role),
            (Self::Gguf, _) => format!("{}.weight", self.stem(role)),
            (_, Role::Layer(_, part)) if part.is_bare() => self.stem(role),
            _ => format!("{}.weight", self.stem(role)),
        }
    }

    /// Whether the name is that of a matrix which is not quantized while loading: a router, or the gates of a recurrence.
    pub fn stays_dense(name: &str) -> bool {
        let dense = [
            Part::Router,
            Part::BlockSparseRouter,
            Part::OssRouter,
            Part::GemmaRouter,
            Part::StreamRouter,
            Part::Prediction,
            Part::StreamCorrection,
            Part::SharedRouter,
            Part::DeltaBetas,
            Part::DeltaSteps,
            Part::DeltaBetasAndSteps,
            Part::DeltaConvolution,
            Part::Convolution,
            Part::SpaceConvolution,
        ];
        let dense = dense.map(Part::names);
        let others = [
            "feed_forward.gate",
            "feed_forward.router",
            "block_sparse_moe.router.layer",
        ];
        let mut stems = dense
            .iter()
            .flat_map(|(hub, gguf)| [hub, gguf])
            .chain(&others);
        let stem = name.strip_suffix(".weight").unwrap_or(name);
        stems.any(|dense| stem.strip_suffix(dense).is_some_and(|it| it.ends_with('.')))
    }

    /// The possible names of a matrix with a separate tensor per expert: the common one, and Mixtral's.
    pub fn experts_apart(self, layer: usize, part: ExpertPart) -> [ExpertName; 2] {
        let (usual, mixtral) = match part {
            ExpertPart::Gate => ("gate_proj", "w1"),
            ExpertPart::Up => ("up_proj", "w3"),
            ExpertPart::Down => ("down_proj", "w2"),
        };
        let layer = self.layer(layer);
        if self == Self::Lfm2 {
            return [mixtral; 2].map(|matrix| ExpertName {
                list: format!("{layer}.feed_forward.experts"),
                matrix,
            });
        }
        [("mlp", usual), ("block_sparse_moe", mixtral)].map(|(block, matrix)| ExpertName {
            list: format!("{layer}.{block}.experts"),
            matrix,
        })
    }

    /// Prefix of a layer's tensors.
    pub fn layer(self, layer: usize) -> String {
        match self {
            Self::Gguf => format!("blk.{layer}"),
            _ => format!("{}layers.{layer}", self.prefix()),
        }
    }

    /// Prefix of all tensors on the hub except the head's.
    fn prefix(self) -> &'static str {
        match self {
            Self::Hub | Self::Lfm2 | Self::GraniteHybrid | Self::Gemma4 | Self::Llama4 => "model.",
            Self::Llama4BesideTower => "language_model.model.",
            Self::Gemma4BesideTower => "model.language_model.",
            Self::BesideTower(nesting) => nesting.prefix(),
            Self::Bare | Self::Gguf => "",
        }
    }

    /// Parts whose names differ from those of the hub.
    fn own_parts(self) -> &'static [(Part, &'static str)] {
        match self {
            Self::Lfm2 => LFM2_PARTS,
            Self::GraniteHybrid => GRANITE_HYBRID_PARTS,
            Self::Gemma4 | Self::Gemma4BesideTower => GEMMA4_PARTS,
            Self::Llama4 | Self::Llama4BesideTower => LLAMA4_PARTS,
            Self::Hub | Self::Bare | Self::BesideTower(_) | Self::Gguf => &[],
        }
    }

    pub fn bias(self, role: Role) -> String {
        match (self, role) {
            (Self::Gguf, _) => format!("{}.bias", self.stem(role)),
            (_, Role::Layer(_, part)) if part.is_bare() => format!("{}_bias", self.stem(role)),
            _ => format!("{}.bias", self.stem(role)),
        }
    }

    fn stem(self, role: Role) -> String {
        let part = match (self, role) {
            (Self::Gguf, Role::Embedding) => "token_embd",
            (Self::Gguf, Role::FinalNorm) => "output_norm",
            (Self::Gguf, Role::Head) => "output",
            (Self::Gguf, Role::LayerInputTable) => "per_layer_token_embd",
            (Self::Gguf, Role::LayerInputProjection) => "per_layer_model_proj",
            (Self::Gguf, Role::LayerInputNorm) => "per_layer_proj_norm",
            // One tensor for all streams.
            (Self::Gguf, Role::StreamProjection(_)) => "altup_proj",
            (Self::Gguf, Role::StreamUnembedding(_)) => "altup_unembd_proj",
            (Self::Gguf, Role::Layer(layer, part)) => {
                return format!("{}.{}", self.layer(layer), part.names().1);
            }
            (Self::BesideTower(nesting), Role::Head) => return nesting.head().to_owned(),
            (Self::Llama4BesideTower, Role::Head) => return "language_model.lm_head".to_owned(),
            (_, Role::Head) => return "lm_head".to_owned(),
            (_, Role::Embedding) => "embed_tokens",
            (Self::Lfm2, Role::FinalNorm) => "embedding_norm",
            (_, Role::FinalNorm) => "norm",
            (_, Role::LayerInputTable) => "embed_tokens_per_layer",
            (_, Role::LayerInputProjection) => "per_layer_model_projection",
            (_, Role::LayerInputNorm) => "per_layer_projection_norm",
            (_, Role::StreamProjection(stream)) => {
                return format!("{}altup_projections.{stream}", self.prefix());
            }
            (_, Role::StreamUnembedding(stream)) => {
                return format!("{}altup_unembed_projections.{stream}", self.prefix());
            }
            (_, Role::Layer(layer, part)) => {
                let own = self.own_parts().iter().find(|entry| entry.0 == part);
                let name = own.map_or(part.names().0, |entry| entry.1);
                return format!("{}.{name}", self.layer(layer));
            }
        };
        format!("{}{part}", self.prefix())
    }
}

impl Part {
    /// Whether the hub's name of it has no ending.
    fn is_bare(self) -> bool {
        matches!(
            self,
            Self::GateExperts
                | Self::UpExperts
                | Self::GateUpExperts
                | Self::DownExperts
                | Self::Correction
                | Self::Sinks
                | Self::DeltaRates
                | Self::DeltaStepBias
                | Self::SpaceRates
                | Self::SpaceSkips
                | Self::SpaceStepBias
                | Self::LayerScale
                | Self::StreamScale
                | Self::RouterScale
                | Self::ExpertScales
        )
    }

    fn names(self) -> (&'static str, &'static str) {
        let mut entries = PARTS.iter().chain(RECURRENT_PARTS).chain(GEMMA_PARTS);
        let entry = entries.find(|entry| entry.0 == self);
        entry.map_or(("", ""), |entry| (entry.1, entry.2))
    }
}
