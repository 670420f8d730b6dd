//! Encoders of text: networks that read a sequence whole, in both directions, and write none. BERT and RoBERTa with
//! its multilingual kin differ in their positions and in the head that scores; the rest is one network, [`Encoder`].
//!
//! A step takes a flat batch without padding, so that no row ever sees another sequence.
//!
//! | file | what it is |
//! | --- | --- |
//! | `config` | `config.json` as an [`EncoderSpec`] |
//! | `gguf` | the same of a GGUF file, and its names of tensors |
//! | `load` | a checkpoint's tensors to an encoder on a device |
//! | `network` | embeddings, layers, pooling and the scoring head |

mod config;
mod gguf;
mod load;
mod network;

pub use config::{EncoderFamily, EncoderSpec, Task};
pub use network::{Encoder, EncoderInput, EncoderPass, Pooling};

#[cfg(test)]
pub use gguf::name as gguf_name;

#[cfg(test)]
mod golden;
