//! Gemma 3n: several streams of hidden states, low-rank products parallel to attention, per-layer inputs, shared KV
//! caches, sparse gates.

use candle_core::cpu::erf::erf_inv;

use super::{
    config::{self, ConfigJson},
    family::Family,
    gemma4::{GemmaJson, INPUT_SIZE, INPUT_VOCABULARY, layer_windows},
    layer_kinds::{AlternatingUpdateSpec, LayerInputSpec},
    llama,
    rope::Rope,
    spec::{DecoderSpec, QueryKeyNorm, SoftCaps},
};
use crate::networks::weights::Flaw;
use muster_kernels::RopeStyle;

/// Defaults of omitted fields.
const HEAD_DIM: usize = 256;
const THETAS: (f64, f64) = (1_000_000.0, 10_000.0);
const PERIOD: usize = 5;
const SHARED_LAYERS: usize = 15;
const STREAMS: usize = 4;
const RANK: usize = 64;
const LOGIT_CAP: f64 = 30.0;
/// In deeper models, the gates of the first layers keep only their largest numbers; `SPARSITY` is the proportion set to
/// zero.
pub const SPARSE_LAYERS: usize = 10;
const SPARSITY: f64 = 0.95;

pub fn gemma3n_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.gemma;
    let head_dim = config.head_dim.unwrap_or(HEAD_DIM);
    let windows = layer_windows(config, |layer| (layer + 1) % PERIOD != 0)?;
    let (theta, window_theta) = THETAS;
    let rope = config.rope_with(head_dim, theta)?;
    let windowed = Rope::plain(window_theta, RopeStyle::Halves, head_dim);
    let windowed = config.window_rope(windowed)?;
    let sizes = json.intermediate_sizes.clone().unwrap_or_default();
    let vocab_size = json.vocab_size_per_layer_input.unwrap_or(INPUT_VOCABULARY);
    Ok(DecoderSpec {
        head_dim,
        intermediate_sizes: sizes,
        shared_layers: json.num_kv_shared_layers.unwrap_or(SHARED_LAYERS),
        norms_values: true,
        layer_inputs: Some(LayerInputSpec {
            size: json.hidden_size_per_layer_input.unwrap_or(INPUT_SIZE),
            vocab_size,
        }),
        alternating_updates: Some(AlternatingUpdateSpec {
            streams: json.altup_num_inputs.unwrap_or(STREAMS),
            active: json.altup_active_idx.unwrap_or(0),
            rank: json.laurel_rank.unwrap_or(RANK),
            is_scaled: json.altup_correct_scale.unwrap_or(true),
        }),
        gate_cutoffs: json.gate_cutoffs(config.num_hidden_layers)?,
        query_key_norm: Some(QueryKeyNorm::PerHead),
        attention_scale: Some(1.0),
        soft_caps: SoftCaps {
            attention: None,
            logits: Some(config.final_logit_softcapping.unwrap_or(LOGIT_CAP)),
        },
        tied_embeddings: config.tie_word_embeddings.unwrap_or(true),
        window_rope: Some(windowed).filter(|windowed| !windows.is_empty() && *windowed != rope),
        rope,
        windows,
        ..llama::spec(config, Family::Gemma3n)?
    })
}

impl GemmaJson {
    fn gate_cutoffs(&self, layers: usize) -> Result<Vec<Option<f64>>, Flaw> {
        let Some(shares) = &self.activation_sparsity_pattern else {
            return Ok(usual_cutoffs(layers));
        };
        if shares.len() != layers {
            let found = format!("{} numbers", shares.len());
            let wanted = format!("one for each of {layers} layers");
            return Err(Flaw::broken("activation_sparsity_pattern", found, wanted));
        }
        if let Some(share) = shares.iter().find(|share| !(0.0..1.0).contains(*share)) {
            let wanted = "numbers from 0 and below 1";
            return Err(Flaw::broken("activation_sparsity_pattern", share, wanted));
        }
        let cutoffs = shares.iter().map(|&share| cutoff(share));
        Ok(config::trimmed(cutoffs.collect()))
    }
}

/// Defaults for files without the field.
pub fn usual_cutoffs(layers: usize) -> Vec<Option<f64>> {
    match layers > SPARSE_LAYERS {
        true => vec![cutoff(SPARSITY); SPARSE_LAYERS],
        false => Vec::new(),
    }
}

/// The quantile of the standard normal distribution.
fn cutoff(share: f64) -> Option<f64> {
    (share > 0.0).then(|| std::f64::consts::SQRT_2 * erf_inv(2.0 * share - 1.0))
}

#[cfg(test)]
mod tests {
    use super::cutoff;

    #[test]
    fn a_share_of_normal_numbers_is_below_the_cutoff() {
        for (share, wanted) in [(0.95, 1.644_853_627), (0.5, 0.0), (0.1, -1.281_551_566)] {
            let found = cutoff(share).unwrap();
            assert!((found - wanted).abs() < 1e-8, "{share}: {found}");
        }
        assert_eq!(cutoff(0.0), None);
    }
}
