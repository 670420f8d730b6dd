//! SmolLM3: a Llama in which each fourth layer knows no positions.

use super::{config::ConfigJson, family::Family, llama, spec::DecoderSpec};
use crate::networks::weights::Flaw;

const THETA: f64 = 2_000_000.0;
const PERIOD: usize = 4;

pub fn smollm3_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let llama = llama::spec(config, Family::SmolLm3)?;
    let layers_without_rope = layers_without_rope(config);
    let has_window = |layer: usize| layers_without_rope.contains(&layer);
    let windows = match config.use_sliding_window {
        Some(true) => config.windows(has_window)?,
        _ => Vec::new(),
    };
    Ok(DecoderSpec {
        rope: config.rope_with(llama.head_dim, THETA)?,
        tied_embeddings: config.tie_word_embeddings.unwrap_or(true),
        layers_without_rope,
        windows,
        ..llama
    })
}

/// The file marks layers with rope by 1 and those without by 0.
fn layers_without_rope(config: &ConfigJson) -> Vec<usize> {
    let layers = 0..config.num_hidden_layers;
    let period = config.no_rope_layer_interval.unwrap_or(PERIOD);
    let is_without = |&layer: &usize| match &config.no_rope_layers {
        Some(flags) => flags.get(layer) == Some(&0),
        None => period > 0 && (layer + 1) % period == 0,
    };
    layers.filter(is_without).collect()
}
