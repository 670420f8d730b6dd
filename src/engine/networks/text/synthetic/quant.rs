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
    /// The mix that llama.cpp makes under this name.
    Q4KM,
    Q8_0,
    F16,
    BF16,
    F32,
}

/// Name, and the number by which GGUF files name the mix.
const QUANTS: &[(SyntheticQuant, &str, u64)] = &[
    (SyntheticQuant::Q4KM, "q4_k_m", 15),
    (SyntheticQuant::Q8_0, "q8_0", 7),
    (SyntheticQuant::F16, "f16", 1),
    (SyntheticQuant::BF16, "bf16", 32),
    (SyntheticQuant::F32, "f32", 0),
];

impl SyntheticQuant {
    pub fn names() -> impl Iterator<Item = &'static str> {
        QUANTS.iter().map(|entry| entry.1)
    }

    /// By which GGUF files name the mix.
    pub fn number(self) -> u64 {
        self.entry().2
    }

    fn entry(self) -> &'static (Self, &'static str, u64) {
        let entry = QUANTS.iter().find(|entry| entry.0 == self);
        entry.unwrap_or(&QUANTS[0])
    }

    /// What a matrix of this role and width is stored as.
    pub fn dtype(self, role: Role, cols: usize, spec: &DecoderSpec) -> GgmlDType {
        let wanted = match self {
            Self::Q4KM if needs_more_bits(role, spec) => GgmlDType::Q6K,
            Self::Q4KM => GgmlDType::Q4K,
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::F16 => GgmlDType::F16,
            Self::BF16 => GgmlDType::BF16,
            Self::F32 => GgmlDType::F32,
        };
        match wanted {
            dtype if cols.is_multiple_of(dtype.block_size()) => dtype,
            GgmlDType::Q4K => GgmlDType::Q5_0,
            _ => GgmlDType::Q8_0,
        }
    }
}

/// Where llama.cpp's mix spends two bits more: the output, and values and the way down in the first and last
/// eighth of the layers and every third between.
fn needs_more_bits(role: Role, spec: &DecoderSpec) -> bool {
    let eighth = spec.layers / 8;
    match role {
        Role::Head => true,
        Role::Embedding => spec.tied_embeddings,
        Role::Layer(layer, Part::Value | Part::Down) => {
            layer < eighth || layer >= 7 * spec.layers / 8 || (layer - eighth) % 3 == 2
        }
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
