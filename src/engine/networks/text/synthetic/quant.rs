//! How the matrices of a synthetic decoder are stored: which block type each gets.

use std::{fmt, str::FromStr};

use candle_core::quantized::GgmlDType;

use super::super::{
    family::{Part, Role},
    spec::DecoderSpec,
};

/// A type for all matrices, or a mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticQuant {
    /// The mixes that llama.cpp makes under these names.
    Q4KM,
    Q5KM,
    Q6K,
    Q4_0,
    Q5_0,
    Q8_0,
    F16,
    BF16,
    F32,
}

/// Name, and the number by which GGUF files name the mix.
const QUANTS: &[(SyntheticQuant, &str, u64)] = &[
    (SyntheticQuant::Q4KM, "q4_k_m", 15),
    (SyntheticQuant::Q5KM, "q5_k_m", 17),
    (SyntheticQuant::Q6K, "q6_k", 18),
    (SyntheticQuant::Q4_0, "q4_0", 2),
    (SyntheticQuant::Q5_0, "q5_0", 8),
    (SyntheticQuant::Q8_0, "q8_0", 7),
    (SyntheticQuant::F16, "f16", 1),
    (SyntheticQuant::BF16, "bf16", 32),
    (SyntheticQuant::F32, "f32", 0),
];

impl SyntheticQuant {
    pub fn names() -> impl Iterator<Item = &'static str> {
        QUANTS.iter().map(|entry| entry.1)
    }

    /// The number of the mix in GGUF files.
    pub fn number(self) -> u64 {
        self.entry().2
    }

    fn entry(self) -> &'static (Self, &'static str, u64) {
        let entry = QUANTS.iter().find(|entry| entry.0 == self);
        entry.unwrap_or(&QUANTS[0])
    }

    /// The storage type of a matrix with this role and width.
    pub fn dtype(self, role: Role, cols: usize, spec: &DecoderSpec) -> GgmlDType {
        let wanted = match self {
            Self::Q4KM | Self::Q5KM if needs_more_bits(role, spec) => GgmlDType::Q6K,
            Self::Q4_0 | Self::Q5_0 if is_output(role, spec) => GgmlDType::Q6K,
            Self::Q4KM => GgmlDType::Q4K,
            Self::Q5KM => GgmlDType::Q5K,
            Self::Q6K => GgmlDType::Q6K,
            Self::Q4_0 => GgmlDType::Q4_0,
            Self::Q5_0 => GgmlDType::Q5_0,
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::F16 => GgmlDType::F16,
            Self::BF16 => GgmlDType::BF16,
            Self::F32 => GgmlDType::F32,
        };
        match wanted {
            dtype if cols.is_multiple_of(dtype.block_size()) => dtype,
            GgmlDType::Q4K => GgmlDType::Q5_0,
            GgmlDType::Q5K => GgmlDType::Q5_1,
            _ => GgmlDType::Q8_0,
        }
    }
}

/// The matrices with two more bits in llama.cpp's mix: the output, and the value and down projections in the first and
/// last eighth of the layers and every third in between.
fn needs_more_bits(role: Role, spec: &DecoderSpec) -> bool {
    let eighth = spec.layers / 8;
    match role {
        _ if is_output(role, spec) => true,
        Role::Layer(layer, Part::Value | Part::Down | Part::DownExperts) => {
            layer < eighth || layer >= 7 * spec.layers / 8 || (layer - eighth) % 3 == 2
        }
        _ => false,
    }
}

fn is_output(role: Role, spec: &DecoderSpec) -> bool {
    match role {
        Role::Head => true,
        Role::Embedding => spec.tied_embeddings,
        _ => false,
    }
}

impl FromStr for SyntheticQuant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entry = QUANTS.iter().find(|entry| entry.1 == text);
        entry.map(|entry| entry.0).ok_or_else(|| {
            let known: Vec<&str> = Self::names().collect();
            format!("unknown quantization {text}; known: {}", known.join(", "))
        })
    }
}

impl fmt::Display for SyntheticQuant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().1)
    }
}
