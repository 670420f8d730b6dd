//! Gemma 2 and 3: norms around both parts of a layer, windows in most layers.

use serde_json::{Value, json};

use super::{
    config::ConfigJson,
    family::Family,
    llama,
    rope::Rope,
    spec::{DecoderSpec, QueryKeyNorm, SoftCaps},
};
use crate::networks::weights::Flaw;
use muster_kernels::RopeStyle;

const HEAD_DIM: usize = 256;
/// For global layers, and for those with a window.
const GEMMA3_THETAS: (f64, f64) = (1_000_000.0, 10_000.0);
const GEMMA3_PERIOD: usize = 6;

/// Defaults of the reference that the first files with a vision tower omit.
pub fn fill(text: &mut Value) {
    let usual = [
        ("vocab_size", json!(262_208)),
        ("num_attention_heads", json!(8)),
        ("num_key_value_heads", json!(4)),
        ("max_position_embeddings", json!(131_072)),
        ("rms_norm_eps", json!(1e-6)),
    ];
    for (name, value) in usual {
        if text.get(name).is_none_or(Value::is_null) {
            text[name] = value;
        }
    }
}

pub fn gemma2_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let head_dim = config.head_dim.unwrap_or(HEAD_DIM);
    Ok(DecoderSpec {
        rope: config.rope(head_dim)?,
        windows: config.windows(|layer| layer % 2 == 0)?,
        ..shared(config, Family::Gemma2, head_dim)?
    })
}

pub fn gemma3_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let head_dim = config.head_dim.unwrap_or(HEAD_DIM);
    let (theta, window_theta) = GEMMA3_THETAS;
    let rope = config.rope_with(head_dim, theta)?;
    let windowed = Rope::plain(window_theta, RopeStyle::Halves, head_dim);
    let windowed = config.window_rope(windowed)?;
    let period = config.sliding_window_pattern.unwrap_or(GEMMA3_PERIOD);
    let is_bidirectional = config.use_bidirectional_attention == Some(true);
    let mut windows = config.windows(|layer| period > 0 && (layer + 1) % period != 0)?;
    if is_bidirectional {
        // Half of it on each side of a token.
        let windows = windows.iter_mut().flatten();
        windows.for_each(|window| *window = *window / 2 + 1);
    }
    Ok(DecoderSpec {
        is_bidirectional,
        query_key_norm: Some(QueryKeyNorm::PerHead),
        window_rope: Some(windowed).filter(|windowed| !windows.is_empty() && *windowed != rope),
        rope,
        windows,
        ..shared(config, Family::Gemma3, head_dim)?
    })
}

fn shared(config: &ConfigJson, family: Family, head_dim: usize) -> Result<DecoderSpec, Flaw> {
    if family == Family::Gemma2 && config.use_bidirectional_attention == Some(true) {
        let what = "use_bidirectional_attention";
        return Err(Flaw::unsupported(what, true, "false"));
    }
    let divisor = config.query_pre_attn_scalar.unwrap_or(HEAD_DIM as f64);
    let scale = Some(divisor).filter(|&divisor| divisor != head_dim as f64);
    Ok(DecoderSpec {
        head_dim,
        attention_scale: scale.map(|divisor| 1.0 / divisor.sqrt()),
        soft_caps: SoftCaps {
            attention: config.attn_logit_softcapping,
            logits: config.final_logit_softcapping,
        },
        tied_embeddings: config.tie_word_embeddings.unwrap_or(true),
        ..llama::spec(config, family)?
    })
}
