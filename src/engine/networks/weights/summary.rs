//! A checkpoint's facts for listings: parameters and format.

use std::collections::BTreeMap;

use super::checkpoint::{Checkpoint, Description};
use super::gguf::{GgufMetadata, file_type_name};
use super::header::{TensorHeader, TensorType};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Size of the files.
    pub bytes: u64,
    /// `None` if much of the files has an opaque format.
    pub parameters: Option<u64>,
    pub format: &'static str,
    /// Architecture, in the words of the files.
    pub family: Option<String>,
    /// Number format of the weights.
    pub quantization: Option<String>,
}

/// The least proportion of weights in the bytes: positions and masks are small in comparison.
const LEAST_WEIGHTS: f64 = 0.99;

impl Checkpoint {
    pub fn summary(&self) -> CheckpointSummary {
        let weights = || {
            let is_weight =
                |header: &&TensorHeader| !matches!(header.dtype, TensorType::Other { .. });
            self.tensors().iter().filter(is_weight)
        };
        let all: u64 = self.tensors().iter().map(|header| header.bytes).sum();
        let known: u64 = weights().map(|header| header.bytes).sum();
        let is_known = known as f64 >= LEAST_WEIGHTS * all as f64;
        let parameters = weights().map(TensorHeader::elements).sum();
        let (format, family, named) = match self.description() {
            Description::Gguf(metadata) => ("gguf", gguf_family(metadata), file_type(metadata)),
            Description::Config(config) => {
                let family = config["model_type"].as_str();
                ("safetensors", family.map(str::to_owned), None)
            }
        };
        CheckpointSummary {
            bytes: self.file_bytes(),
            parameters: is_known.then_some(parameters),
            format,
            family,
            quantization: named.or_else(|| most_common(self.tensors())),
        }
    }
}

fn gguf_family(metadata: &GgufMetadata) -> Option<String> {
    metadata.text("general.architecture").map(str::to_owned)
}

fn file_type(metadata: &GgufMetadata) -> Option<String> {
    let number = metadata.unsigned("general.file_type")?;
    file_type_name(number).map(str::to_owned)
}

/// The type that most bytes are stored as.
fn most_common(tensors: &[TensorHeader]) -> Option<String> {
    let mut bytes = BTreeMap::<String, u64>::new();
    for header in tensors {
        *bytes.entry(header.dtype.to_string()).or_default() += header.bytes;
    }
    let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
    most.map(|(name, _)| name)
}
