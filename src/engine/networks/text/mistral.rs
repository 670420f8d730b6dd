//! Mistral, a Llama with a window; Ministral, whose windows alternate; Ministral 3, with a query temperature for long
//! contexts; and Mixtral, a Mistral with experts.

use super::{
    config::ConfigJson,
    family::Family,
    llama,
    spec::{Biases, DecoderSpec},
};
use crate::networks::weights::Flaw;

pub fn mistral_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    with_windows(config, Family::Mistral)
}

pub fn ministral_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    with_windows(config, Family::Ministral)
}

pub fn ministral3_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        query_temperature: config.query_temperature()?,
        ..with_windows(config, Family::Ministral3)?
    })
}

pub fn mixtral_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        experts: Some(config.experts(config.intermediate_size, true)?),
        ..with_windows(config, Family::Mixtral)?
    })
}

fn with_windows(config: &ConfigJson, family: Family) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        biases: Biases::default(),
        windows: config.windows(|_| true)?,
        ..llama::spec(config, family)?
    })
}
