//! `config.json` as the Hugging Face hub keeps it: the fields that decoders share, read once and checked.
//!
//! A field that is honoured becomes part of the spec. A value that would change what the network computes and
//! that we do not compute is refused by name.

use serde::Deserialize;

use super::{
    family::Family,
    llama, qwen,
    spec::{DecoderSpec, Rope, RopeScaling},
};
use crate::networks::weights::Flaw;
use muster_kernels::RopeStyle;

/// The raw file. Never leaves the description of a family.
#[derive(Debug, Deserialize)]
pub struct ConfigJson {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: Option<usize>,
    pub head_dim: Option<usize>,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f64,
    hidden_act: Option<String>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeJson>,
    /// Where newer files keep both of the above.
    rope_parameters: Option<RopeJson>,
    partial_rotary_factor: Option<f64>,
    pub attention_bias: Option<bool>,
    pub mlp_bias: Option<bool>,
    pub tie_word_embeddings: Option<bool>,
    pub sliding_window: Option<usize>,
    pub use_sliding_window: Option<bool>,
    pub max_window_layers: Option<usize>,
    pub layer_types: Option<Vec<String>>,
    quantization_config: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct RopeJson {
    /// Older files say `type`.
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    partial_rotary_factor: Option<f64>,
}

pub fn spec(value: &serde_json::Value) -> Result<DecoderSpec, Flaw> {
    let family = family(value)?;
    let config: ConfigJson = serde_json::from_value(value.clone())
        .map_err(|error| Flaw::broken("config.json", error, format!("a {family} configuration")))?;
    config.check()?;
    let spec = match family {
        Family::Llama => llama::spec(&config),
        Family::Mistral => llama::mistral_spec(&config),
        Family::Qwen2 => qwen::qwen2_spec(&config),
        Family::Qwen3 => qwen::qwen3_spec(&config),
    }?;
    super::limits::check(&spec)?;
    Ok(spec)
}

fn family(value: &serde_json::Value) -> Result<Family, Flaw> {
    let names: Vec<&str> = value["architectures"]
        .as_array()
        .map(|names| names.iter().filter_map(serde_json::Value::as_str).collect())
        .unwrap_or_default();
    let known = names.iter().find_map(|name| Family::of_architecture(name));
    known.ok_or_else(|| {
        let found = match names.as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        Flaw::unsupported("architectures", found, Family::known_architectures())
    })
}

impl ConfigJson {
    fn check(&self) -> Result<(), Flaw> {
        if let Some(other) = self.hidden_act.as_deref().filter(|&name| name != "silu") {
            return Err(Flaw::unsupported("hidden_act", other, "silu"));
        }
        if let Some(config) = &self.quantization_config {
            let method = config["quant_method"]
                .as_str()
                .unwrap_or("an unnamed method");
            let known = "weights in f32, f16 or bf16, or a quantized GGUF";
            return Err(Flaw::unsupported("quantization_config", method, known));
        }
        Ok(())
    }

    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Zero heads are refused later, with all sizes.
    pub fn head_dim_or_share(&self) -> usize {
        let share = self.hidden_size.checked_div(self.num_attention_heads);
        self.head_dim.or(share).unwrap_or(0)
    }

    pub fn rope(&self, head_dim: usize) -> Result<Rope, Flaw> {
        let json = self.rope_parameters.clone().or(self.rope_scaling.clone());
        let json = json.unwrap_or_default();
        let theta = json.rope_theta.or(self.rope_theta).unwrap_or(10_000.0);
        let share = json.partial_rotary_factor.or(self.partial_rotary_factor);
        let dims = (head_dim as f64 * share.unwrap_or(1.0)) as usize;
        Ok(Rope {
            scaling: json.scaling()?,
            ..Rope::plain(theta, RopeStyle::Halves, dims)
        })
    }

    /// Windows of the layers that have one: as `layer_types` says, or else by what the family's rule says.
    pub fn windows(&self, has_window: impl Fn(usize) -> bool) -> Result<Vec<Option<usize>>, Flaw> {
        let Some(window) = self.sliding_window else {
            return Ok(Vec::new());
        };
        let Some(types) = &self.layer_types else {
            let windows = (0..self.num_hidden_layers).map(|i| has_window(i).then_some(window));
            return Ok(trimmed(windows.collect()));
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

/// Layers past the end have no window, so a spec without windows is always the same value.
fn trimmed(mut windows: Vec<Option<usize>>) -> Vec<Option<usize>> {
    while windows.last() == Some(&None) {
        windows.pop();
    }
    windows
}

impl RopeJson {
    fn scaling(&self) -> Result<RopeScaling, Flaw> {
        match self.rope_type.as_deref() {
            None | Some("default") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear {
                factor: wanted(self.factor, "factor")?,
            }),
            Some("llama3") => Ok(RopeScaling::Llama3 {
                factor: wanted(self.factor, "factor")?,
                low_frequency_factor: wanted(self.low_freq_factor, "low_freq_factor")?,
                high_frequency_factor: wanted(self.high_freq_factor, "high_freq_factor")?,
                original_context: wanted(
                    self.original_max_position_embeddings,
                    "original_max_position_embeddings",
                )?,
            }),
            Some(other) => Err(Flaw::unsupported(
                "the rope_scaling type",
                other,
                "default, linear and llama3",
            )),
        }
    }
}

fn wanted<T>(value: Option<T>, name: &str) -> Result<T, Flaw> {
    value.ok_or_else(|| Flaw::broken(format!("rope_scaling.{name}"), "nothing", "a number"))
}
