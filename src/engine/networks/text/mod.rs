//! Decoders of text: one network, [`Decoder`], described by a [`DecoderSpec`] for every family.
//!
//! `llama.rs` and `qwen.rs` say what their `config.json` means; `gguf.rs` reads the same from a GGUF file.
//! A step takes a flat batch: the new tokens of all sequences one after the other, without padding.

mod config;
mod cost;
mod decoder;
mod family;
mod gguf;
mod limits;
mod llama;
mod load;
mod memory;
mod qwen;
mod shapes;
mod spec;
mod synthetic;

pub use self::{
    cost::StepCost,
    decoder::{Batch, Decoder, KvPages},
    family::Family,
    load::LoadOptions,
    spec::{Biases, DecoderSpec, Rope, RopeScaling},
    synthetic::{Synthetic, SyntheticQuant},
};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod invariance;
#[cfg(test)]
mod quantized;
#[cfg(test)]
mod refusals;
