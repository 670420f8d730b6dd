//! Llama 1 to 3.2, and the fields that other families share with them.

use super::{
    config::ConfigJson,
    family::Family,
    spec::{Biases, DecoderSpec, Scales, SoftCaps},
};
use crate::networks::weights::Flaw;

/// A Llama under the name of another family, whose own function changes the rest.
pub fn spec(config: &ConfigJson, family: Family) -> Result<DecoderSpec, Flaw> {
    let rules = family.rules();
    let attention_bias = config.attention_bias.unwrap_or(false);
    let head_dim = config.head_dim_or_share();
    let rope = config.rope(head_dim)?;
    Ok(DecoderSpec {
        family,
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        intermediate_sizes: Vec::new(),
        experts: None,
        layers: config.num_hidden_layers,
        prediction_layers: 0,
        heads: config.num_attention_heads,
        kv_heads: config.kv_heads(),
        head_dim,
        global_heads: None,
        shared_layers: 0,
        norms_values: false,
        layer_inputs: None,
        alternating_updates: None,
        gate_cutoffs: Vec::new(),
        scales_layers: false,
        latent: None,
        context: config.context(&rope),
        norm_eps: config.rms_norm_eps,
        norms: rules.norms,
        query_key_norm: None,
        activation: config.activation(rules.activation)?,
        rope,
        rope_axes: None,
        vision: None,
        window_rope: None,
        layers_without_rope: Vec::new(),
        attention_scale: None,
        query_temperature: None,
        attention_sinks: false,
        attention_gate: false,
        soft_caps: SoftCaps::default(),
        scales: Scales {
            embedding: rules.embedding_scale(config.hidden_size),
            ..Scales::default()
        },
        biases: Biases {
            query_key_value: attention_bias,
            attention_output: attention_bias,
            feed_forward: config.mlp_bias.unwrap_or(false),
        },
        is_bidirectional: false,
        tied_embeddings: config.tie_word_embeddings.unwrap_or(false),
        windows: Vec::new(),
        chunks: Vec::new(),
        recurrent: None,
    })
}
