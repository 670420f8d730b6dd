//! Qwen3-Next and Qwen3.5: three of four layers are gated delta nets, the others have gated attention.

use super::{
    config::ConfigJson,
    experts::{ExpertsSpec, SharedExpertSpec, wanted},
    family::Family,
    llama,
    qwen::{RopeSections, rope_axes},
    recurrent::{RecurrenceSpec, RecurrentLayers},
    rope::RopeScaling,
    spec::{Biases, DecoderSpec, QueryKeyNorm},
};
use crate::networks::weights::Flaw;

/// Default proportion of a head with rope.
const TURNED_SHARE: f64 = 0.25;
/// Default numbers of frequencies for time, rows and columns.
const SECTIONS: [usize; 3] = [11, 11, 10];
/// Default period of attention layers.
const INTERVAL: usize = 4;

pub fn qwen3_next_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let is_normalized = config.experts.norm_topk_prob.unwrap_or(true);
    Ok(DecoderSpec {
        experts: Some(experts(config, is_normalized)?),
        ..hybrid(config, Family::Qwen3Next)?
    })
}

pub fn qwen3_5_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    with_axes(config, hybrid(config, Family::Qwen35)?)
}

/// Image tokens have rope by rows and columns, without scaling.
fn with_axes(config: &ConfigJson, spec: DecoderSpec) -> Result<DecoderSpec, Flaw> {
    let rope_axes = match spec.rope.scaling {
        RopeScaling::None => rope_axes(config, &spec.rope, RopeSections::interleaved(SECTIONS))?,
        _ => None,
    };
    Ok(DecoderSpec { rope_axes, ..spec })
}

/// All layers have experts, so that files omit the width of dense layers.
pub fn qwen3_5_moe_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let experts = experts(config, true)?;
    let spec = DecoderSpec {
        intermediate_size: experts.intermediate_size,
        experts: Some(experts),
        ..hybrid(config, Family::Qwen35Moe)?
    };
    with_axes(config, spec)
}

/// Has a gated shared expert in addition to the chosen ones.
fn experts(config: &ConfigJson, is_normalized: bool) -> Result<ExpertsSpec, Flaw> {
    let json = &config.experts;
    let feed = wanted(json.moe_intermediate_size, "moe_intermediate_size")?;
    let shared = json.shared_expert_intermediate_size;
    let shared = wanted(shared, "shared_expert_intermediate_size")?;
    Ok(ExpertsSpec {
        shared: Some(SharedExpertSpec {
            intermediate_size: shared,
            is_gated: true,
        }),
        ..config.experts(feed, is_normalized)?
    })
}

fn hybrid(config: &ConfigJson, family: Family) -> Result<DecoderSpec, Flaw> {
    if config.recurrent.attn_output_gate == Some(false) {
        return Err(Flaw::unsupported("attn_output_gate", false, "true"));
    }
    let interval = config.recurrent.full_attention_interval.unwrap_or(INTERVAL);
    if interval == 0 {
        return Err(Flaw::broken("full_attention_interval", 0, "1 or more"));
    }
    let names = ["linear_attention", "full_attention"];
    let layers = config.recurrent_layers(names, |layer| !(layer + 1).is_multiple_of(interval))?;
    let net = RecurrenceSpec::DeltaNet(config.delta_net()?);
    let llama = llama::spec(config, family)?;
    Ok(DecoderSpec {
        query_key_norm: Some(QueryKeyNorm::PerHead),
        attention_gate: true,
        recurrent: RecurrentLayers::new(net, layers),
        rope: config.rope_of_share(llama.head_dim, TURNED_SHARE)?,
        biases: Biases {
            feed_forward: false,
            ..llama.biases
        },
        ..llama
    })
}
