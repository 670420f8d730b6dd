//! OLMo 2, with norms on the way out only and over whole queries, and OLMo 3, which adds windows.

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
    // Only layers that see all are stretched.
    let windowed = config.window_rope(Rope::plain(rope.theta, rope.style, rope.dims))?;
    let windows = config.windows(|layer| (layer + 1) % OLMO3_PERIOD != 0)?;
    Ok(DecoderSpec {
        window_rope: Some(windowed).filter(|windowed| !windows.is_empty() && *windowed != rope),
        rope,
        windows,
        ..olmo2
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
