//! The families there are, and what files call them and their tensors.

use std::fmt;

/// A family of decoders: the names its files use. What it computes is in its `DecoderSpec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Llama,
    Mistral,
    Ministral,
    Ministral3,
    Qwen2,
    Qwen3,
    Qwen3Vl,
    Gemma2,
    Gemma3,
    /// Phi 4 as well.
    Phi3,
    Olmo2,
    Olmo3,
    Granite,
    SmolLm3,
}

/// Family, `architectures` of config.json, `general.architecture` of a GGUF file.
const FAMILIES: &[(Family, &str, &str)] = &[
    (Family::Llama, "LlamaForCausalLM", "llama"),
    (Family::Mistral, "MistralForCausalLM", "llama"),
    (Family::Ministral, "MinistralForCausalLM", "llama"),
    (Family::Ministral3, "Ministral3ForCausalLM", "mistral3"),
    (Family::Qwen2, "Qwen2ForCausalLM", "qwen2"),
    (Family::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    // Without the way to logits: a text encoder.
    (Family::Qwen3, "Qwen3Model", "qwen3"),
    (
        Family::Qwen3Vl,
        "Qwen3VLForConditionalGeneration",
        "qwen3vl",
    ),
    (Family::Gemma2, "Gemma2ForCausalLM", "gemma2"),
    (Family::Gemma3, "Gemma3ForCausalLM", "gemma3"),
    (Family::Phi3, "Phi3ForCausalLM", "phi3"),
    (Family::Olmo2, "Olmo2ForCausalLM", "olmo2"),
    (Family::Olmo3, "Olmo3ForCausalLM", "olmo2"),
    (Family::Granite, "GraniteForCausalLM", "granite"),
    (Family::SmolLm3, "SmolLM3ForCausalLM", "smollm3"),
];

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

    pub fn known_architectures() -> String {
        joined(FAMILIES.iter().map(|entry| entry.1))
    }

    pub fn known_gguf_names() -> String {
        let mut names: Vec<&str> = FAMILIES.iter().map(|entry| entry.2).collect();
        names.dedup();
        joined(names.into_iter())
    }
}

fn joined(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A tensor of a decoder by what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Embedding,
    FinalNorm,
    /// From the last hidden state to logits.
    Head,
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
}

/// Whose names a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// The Hugging Face hub's.
    Hub,
    /// The same of a network that was saved without the model around it.
    Bare,
    /// The same of a network with a vision tower beside it.
    BesideTower,
    Gguf,
}

const PARTS: &[(Part, &str, &str)] = &[
    (Part::AttentionNorm, "input_layernorm", "attn_norm"),
    (Part::Query, "self_attn.q_proj", "attn_q"),
    (Part::Key, "self_attn.k_proj", "attn_k"),
    (Part::Value, "self_attn.v_proj", "attn_v"),
    (Part::QueryKeyValue, "self_attn.qkv_proj", "attn_qkv"),
    (Part::QueryNorm, "self_attn.q_norm", "attn_q_norm"),
    (Part::KeyNorm, "self_attn.k_norm", "attn_k_norm"),
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
];

impl Naming {
    pub fn weight(self, role: Role) -> String {
        format!("{}.weight", self.stem(role))
    }

    pub fn bias(self, role: Role) -> String {
        format!("{}.bias", self.stem(role))
    }

    fn stem(self, role: Role) -> String {
        match (self, role) {
            (Self::Bare, Role::Head) => "lm_head".to_owned(),
            (Self::Bare, role) => {
                let stem = Self::Hub.stem(role);
                stem.strip_prefix("model.")
                    .map_or(stem.clone(), str::to_owned)
            }
            (Self::BesideTower, role) => {
                let stem = Self::Hub.stem(role);
                stem.strip_prefix("model.")
                    .map_or(stem.clone(), |rest| format!("model.language_model.{rest}"))
            }
            (Self::Hub, Role::Embedding) => "model.embed_tokens".to_owned(),
            (Self::Hub, Role::FinalNorm) => "model.norm".to_owned(),
            (Self::Hub, Role::Head) => "lm_head".to_owned(),
            (Self::Hub, Role::Layer(layer, part)) => {
                format!("model.layers.{layer}.{}", part.names().0)
            }
            (Self::Gguf, Role::Embedding) => "token_embd".to_owned(),
            (Self::Gguf, Role::FinalNorm) => "output_norm".to_owned(),
            (Self::Gguf, Role::Head) => "output".to_owned(),
            (Self::Gguf, Role::Layer(layer, part)) => format!("blk.{layer}.{}", part.names().1),
        }
    }
}

impl Part {
    fn names(self) -> (&'static str, &'static str) {
        let entry = PARTS.iter().find(|entry| entry.0 == self);
        entry.map_or(("", ""), |entry| (entry.1, entry.2))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Llama => "Llama",
            Self::Mistral => "Mistral",
            Self::Ministral => "Ministral",
            Self::Ministral3 => "Ministral 3",
            Self::Qwen2 => "Qwen2",
            Self::Qwen3 => "Qwen3",
            Self::Qwen3Vl => "Qwen3-VL",
            Self::Gemma2 => "Gemma 2",
            Self::Gemma3 => "Gemma 3",
            Self::Phi3 => "Phi-3",
            Self::Olmo2 => "OLMo 2",
            Self::Olmo3 => "OLMo 3",
            Self::Granite => "Granite",
            Self::SmolLm3 => "SmolLM3",
        })
    }
}
