//! OLMo 2, with norms on the way out only and over whole queries; OLMo 3, which adds windows; and OLMoE, with experts and
//! norms on the way in.

use super::{
    config::ConfigJson,
    family::Family,
    llama,
    rope::Rope,
    spec::{Biases, DecoderSpec, QueryKeyNorm},
};
use crate::networks::weights::Flaw;

const OLMO3_THETA: f64 = 500_000.0;
const OLMO3_PERIOD: usize = 4;

pub fn olmo2_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    shared(config, Family::Olmo2)
}

pub fn olmo3_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let olmo2 = shared(config, Family::Olmo3)?;
    let rope = config.rope_with(olmo2.head_dim, OLMO3_THETA)?;
    // Only global layers have rope scaling.
    let windowed = config.window_rope(Rope::plain(rope.theta, rope.style, rope.dims))?;
    let windows = config.windows(|layer| (layer + 1) % OLMO3_PERIOD != 0)?;
    Ok(DecoderSpec {
        window_rope: Some(windowed).filter(|windowed| !windows.is_empty() && *windowed != rope),
        rope,
        windows,
        ..olmo2
    })
}

pub fn olmoe_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    if let Some(limit) = config.clip_qkv {
        return Err(Flaw::unsupported("clip_qkv", limit, "null"));
    }
    let is_normalized = config.experts.norm_topk_prob.unwrap_or(false);
    Ok(DecoderSpec {
        experts: Some(config.experts(config.intermediate_size, is_normalized)?),
        ..shared(config, Family::Olmoe)?
    })
}

fn shared(config: &ConfigJson, family: Family) -> Result<DecoderSpec, Flaw> {
    let llama = llama::spec(config, family)?;
    Ok(DecoderSpec {
        query_key_norm: Some(QueryKeyNorm::Whole),
        biases: Biases {
            feed_forward: false,
            ..llama.biases
        },
        ..llama
    })
}
