//! GLM 4.5 to 4.7: experts chosen by corrected sigmoids, with shared ones; rope in half of each head.

use super::{
    config::ConfigJson,
    family::Family,
    llama,
    spec::{Biases, DecoderSpec, QueryKeyNorm},
};
use crate::networks::weights::Flaw;

pub fn glm4_moe_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let llama = llama::spec(config, Family::Glm4Moe)?;
    let has_norms = config.use_qk_norm.unwrap_or(false);
    Ok(DecoderSpec {
        rope: config.rope_of_share(llama.head_dim, 0.5)?,
        experts: Some(config.corrected_experts()?),
        prediction_layers: config.prediction_layers()?,
        query_key_norm: has_norms.then_some(QueryKeyNorm::PerHead),
        biases: Biases {
            query_key_value: config.attention_bias.unwrap_or(false),
            attention_output: false,
            feed_forward: false,
        },
        ..llama
    })
}
