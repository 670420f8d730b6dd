//! Granite 4: the scale factors of Granite 3; most layers are Mamba-2, and all have a shared expert, alone or with
//! others.

use super::{
    config::ConfigJson,
    experts::{ExpertsSpec, SharedExpertSpec, wanted},
    family::Family,
    granite::granite_spec,
    recurrent::{RecurrenceSpec, RecurrentLayers},
    spec::DecoderSpec,
};
use crate::networks::weights::Flaw;

/// Without experts the shared part is a dense one.
pub fn granite_hybrid_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.recurrent;
    let shared = wanted(json.shared_intermediate_size, "shared_intermediate_size")?;
    let experts = match config.experts.local_experts() {
        0 => None,
        _ => Some(ExpertsSpec {
            shared: Some(SharedExpertSpec {
                intermediate_size: shared,
                is_gated: false,
            }),
            ..config.experts(config.intermediate_size, true)?
        }),
    };
    let names = ["linear_attention", "full_attention"];
    let layers = config.recurrent_layers(names, |_| true)?;
    let recurrent = match layers.is_empty() {
        true => None,
        false => RecurrentLayers::new(RecurrenceSpec::StateSpace(config.state_space()?), layers),
    };
    let layers_without_rope = match json.position_embedding_type.as_deref() {
        Some("rope") => Vec::new(),
        None | Some("nope") => (0..config.num_hidden_layers).collect(),
        Some(other) => {
            let known = "rope, nope and null";
            return Err(Flaw::unsupported("position_embedding_type", other, known));
        }
    };
    Ok(DecoderSpec {
        family: Family::GraniteHybrid,
        intermediate_size: match experts {
            Some(_) => config.intermediate_size,
            None => shared,
        },
        experts,
        recurrent,
        layers_without_rope,
        ..granite_spec(config)?
    })
}
