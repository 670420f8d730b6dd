//! LFM2: most layers are short convolutions between gates, also with experts.

use super::{
    config::ConfigJson,
    experts::{ExpertsSpec, wanted},
    family::Family,
    llama,
    recurrent::{RecurrenceSpec, RecurrentLayers},
    spec::{Biases, DecoderSpec, QueryKeyNorm},
};
use crate::networks::{
    layers::{RouterScore, Routing},
    weights::Flaw,
};

/// The base of rope where a file names none.
const THETA: f64 = 1_000_000.0;

pub fn lfm2_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        intermediate_size: feed_size(config)?,
        ..hybrid(config, Family::Lfm2)?
    })
}

/// The first layers are dense.
pub fn lfm2_moe_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.experts;
    let feed = wanted(json.moe_intermediate_size, "moe_intermediate_size")?;
    let experts = config.experts(feed, json.norm_topk_prob.unwrap_or(true))?;
    let dense = config.recurrent.num_dense_layers.unwrap_or(2);
    Ok(DecoderSpec {
        experts: Some(ExpertsSpec {
            routing: Routing {
                score: RouterScore::Sigmoid,
                scale: json.routed_scaling_factor.unwrap_or(1.0),
                ..experts.routing
            },
            has_correction: config.recurrent.use_expert_bias.unwrap_or(true),
            dense_layers: (0..dense.min(config.num_hidden_layers)).collect(),
            ..experts
        }),
        ..hybrid(config, Family::Lfm2Moe)?
    })
}

fn hybrid(config: &ConfigJson, family: Family) -> Result<DecoderSpec, Flaw> {
    let listed = config.recurrent.full_attn_idxs.as_ref();
    let attends = |layer| listed.is_none_or(|attending| attending.contains(&layer));
    let layers = config.recurrent_layers(["conv", "full_attention"], |layer| !attends(layer))?;
    let convolution = RecurrenceSpec::Convolution(config.gated_convolution());
    let llama = llama::spec(config, family)?;
    Ok(DecoderSpec {
        query_key_norm: Some(QueryKeyNorm::PerHead),
        recurrent: RecurrentLayers::new(convolution, layers),
        rope: config.rope_with(llama.head_dim, THETA)?,
        biases: Biases::default(),
        tied_embeddings: config.tie_word_embeddings.unwrap_or(true),
        ..llama
    })
}

/// The feed-forward width, which files may declare for a layer without gates.
fn feed_size(config: &ConfigJson) -> Result<usize, Flaw> {
    let json = &config.recurrent;
    if !json.block_auto_adjust_ff_dim.unwrap_or(true) {
        return Ok(config.intermediate_size);
    }
    let multiple = json.block_multiple_of.unwrap_or(256);
    if multiple == 0 || multiple > 1 << 22 {
        return Err(Flaw::broken("block_multiple_of", multiple, "1 to 4194304"));
    }
    let size = 2.0 * config.intermediate_size as f64 / 3.0;
    let size = size.floor() * json.block_ffn_dim_multiplier.unwrap_or(1.0);
    Ok((size as usize).div_ceil(multiple).saturating_mul(multiple))
}
