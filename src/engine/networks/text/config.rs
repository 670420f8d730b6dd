//! `config.json` of the Hugging Face hub: the fields that decoders share, parsed once and checked.
//!
//! Supported fields become part of the spec. Unsupported values that would change the result are refused by name.
//! `rope_json.rs` reads the fields about rope.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    deepseek,
    experts::ExpertsJson,
    family::Family,
    gemma, gemma3n,
    gemma4::{self, GemmaJson},
    glm, gpt_oss, granite, granite_hybrid,
    latent::LatentJson,
    lfm, llama,
    llama4::{self, Llama4Json},
    mistral, olmo, phi, qwen, qwen_next,
    recurrent::RecurrentJson,
    rope::{Rope, RopeScaling},
    rope_json::RopeJson,
    smollm,
    spec::{DecoderSpec, QueryTemperature},
};
use crate::networks::{
    layers::GateActivation,
    single_sequence::SingleSequenceFamily,
    vision::VisionFamily,
    weights::{Flaw, Packing, layered},
};

/// The raw file, converted to a spec by each family.
#[derive(Debug, Deserialize)]
pub struct ConfigJson {
    pub vocab_size: usize,
    pub hidden_size: usize,
    /// Missing if all layers have experts.
    #[serde(default)]
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: Option<usize>,
    pub head_dim: Option<usize>,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f64,
    hidden_act: Option<String>,
    /// Gemma's name for the same.
    hidden_activation: Option<String>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeJson>,
    /// Contains both of the above in newer files.
    rope_parameters: Option<RopeJson>,
    partial_rotary_factor: Option<f64>,
    pub attention_bias: Option<bool>,
    pub mlp_bias: Option<bool>,
    pub tie_word_embeddings: Option<bool>,
    pub sliding_window: Option<usize>,
    pub use_sliding_window: Option<bool>,
    pub max_window_layers: Option<usize>,
    pub layer_types: Option<Vec<String>>,
    /// In older files of Gemma 3, the period of layers without a window.
    pub sliding_window_pattern: Option<usize>,
    rope_local_base_freq: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    pub query_pre_attn_scalar: Option<f64>,
    pub attn_logit_softcapping: Option<f64>,
    pub final_logit_softcapping: Option<f64>,
    pub use_bidirectional_attention: Option<bool>,
    pub no_rope_layers: Option<Vec<u8>>,
    pub no_rope_layer_interval: Option<usize>,
    pub embedding_multiplier: Option<f64>,
    pub attention_multiplier: Option<f64>,
    pub residual_multiplier: Option<f64>,
    pub logits_scaling: Option<f64>,
    pub clip_qkv: Option<f64>,
    pub qkv_bias: Option<bool>,
    pub use_qk_norm: Option<bool>,
    pub swiglu_alpha: Option<f32>,
    pub swiglu_limit: Option<f32>,
    #[serde(flatten)]
    pub experts: ExpertsJson,
    #[serde(flatten)]
    pub recurrent: RecurrentJson,
    #[serde(flatten)]
    pub latent: LatentJson,
    #[serde(flatten)]
    pub gemma: GemmaJson,
    #[serde(flatten)]
    pub llama4: Llama4Json,
    quantization_config: Option<serde_json::Value>,
}

pub fn spec(value: &serde_json::Value) -> Result<DecoderSpec, Flaw> {
    let family = family(value)?;
    let mut text = of_decoder(value);
    if family == Family::Gemma4 {
        gemma4::fill(&mut text, value);
    }
    if VisionFamily::of(value) == Some(VisionFamily::Gemma3) {
        gemma::fill(&mut text);
    }
    let config: ConfigJson = serde_json::from_value(with_usual_names(family, text))
        .map_err(|error| Flaw::broken("config.json", error, format!("a {family} configuration")))?;
    config.check(family)?;
    let spec = match family {
        Family::Llama => llama::spec(&config, family),
        Family::Llama4 => llama4::llama4_spec(&config),
        Family::Mistral => mistral::mistral_spec(&config),
        Family::Ministral => mistral::ministral_spec(&config),
        Family::Ministral3 => mistral::ministral3_spec(&config),
        Family::Mixtral => mistral::mixtral_spec(&config),
        Family::Qwen2 => qwen::qwen2_spec(&config),
        Family::Qwen2Moe => qwen::qwen2_moe_spec(&config),
        Family::Qwen3 => qwen::qwen3_spec(&config),
        Family::Qwen3Moe => qwen::qwen3_moe_spec(&config),
        Family::Qwen3Vl => qwen::qwen3_vl_spec(&config),
        Family::Qwen3Next => qwen_next::qwen3_next_spec(&config),
        Family::Qwen35 => qwen_next::qwen3_5_spec(&config),
        Family::Qwen35Moe => qwen_next::qwen3_5_moe_spec(&config),
        Family::Gemma2 => gemma::gemma2_spec(&config),
        Family::Gemma3 => gemma::gemma3_spec(&config),
        Family::Gemma3n => gemma3n::gemma3n_spec(&config),
        Family::Gemma4 => gemma4::gemma4_spec(&config),
        Family::Phi3 => phi::phi3_spec(&config),
        Family::Olmo2 => olmo::olmo2_spec(&config),
        Family::Olmo3 => olmo::olmo3_spec(&config),
        Family::Olmoe => olmo::olmoe_spec(&config),
        Family::Glm4Moe => glm::glm4_moe_spec(&config),
        Family::DeepseekV2 => deepseek::deepseek_v2_spec(&config),
        Family::DeepseekV3 => deepseek::deepseek_v3_spec(&config),
        Family::Glm4MoeLite => deepseek::glm4_moe_lite_spec(&config),
        Family::GptOss => gpt_oss::gpt_oss_spec(&config),
        Family::Granite => granite::granite_spec(&config),
        Family::Lfm2 => lfm::lfm2_spec(&config),
        Family::Lfm2Moe => lfm::lfm2_moe_spec(&config),
        Family::GraniteHybrid => granite_hybrid::granite_hybrid_spec(&config),
        Family::SmolLm3 => smollm::smollm3_spec(&config),
    }?;
    super::limits::check(&spec)?;
    Ok(DecoderSpec {
        vision: VisionFamily::of(value),
        ..spec
    })
}

/// The decoder's settings, which are a separate object in models with vision.
fn of_decoder(value: &serde_json::Value) -> serde_json::Value {
    let Some(text) = value.get("text_config").filter(|text| text.is_object()) else {
        return value.clone();
    };
    let mut text = text.clone();
    for name in ["tie_word_embeddings", "quantization_config"] {
        if let Some(whole) = value.get(name) {
            text[name] = whole.clone();
        }
    }
    text
}

/// The settings of LFM2 and Gemma 4 under the names that other families have for them.
fn with_usual_names(family: Family, mut value: serde_json::Value) -> serde_json::Value {
    let names: &[(&str, &str)] = match family {
        Family::Lfm2 | Family::Lfm2Moe => &[
            ("norm_eps", "rms_norm_eps"),
            ("tie_embedding", "tie_word_embeddings"),
            ("block_ff_dim", "intermediate_size"),
        ],
        Family::Gemma4 => &[("top_k_experts", "num_experts_per_tok")],
        _ => &[],
    };
    for (from, to) in names {
        if let Some(setting) = value.get(from).filter(|it| !it.is_null()) {
            value[to] = setting.clone();
        }
    }
    if family == Family::Gemma3n
        && let Some(sizes) = value["intermediate_size"].as_array().cloned()
    {
        value["intermediate_size"] = sizes.first().cloned().unwrap_or_default();
        value["intermediate_sizes"] = sizes.into();
    }
    if family == Family::Gemma4 {
        // Only image tokens have bidirectional attention, and images of this family are refused.
        let directions = match value["use_bidirectional_attention"].as_str() {
            Some("all") => json!(true),
            Some("vision") => json!(false),
            _ => value["use_bidirectional_attention"].clone(),
        };
        value["use_bidirectional_attention"] = directions;
    }
    value
}

fn family(value: &serde_json::Value) -> Result<Family, Flaw> {
    let names: Vec<&str> = value["architectures"]
        .as_array()
        .map(|names| names.iter().filter_map(serde_json::Value::as_str).collect())
        .unwrap_or_default();
    let known = names.iter().find_map(|name| Family::of_architecture(name));
    if let Some(name) = value["text_config"]["model_type"].as_str() {
        let is_mistral3 = VisionFamily::of(value) == Some(VisionFamily::Mistral3);
        match name {
            "ministral3" if is_mistral3 => return Ok(Family::Ministral3),
            "mistral" => {}
            other if is_mistral3 => {
                let known = "mistral and ministral3";
                return Err(Flaw::unsupported("text_config.model_type", other, known));
            }
            _ => {}
        }
    }
    known.ok_or_else(|| {
        if let Some(family) = SingleSequenceFamily::of_config(value) {
            let known = "texts alone: a network of candle-transformers takes no adapters and gives no hidden states";
            return Flaw::unsupported("the decoder", family, known);
        }
        let found = match names.as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let others = SingleSequenceFamily::known_architectures();
        let known = format!("{}, {others}", Family::known_architectures());
        Flaw::unsupported("architectures", found, known)
    })
}

/// FP8 (E4M3) with a scale for each block of 128 x 128, each row or each matrix. Settings for activations are ignored.
fn is_fp8(config: &Value) -> bool {
    match config["quant_method"].as_str() {
        Some("fp8") => {
            let is_e4m3 = config["fmt"].as_str().is_none_or(|fmt| fmt == "e4m3");
            let block = &config["weight_block_size"];
            is_e4m3 && (block.is_null() || *block == json!([128, 128]))
        }
        Some("compressed-tensors") => {
            let groups = config["config_groups"].as_object();
            let mut weights = groups.into_iter().flatten().map(|(_, it)| &it["weights"]);
            let is_eight = |weights: &Value| {
                let strategy = weights["strategy"].as_str().unwrap_or("tensor");
                let block = &weights["block_structure"];
                weights["type"] == "float"
                    && weights["num_bits"] == 8
                    && match strategy {
                        "tensor" | "channel" => true,
                        "block" => *block == json!([128, 128]),
                        _ => false,
                    }
            };
            config["format"] == "float-quantized" && weights.all(is_eight)
        }
        _ => false,
    }
}

impl ConfigJson {
    fn check(&self, family: Family) -> Result<(), Flaw> {
        layered("num_hidden_layers", self.num_hidden_layers)?;
        let Some(config) = &self.quantization_config else {
            return Ok(());
        };
        let method = config["quant_method"].as_str();
        if family == Family::GptOss && method == Some("mxfp4") {
            return Ok(());
        }
        let is_packed = Packing::of(&json!({"quantization_config": config}))?.is_some();
        if is_packed || is_fp8(config) {
            return Ok(());
        }
        let known = "weights in f32, f16 and bf16, in FP8 (E4M3) with scales for blocks of 128 x 128, rows or matrices, in \
                     AWQ, GPTQ and packed compressed-tensors of 4 or 8 bits, or a quantized GGUF";
        let method = match method.unwrap_or("an unnamed method") {
            "fp8" => format!("fp8 with weight_block_size {}", config["weight_block_size"]),
            "compressed-tensors" => {
                format!("compressed-tensors in the format {}", config["format"])
            }
            other => other.to_owned(),
        };
        Err(Flaw::unsupported("quantization_config", method, known))
    }

    pub fn activation(&self, default: GateActivation) -> Result<GateActivation, Flaw> {
        let (field, name) = match (&self.hidden_activation, &self.hidden_act) {
            (Some(name), _) => ("hidden_activation", name.as_str()),
            (None, Some(name)) => ("hidden_act", name.as_str()),
            (None, None) => return Ok(default),
        };
        match name {
            "silu" => Ok(GateActivation::Silu),
            "gelu_pytorch_tanh" => Ok(GateActivation::GeluTanh),
            other => Err(Flaw::unsupported(
                field,
                other,
                "silu and gelu_pytorch_tanh",
            )),
        }
    }

    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Zero heads are refused later, with all sizes.
    pub fn head_dim_or_share(&self) -> usize {
        let share = self.hidden_size.checked_div(self.num_attention_heads);
        self.head_dim.or(share).unwrap_or(0)
    }

    pub fn names_rope(&self) -> bool {
        self.rope_parameters.is_some() || self.rope_scaling.is_some()
    }

    /// The fields about rope, at either place.
    fn rope_json(&self) -> RopeJson {
        let json = self.rope_parameters.clone().or(self.rope_scaling.clone());
        let mut json = json.unwrap_or_default().of_full_attention();
        let original = self.original_max_position_embeddings;
        let original = original.or(json.original_max_position_embeddings);
        json.original_max_position_embeddings = original;
        json.rope_theta = json.rope_theta.or(self.rope_theta);
        json.partial_rotary_factor = json.partial_rotary_factor.or(self.partial_rotary_factor);
        json
    }

    /// The longest sequence: the original context times YaRN's factor, if the file declares the original one.
    pub fn context(&self, rope: &Rope) -> usize {
        let context = self.max_position_embeddings;
        match &rope.scaling {
            RopeScaling::Yarn(yarn) => {
                context.max((yarn.original_context as f64 * yarn.factor) as usize)
            }
            _ => context,
        }
    }

    /// The rope of global layers.
    pub fn rope(&self, head_dim: usize) -> Result<Rope, Flaw> {
        self.rope_with(head_dim, 10_000.0)
    }

    /// The number of frequencies per axis in the file, and whether the axes are interleaved.
    pub fn rope_sections(&self) -> (Option<[usize; 3]>, Option<bool>) {
        let json = self.rope_json();
        (json.mrope_section, json.mrope_interleaved)
    }

    /// The same with another base where the file names none.
    pub fn rope_with(&self, head_dim: usize, theta: f64) -> Result<Rope, Flaw> {
        let context = self.max_position_embeddings;
        self.rope_json().rope(head_dim, theta, context)
    }

    /// The same for files that may omit the rotated proportion of a head.
    pub fn rope_of_share(&self, head_dim: usize, share: f64) -> Result<Rope, Flaw> {
        let mut json = self.rope_json();
        json.partial_rotary_factor = json.partial_rotary_factor.or(Some(share));
        json.rope(head_dim, 10_000.0, self.max_position_embeddings)
    }

    /// The rope of layers with a window, if the file overrides the family's default.
    pub fn window_rope(&self, default: Rope) -> Result<Rope, Flaw> {
        let json = self.rope_parameters.clone().and_then(RopeJson::of_windows);
        match json {
            Some(json) => json.rope(default.dims, default.theta, self.max_position_embeddings),
            None => Ok(Rope {
                theta: self.rope_local_base_freq.unwrap_or(default.theta),
                ..default
            }),
        }
    }

    /// Factor of attention scores in addition to the scaled rope, by DeepSeek's definition.
    pub fn rope_weight(&self) -> f64 {
        let context = self.max_position_embeddings;
        self.rope_json().product_weight(context)
    }

    /// Ministral 3's query temperature, a field of its rope.
    pub fn query_temperature(&self) -> Result<Option<QueryTemperature>, Flaw> {
        let json = self.rope_json();
        let Some(weight) = json.llama_4_scaling_beta else {
            return Ok(None);
        };
        let span = json.original_max_position_embeddings;
        let span = span.unwrap_or(self.max_position_embeddings);
        Ok(Some(QueryTemperature {
            weight,
            span,
            first: 0,
            is_of_unturned: false,
        }))
    }

    /// Sliding windows per layer: from `layer_types`, or else by the family's rule.
    pub fn windows(&self, has_window: impl Fn(usize) -> bool) -> Result<Vec<Option<usize>>, Flaw> {
        let Some(window) = self.sliding_window else {
            return Ok(Vec::new());
        };
        let Some(types) = &self.layer_types else {
            return Ok(windows(window, self.num_hidden_layers, has_window));
        };
        let windows = types.iter().map(|name| match name.as_str() {
            "full_attention" => Ok(None),
            "sliding_attention" => Ok(Some(window)),
            other => Err(Flaw::unsupported(
                "layer_types",
                other,
                "full_attention and sliding_attention",
            )),
        });
        Ok(trimmed(windows.collect::<Result<_, _>>()?))
    }
}

/// The same window in all layers that have one.
pub fn windows(
    window: usize,
    layers: usize,
    has_window: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    let windows = (0..layers).map(|layer| has_window(layer).then_some(window));
    trimmed(windows.collect())
}

/// Layers past the end have no window, so a spec without windows is always the same value.
pub fn trimmed<T>(mut windows: Vec<Option<T>>) -> Vec<Option<T>> {
    while windows.last().is_some_and(Option::is_none) {
        windows.pop();
    }
    windows
}
