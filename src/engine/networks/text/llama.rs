//! Llama 1 to 3.2, and Mistral, which is a Llama with a window.

use super::{
    config::ConfigJson,
    family::Family,
    spec::{Biases, DecoderSpec},
};
use crate::networks::weights::Flaw;

pub fn spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let attention_bias = config.attention_bias.unwrap_or(false);
    let head_dim = config.head_dim_or_share();
    Ok(DecoderSpec {
        family: Family::Llama,
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        layers: config.num_hidden_layers,
        heads: config.num_attention_heads,
        kv_heads: config.kv_heads(),
        head_dim,
        context: config.max_position_embeddings,
        norm_eps: config.rms_norm_eps,
        rope: config.rope(head_dim)?,
        query_key_norm: false,
        biases: Biases {
            query_key_value: attention_bias,
            attention_output: attention_bias,
            feed_forward: config.mlp_bias.unwrap_or(false),
        },
        tied_embeddings: config.tie_word_embeddings.unwrap_or(false),
        windows: Vec::new(),
    })
}

pub fn mistral_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        family: Family::Mistral,
        biases: Biases::default(),
        windows: config.windows(|_| true)?,
        ..spec(config)?
    })
}
