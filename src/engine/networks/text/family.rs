//! The supported families, and their names of files and tensors.

use std::fmt;

pub use super::naming::{Naming, Nesting};

/// A family of decoders, for the names in its files. `DecoderSpec` describes its computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Llama,
    Llama4,
    Mistral,
    Ministral,
    Ministral3,
    Mixtral,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    Qwen3Moe,
    Qwen3Vl,
    Qwen3Next,
    Qwen35,
    Qwen35Moe,
    Gemma2,
    Gemma3,
    Gemma3n,
    Gemma4,
    /// Phi 4 as well.
    Phi3,
    Olmo2,
    Olmo3,
    Olmoe,
    Glm4Moe,
    /// GLM-4.7-Flash.
    Glm4MoeLite,
    DeepseekV2,
    DeepseekV3,
    GptOss,
    Granite,
    GraniteHybrid,
    Lfm2,
    Lfm2Moe,
    SmolLm3,
}

/// Family, `architectures` of config.json, `general.architecture` of a GGUF file.
const FAMILIES: &[(Family, &str, &str)] = &[
    (Family::Llama, "LlamaForCausalLM", "llama"),
    (Family::Llama4, "Llama4ForCausalLM", "llama4"),
    (Family::Llama4, "Llama4ForConditionalGeneration", "llama4"),
    (Family::Mistral, "MistralForCausalLM", "llama"),
    (Family::Ministral, "MinistralForCausalLM", "llama"),
    (Family::Ministral3, "Ministral3ForCausalLM", "mistral3"),
    // GGUF files of Mixtral use the architecture of Llama with experts.
    (Family::Mixtral, "MixtralForCausalLM", "llama"),
    // Models with a vision tower.
    (Family::Llama, "SmolVLMForConditionalGeneration", "llama"),
    (Family::Llama, "Idefics3ForConditionalGeneration", "llama"),
    (Family::Mistral, "Mistral3ForConditionalGeneration", "llama"),
    (Family::Qwen2, "Qwen2ForCausalLM", "qwen2"),
    (Family::Qwen2, "Qwen2_5_VLForConditionalGeneration", "qwen2"),
    (Family::Qwen2Moe, "Qwen2MoeForCausalLM", "qwen2moe"),
    (Family::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    // Without the way to logits: a text encoder.
    (Family::Qwen3, "Qwen3Model", "qwen3"),
    (Family::Qwen3Moe, "Qwen3MoeForCausalLM", "qwen3moe"),
    (
        Family::Qwen3Vl,
        "Qwen3VLForConditionalGeneration",
        "qwen3vl",
    ),
    (Family::Qwen3Next, "Qwen3NextForCausalLM", "qwen3next"),
    (Family::Qwen35, "Qwen3_5ForCausalLM", "qwen35"),
    (Family::Qwen35, "Qwen3_5ForConditionalGeneration", "qwen35"),
    (Family::Qwen35Moe, "Qwen3_5MoeForCausalLM", "qwen35moe"),
    (
        Family::Qwen35Moe,
        "Qwen3_5MoeForConditionalGeneration",
        "qwen35moe",
    ),
    (Family::Gemma2, "Gemma2ForCausalLM", "gemma2"),
    (Family::Gemma3, "Gemma3ForCausalLM", "gemma3"),
    (Family::Gemma3, "Gemma3ForConditionalGeneration", "gemma3"),
    // Without the way to logits: the text encoder of EmbeddingGemma.
    (Family::Gemma3, "Gemma3TextModel", BIDIRECTIONAL_GEMMA),
    (Family::Gemma3n, "Gemma3nForCausalLM", "gemma3n"),
    (
        Family::Gemma3n,
        "Gemma3nForConditionalGeneration",
        "gemma3n",
    ),
    (Family::Gemma4, "Gemma4ForCausalLM", "gemma4"),
    (Family::Gemma4, "Gemma4ForConditionalGeneration", "gemma4"),
    (Family::Gemma4, "Gemma4UnifiedForCausalLM", "gemma4"),
    (
        Family::Gemma4,
        "Gemma4UnifiedForConditionalGeneration",
        "gemma4",
    ),
    (Family::Phi3, "Phi3ForCausalLM", "phi3"),
    (Family::Olmo2, "Olmo2ForCausalLM", "olmo2"),
    (Family::Olmo3, "Olmo3ForCausalLM", "olmo2"),
    (Family::Olmoe, "OlmoeForCausalLM", "olmoe"),
    (Family::Glm4Moe, "Glm4MoeForCausalLM", "glm4moe"),
    // GGUF files of all three have the architecture `deepseek2`.
    (Family::DeepseekV3, "DeepseekV3ForCausalLM", "deepseek2"),
    (Family::DeepseekV2, "DeepseekV2ForCausalLM", "deepseek2"),
    (Family::Glm4MoeLite, "Glm4MoeLiteForCausalLM", "deepseek2"),
    (Family::GptOss, "GptOssForCausalLM", "gpt-oss"),
    (Family::Granite, "GraniteForCausalLM", "granite"),
    (
        Family::GraniteHybrid,
        "GraniteMoeHybridForCausalLM",
        "granitehybrid",
    ),
    (Family::Lfm2, "Lfm2ForCausalLM", "lfm2"),
    (Family::Lfm2Moe, "Lfm2MoeForCausalLM", "lfm2moe"),
    (Family::SmolLm3, "SmolLM3ForCausalLM", "smollm3"),
];

/// `general.architecture` of a Gemma 3 that reads in both directions.
pub const BIDIRECTIONAL_GEMMA: &str = "gemma-embedding";
/// Tensors of GGUF files of models that read: products after the pooling, and the rows of answers.
const AFTER_POOLING: [&str; 3] = ["dense_2.weight", "dense_3.weight", "cls.output.weight"];

impl Family {
    pub fn of_architecture(name: &str) -> Option<Self> {
        FAMILIES
            .iter()
            .find(|entry| entry.1 == name)
            .map(|entry| entry.0)
    }

    pub fn of_gguf(name: &str) -> Option<Self> {
        FAMILIES
            .iter()
            .find(|entry| entry.2 == name)
            .map(|entry| entry.0)
    }

    pub fn gguf_name(self) -> &'static str {
        let entry = FAMILIES.iter().find(|entry| entry.0 == self);
        entry.map_or("llama", |entry| entry.2)
    }

    /// Whether files of the family contain a tensor that is not part of the decoder: multi-token prediction layers,
    /// towers of unsupported modalities, and the heads of encoders.
    pub fn leaves_in_file(self, tensor: &str) -> bool {
        match self {
            _ if AFTER_POOLING.contains(&tensor) => true,
            Self::Llama4 => {
                tensor.starts_with("vision_model.") || tensor.starts_with("multi_modal_projector.")
            }
            Self::Gemma3n | Self::Gemma4 => {
                GEMMA_TOWERS.iter().any(|tower| tensor.starts_with(tower))
            }
            Self::Qwen3Next | Self::Qwen35 | Self::Qwen35Moe => tensor.starts_with("mtp."),
            _ => false,
        }
    }

    pub fn known_architectures() -> String {
        joined(FAMILIES.iter().map(|entry| entry.1))
    }

    pub fn known_gguf_names() -> String {
        let mut names: Vec<&str> = FAMILIES.iter().map(|entry| entry.2).collect();
        names.dedup();
        joined(names.into_iter())
    }
}

/// Prefixes of the tower tensors of Gemma 3n and 4.
const GEMMA_TOWERS: &[&str] = &[
    "model.vision_tower.",
    "model.audio_tower.",
    "model.vision_embedder.",
    "model.embed_vision.",
    "model.embed_audio.",
];

fn joined(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The role of a decoder's tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Embedding,
    FinalNorm,
    /// Maps the last hidden state to logits.
    Head,
    /// The table that inputs of all layers come from.
    LayerInputTable,
    /// Maps embeddings to per-layer inputs.
    LayerInputProjection,
    LayerInputNorm,
    /// Maps embeddings to a further stream of hidden states, and back.
    StreamProjection(usize),
    StreamUnembedding(usize),
    Layer(usize, Part),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    AttentionNorm,
    Query,
    Key,
    Value,
    /// The three above in one matrix, in this order.
    QueryKeyValue,
    QueryNorm,
    KeyNorm,
    /// Latent attention: queries are projected down and up, with a norm in between.
    QueryDown,
    QueryDownNorm,
    QueryUp,
    /// Projects to a latent, followed by the key part with rope.
    LatentDown,
    LatentNorm,
    /// Projects a latent to the keys and values of all heads, interleaved.
    LatentUp,
    /// The two halves of the above for each head, as GGUF files have them: keys with columns first.
    LatentKeys,
    LatentValues,
    AttentionOutput,
    /// After attention, before the sum.
    AttentionPostNorm,
    /// Before the feed-forward part, where no norm follows attention.
    FeedNorm,
    /// The same where a norm follows attention.
    FeedPreNorm,
    Gate,
    Up,
    /// The two above in one matrix, in this order.
    GateUp,
    Down,
    /// After the feed-forward part, before the sum.
    FeedPostNorm,
    /// Maps hidden states to scores of experts.
    Router,
    /// Mixtral's name of the same, and that of gpt-oss.
    BlockSparseRouter,
    OssRouter,
    /// Added to the scores for the choice of experts.
    Correction,
    /// The matrices of shared experts; Qwen's names of the same follow.
    SharedGate,
    SharedUp,
    SharedDown,
    GatedSharedGate,
    GatedSharedUp,
    GatedSharedDown,
    /// Maps hidden states to the weight of the shared expert.
    SharedRouter,
    /// The scores of no token, one for each head.
    Sinks,
    /// The gates of all experts.
    GateExperts,
    UpExperts,
    /// The two above in one tensor, in this order for each expert.
    GateUpExperts,
    DownExperts,
    /// Delta nets: queries, keys and values in one matrix, and the gate of their values.
    DeltaQkv,
    DeltaGate,
    /// The two above in one matrix, key head by key head.
    DeltaInputs,
    DeltaBetas,
    DeltaSteps,
    /// The two above in one matrix, key head by key head.
    DeltaBetasAndSteps,
    DeltaStepBias,
    DeltaConvolution,
    /// Decay rates: negative in GGUF files, as logarithm of the absolute value in others.
    DeltaRates,
    DeltaNorm,
    DeltaOutput,
    /// Gated convolutions: both gates and the input in one matrix.
    ConvolutionInputs,
    Convolution,
    ConvolutionOutput,
    /// State spaces: gate, values with keys and queries, and steps in one matrix.
    SpaceInputs,
    SpaceConvolution,
    SpaceStepBias,
    SpaceRates,
    SpaceSkips,
    SpaceNorm,
    SpaceOutput,
    /// The gate and the ups of a shared expert in one matrix.
    SharedGateUp,
    /// Projects hidden states to the width of a layer's input, which it gates, and back.
    InputGate,
    InputProjection,
    InputNorm,
    /// Factor of the sum after a layer.
    LayerScale,
    /// Gemma 4's name of the router.
    GemmaRouter,
    /// Scale of the router's norm.
    RouterScale,
    /// Factors of the routing weights.
    ExpertScales,
    /// Alternating updates: maps a stream to coefficients, and the norm before.
    StreamRouter,
    StreamRouterNorm,
    Prediction,
    StreamCorrection,
    StreamScale,
    /// The low-rank product parallel to attention.
    ResidualLeft,
    ResidualRight,
    ResidualNorm,
    /// The norm before experts parallel to a dense part, and the norms after each of them.
    ExpertsPreNorm,
    DensePostNorm,
    ExpertsPostNorm,
}

/// A matrix that each expert has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertPart {
    Gate,
    Up,
    Down,
}

impl ExpertPart {
    /// The tensor that holds it of all experts.
    pub fn stacked(self) -> Part {
        match self {
            Self::Gate => Part::GateExperts,
            Self::Up => Part::UpExperts,
            Self::Down => Part::DownExperts,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Llama => "Llama",
            Self::Llama4 => "Llama 4",
            Self::Mistral => "Mistral",
            Self::Ministral => "Ministral",
            Self::Ministral3 => "Ministral 3",
            Self::Mixtral => "Mixtral",
            Self::Qwen2 => "Qwen2",
            Self::Qwen2Moe => "Qwen2-MoE",
            Self::Qwen3 => "Qwen3",
            Self::Qwen3Moe => "Qwen3-MoE",
            Self::Qwen3Vl => "Qwen3-VL",
            Self::Qwen3Next => "Qwen3-Next",
            Self::Qwen35 => "Qwen3.5",
            Self::Qwen35Moe => "Qwen3.5-MoE",
            Self::Gemma2 => "Gemma 2",
            Self::Gemma3 => "Gemma 3",
            Self::Gemma3n => "Gemma 3n",
            Self::Gemma4 => "Gemma 4",
            Self::Phi3 => "Phi-3",
            Self::Olmo2 => "OLMo 2",
            Self::Olmo3 => "OLMo 3",
            Self::Olmoe => "OLMoE",
            Self::Glm4Moe => "GLM-4.5",
            Self::Glm4MoeLite => "GLM-4.7-Flash",
            Self::DeepseekV2 => "DeepSeek V2",
            Self::DeepseekV3 => "DeepSeek V3",
            Self::GptOss => "gpt-oss",
            Self::Granite => "Granite",
            Self::GraniteHybrid => "Granite 4",
            Self::Lfm2 => "LFM2",
            Self::Lfm2Moe => "LFM2-MoE",
            Self::SmolLm3 => "SmolLM3",
        })
    }
}
