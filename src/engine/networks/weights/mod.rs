//! Weights from disk to device: files are mapped, their headers are checked before anything is allocated, and only
//! `.safetensors`, `.gguf` and the files of whisper.cpp are opened.
//!
//! [`Checkpoint`] has the content of a model's files; `weight.rs` chooses the layout of matrices on a device.

mod checkpoint;
pub(in crate::networks) mod convert;
mod cursor;
mod error;
pub(in crate::networks) mod fp8;
#[cfg(test)]
pub mod fuzz;
mod gguf;
mod header;
mod invented;
mod iq;
mod mapping;
pub(in crate::networks) mod mxfp4;
mod packed;
mod pickle;
mod safetensors;
mod source;
mod summary;
mod weight;
mod whisper_cpp;

pub use self::{
    checkpoint::{Checkpoint, Description, read_description},
    convert::{Quantize, floats as tensor_floats},
    error::{CheckpointError, Flaw, layered, sized},
    gguf::{GgufMetadata, GgufValue, GgufWriter},
    header::{TensorHeader, TensorType},
    invented::InventedTensors,
    mapping::{Mapping, TensorBytes},
    packed::Packing,
    pickle::{ConversionError, PickleDescription, PickledFile},
    source::TensorSource,
    summary::CheckpointSummary,
    weight::{Weight, WeightSpan},
};
#[cfg(test)]
pub use self::{convert::quantized, whisper_cpp::tests::written as whisper_cpp_file};
