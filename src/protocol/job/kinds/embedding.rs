//! Embedding jobs: a vector for each text.

use serde::{Deserialize, Serialize};

use super::tokens::bytes_of;
use super::{JobRequest, KindFacts, OutputForm, TextInput};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "embedding",
    word: "text",
    ability: "embeddings",
    job_type: "text",
    task: Some("embed"),
    is_relayed: true,
    modality: Some("embeddings"),
    route: Some("/v1/embeddings"),
    limits: &[],
    rate: None,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingRequest {
    pub inputs: Vec<TextInput>,
    /// The place of the first among the inputs of the request, for errors.
    #[serde(default)]
    pub first: usize,
    /// Shortens vectors to this many numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<u32>,
}

impl JobRequest for EmbeddingRequest {
    fn output(&self) -> OutputForm {
        OutputForm::Values
    }

    fn size(&self) -> u64 {
        (self.read_bytes() as u64 / 4).max(1)
    }

    fn read_bytes(&self) -> usize {
        self.inputs.iter().map(bytes_of).sum()
    }
}

/// An embedding. The serde form is its bytes as hexadecimal digits: as numbers, a batch would exceed a frame's limit of
/// values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vector(pub Vec<f32>);

impl Serialize for Vector {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(8 * self.0.len());
        for byte in self.0.iter().flat_map(|number| number.to_le_bytes()) {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let text = String::deserialize(deserializer)?;
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(8) {
            let message = "the digits of a vector must be a multiple of 8";
            return Err(D::Error::custom(message));
        }
        let number = |digits: &[u8]| {
            // The standard library would let a sign pass.
            let text = std::str::from_utf8(digits).ok()?;
            let is_plain = digits.iter().all(u8::is_ascii_hexdigit);
            let text = is_plain.then_some(text)?;
            let swapped = u32::from_str_radix(text, 16).ok()?;
            Some(f32::from_bits(swapped.swap_bytes()))
        };
        let numbers = digits.chunks_exact(8).map(number);
        let numbers: Option<Vec<f32>> = numbers.collect();
        numbers
            .map(Self)
            .ok_or_else(|| D::Error::custom("a vector must consist of hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Vector;

    #[test]
    fn a_broken_vector_is_refused() {
        for broken in ["0000803", "0000803g", "+000803f", "ππππ"] {
            let read = serde_json::from_value::<Vector>(json!(broken));
            assert!(read.is_err(), "{broken}");
        }
    }
}
