//! Phi 3 and 4: a Llama with queries, keys and values in one matrix, and gates in another.

use super::{
    config::ConfigJson,
    family::Family,
    llama,
    spec::{Biases, DecoderSpec},
};
use crate::networks::weights::Flaw;

pub fn phi3_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        biases: Biases::default(),
        windows: config.windows(|_| true)?,
        ..llama::spec(config, Family::Phi3)?
    })
}
