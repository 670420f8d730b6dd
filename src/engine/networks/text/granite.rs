//! Granite 3: a Llama with factors for embeddings, attention, residuals and logits.

use super::{
    config::ConfigJson,
    family::Family,
    llama,
    spec::{DecoderSpec, Scales},
};
use crate::networks::weights::Flaw;

pub fn granite_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        attention_scale: Some(config.attention_multiplier.unwrap_or(1.0)),
        scales: Scales {
            embedding: config.embedding_multiplier.unwrap_or(1.0),
            residual: config.residual_multiplier.unwrap_or(1.0),
            logits: config.logits_scaling.unwrap_or(1.0),
        },
        ..llama::spec(config, Family::Granite)?
    })
}
