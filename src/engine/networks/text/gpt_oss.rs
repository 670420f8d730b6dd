//! gpt-oss: experts with a clamped gate, attention with sinks, a window in every other layer.

use super::{
    config::ConfigJson,
    family::Family,
    llama,
    spec::{Biases, DecoderSpec},
};
use crate::networks::{layers::GateActivation, weights::Flaw};

/// Defaults of omitted fields.
const THETA: f64 = 150_000.0;
pub const ALPHA: f32 = 1.702;
pub const LIMIT: f32 = 7.0;

pub fn gpt_oss_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    if !config.names_rope() {
        return Err(Flaw::broken(
            "rope_parameters",
            "nothing",
            "the YaRN scaling",
        ));
    }
    // The file names the function inside the gate.
    if config.activation(GateActivation::Silu)? != GateActivation::Silu {
        return Err(Flaw::unsupported("hidden_act", "another than silu", "silu"));
    }
    let has_biases = config.attention_bias.unwrap_or(true);
    let llama = llama::spec(config, Family::GptOss)?;
    let rope = config.rope_with(llama.head_dim, THETA)?;
    Ok(DecoderSpec {
        context: config.context(&rope),
        rope,
        activation: GateActivation::SwigluOai {
            alpha: config.swiglu_alpha.unwrap_or(ALPHA),
            limit: config.swiglu_limit.unwrap_or(LIMIT),
        },
        experts: Some(
            config
                .experts(config.intermediate_size, true)?
                .with_biases(),
        ),
        attention_sinks: true,
        biases: Biases {
            query_key_value: has_biases,
            attention_output: has_biases,
            feed_forward: false,
        },
        windows: config.windows(|layer| layer % 2 == 0)?,
        ..llama
    })
}
