//! Gemma 4: wider heads in global layers, shared KV caches, per-layer inputs, experts parallel to a dense part.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    config::{self, ConfigJson},
    experts::{ExpertsSpec, wanted},
    family::Family,
    layer_kinds::{GlobalHeads, LayerInputSpec},
    llama,
    rope::Rope,
    spec::{DecoderSpec, QueryKeyNorm, SoftCaps},
};
use crate::networks::weights::Flaw;
use muster_kernels::RopeStyle;

const HEAD_DIM: usize = 256;
const GLOBAL_HEAD_DIM: usize = 512;
/// For global layers, and for those with a window.
const THETAS: (f64, f64) = (1_000_000.0, 10_000.0);
const WINDOW: usize = 512;
const PERIOD: usize = 6;
/// Width of a per-layer input.
pub const INPUT_SIZE: usize = 256;
pub const INPUT_VOCABULARY: usize = 262_144;

/// The fields of `config.json` that Gemma 3n and 4 alone have.
#[derive(Debug, Deserialize)]
pub struct GemmaJson {
    global_head_dim: Option<usize>,
    num_global_key_value_heads: Option<usize>,
    /// Settings of single layers, by their numbers.
    per_layer_config: Option<std::collections::BTreeMap<String, LayerConfigJson>>,
    attention_k_eq_v: Option<bool>,
    pub num_kv_shared_layers: Option<usize>,
    pub hidden_size_per_layer_input: Option<usize>,
    pub vocab_size_per_layer_input: Option<usize>,
    use_double_wide_mlp: Option<bool>,
    enable_moe_block: Option<bool>,
    /// Gemma 3n's.
    pub intermediate_sizes: Option<Vec<usize>>,
    pub altup_num_inputs: Option<usize>,
    pub altup_active_idx: Option<usize>,
    pub altup_correct_scale: Option<bool>,
    pub laurel_rank: Option<usize>,
    pub activation_sparsity_pattern: Option<Vec<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerConfigJson {
    head_dim: Option<usize>,
    num_key_value_heads: Option<usize>,
}

/// Defaults that files of the unified model, which has no per-layer inputs, omit.
pub fn fill(text: &mut Value, whole: &Value) {
    let names = whole["architectures"].as_array().into_iter().flatten();
    let mut names = names.filter_map(Value::as_str);
    if !names.any(|name| name.starts_with("Gemma4Unified")) {
        return;
    }
    text["hidden_size_per_layer_input"] = json!(0);
    if text["sliding_window"].is_null() {
        text["sliding_window"] = json!(1024);
    }
}

pub fn gemma4_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    if config.use_bidirectional_attention == Some(true) {
        let known = "null and \"vision\"";
        return Err(Flaw::unsupported(
            "use_bidirectional_attention",
            "all",
            known,
        ));
    }
    let json = &config.gemma;
    let head_dim = config.head_dim.unwrap_or(HEAD_DIM);
    let windows = windows(config)?;
    let global = json.global_heads(config, &windows)?;
    let (theta, window_theta) = THETAS;
    let rope = config.rope_with(global.head_dim, theta)?;
    let windowed = Rope::plain(window_theta, RopeStyle::Halves, head_dim);
    let windowed = config.window_rope(windowed)?;
    let shared_layers = json.num_kv_shared_layers.unwrap_or(0);
    let size = json.hidden_size_per_layer_input.unwrap_or(INPUT_SIZE);
    let vocab_size = json.vocab_size_per_layer_input.unwrap_or(INPUT_VOCABULARY);
    Ok(DecoderSpec {
        head_dim,
        intermediate_sizes: match json.use_double_wide_mlp {
            Some(true) => wide_shared(config, shared_layers),
            _ => Vec::new(),
        },
        experts: match json.enable_moe_block {
            Some(true) => Some(experts(config)?),
            _ => None,
        },
        global_heads: Some(global),
        shared_layers,
        norms_values: true,
        layer_inputs: Some(LayerInputSpec { size, vocab_size }).filter(|inputs| inputs.size > 0),
        scales_layers: true,
        query_key_norm: Some(QueryKeyNorm::PerHead),
        attention_scale: Some(1.0),
        soft_caps: SoftCaps {
            attention: None,
            logits: config.final_logit_softcapping,
        },
        tied_embeddings: config.tie_word_embeddings.unwrap_or(true),
        window_rope: Some(windowed).filter(|windowed| !windows.is_empty() && *windowed != rope),
        rope,
        windows,
        ..llama::spec(config, Family::Gemma4)?
    })
}

/// The last layer has no window, whatever the file states.
fn windows(config: &ConfigJson) -> Result<Vec<Option<usize>>, Flaw> {
    let mut windows = layer_windows(config, |layer| (layer + 1) % PERIOD != 0)?;
    windows.truncate(config.num_hidden_layers.saturating_sub(1));
    Ok(config::trimmed(windows))
}

/// From `layer_types`, or else by the family's rule.
pub fn layer_windows(
    config: &ConfigJson,
    usual: impl Fn(usize) -> bool,
) -> Result<Vec<Option<usize>>, Flaw> {
    let layers = config.num_hidden_layers;
    let window = config.sliding_window.unwrap_or(WINDOW);
    let Some(types) = &config.layer_types else {
        return Ok(config::windows(window, layers, usual));
    };
    if types.len() != layers {
        let found = format!("{} types", types.len());
        let wanted = format!("one for each of {layers} layers");
        return Err(Flaw::broken("layer_types", found, wanted));
    }
    let known = ["full_attention", "sliding_attention"];
    if let Some(other) = types.iter().find(|it| !known.contains(&it.as_str())) {
        return Err(Flaw::unsupported("layer_types", other, known.join(" and ")));
    }
    Ok(config::windows(window, layers, |layer| {
        types[layer] == known[1]
    }))
}

/// Feed-forward layers are twice as wide in layers without their own KV cache.
fn wide_shared(config: &ConfigJson, shared_layers: usize) -> Vec<usize> {
    let (layers, size) = (config.num_hidden_layers, config.intermediate_size);
    let first = layers.saturating_sub(shared_layers);
    let wide = size.saturating_mul(2);
    let sizes = (0..layers).map(|layer| if layer < first { size } else { wide });
    if first == layers {
        return Vec::new();
    }
    sizes.collect()
}

fn experts(config: &ConfigJson) -> Result<ExpertsSpec, Flaw> {
    let feed = config.experts.moe_intermediate_size;
    let feed = wanted(feed, "moe_intermediate_size")?;
    Ok(ExpertsSpec {
        is_beside_dense: true,
        ..config.experts(feed, true)?
    })
}

impl GemmaJson {
    /// Older files have one number, newer ones one per layer.
    fn global_heads(
        &self,
        config: &ConfigJson,
        windows: &[Option<usize>],
    ) -> Result<GlobalHeads, Flaw> {
        let keys_are_values = self.attention_k_eq_v.unwrap_or(false);
        let Some(layers) = &self.per_layer_config else {
            let kv_heads = self.num_global_key_value_heads;
            let kv_heads = kv_heads.filter(|_| keys_are_values);
            return Ok(GlobalHeads {
                kv_heads: kv_heads.unwrap_or(config.kv_heads()),
                head_dim: self.global_head_dim.unwrap_or(GLOBAL_HEAD_DIM),
                keys_are_values,
            });
        };
        let global = (0..config.num_hidden_layers)
            .filter(|&layer| windows.get(layer).copied().flatten().is_none());
        let named: Vec<Option<&LayerConfigJson>> =
            global.map(|layer| layers.get(&layer.to_string())).collect();
        let first = named.first().copied().flatten();
        if named.iter().any(|it| *it != first) || named.iter().flatten().count() != layers.len() {
            let found = format!("{} layers with settings of their own", layers.len());
            let known = "the same settings for all layers without a window, and no others";
            return Err(Flaw::unsupported("per_layer_config", found, known));
        }
        let usual = config.head_dim.unwrap_or(HEAD_DIM);
        Ok(GlobalHeads {
            kv_heads: first
                .and_then(|it| it.num_key_value_heads)
                .unwrap_or(config.kv_heads()),
            head_dim: first.and_then(|it| it.head_dim).unwrap_or(usual),
            keys_are_values,
        })
    }
}
