//! Text encoders: networks with bidirectional attention that generate no text. BERT and the RoBERTa family differ in
//! their positions and in the classification head; the rest is one network, [`Encoder`].
//!
//! A step has a flat batch without padding, and no row attends to another sequence.
//!
//! | file | content |
//! | --- | --- |
//! | `config` | `config.json` as an [`EncoderSpec`] |
//! | `gguf` | the same for a GGUF file, and its tensor names |
//! | `load` | loads a checkpoint's tensors |
//! | `network` | embeddings, layers, pooling and the classification head |

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
