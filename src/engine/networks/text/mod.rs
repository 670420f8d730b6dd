//! Text decoders: one network, [`Decoder`], with a [`DecoderSpec`] per family.
//!
//! `llama.rs` and the files of the other families convert their `config.json`; `gguf/` converts a GGUF file's metadata.
//! A step has a flat batch: the new tokens of all sequences one after the other, without padding.

mod adapter;
mod config;
mod cost;
mod decoder;
mod deepseek;
mod experts;
mod family;
mod gemma;
mod gemma3n;
mod gemma4;
mod gemma_names;
mod gguf;
mod glm;
mod gpt_oss;
mod granite;
mod granite_hybrid;
mod head_rows;
mod images;
mod latent;
mod layer_kinds;
mod lfm;
mod limits;
mod llama;
mod llama4;
mod llama4_names;
mod load;
mod memory;
mod mistral;
mod naming;
mod olmo;
mod phi;
mod qwen;
mod qwen_next;
mod recurrent;
mod recurrent_names;
mod rope;
mod rope_json;
mod rules;
mod shapes;
mod smollm;
mod spec;
mod step_adapters;
mod synthetic;

pub use self::{
    adapter::TextAdapterFile,
    cost::StepCost,
    decoder::{Batch, Decoder, KvPages, LastStatesPass, StateRows},
    family::Family,
    head_rows::head_rows,
    images::{AxisPositions, ImageRows},
    load::LoadOptions,
    rope::{Rope, RopeScaling, Yarn},
    spec::{Biases, DecoderSpec},
    synthetic::{Synthetic, SyntheticQuant},
};

pub use crate::networks::layers::DecoderAdapter;

#[cfg(test)]
pub use self::gguf::golden::{ConvertedTensor, convert_with};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
pub mod golden;
#[cfg(test)]
mod golden_images;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod quantized;
#[cfg(test)]
mod recurrent_files;
#[cfg(test)]
mod refusals;
