//! Facts that the files of a model tell.

use serde::Deserialize;

/// Facts of a model's files, as far as its worker reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ModelDetails {
    /// Size of the files.
    pub bytes: Option<u64>,
    /// Numbers of all weights.
    pub parameters: Option<u64>,
    /// Format of the files: `gguf`, `safetensors`.
    pub format: Option<String>,
    /// Architecture, in the words of the files: `qwen3`.
    pub family: Option<String>,
    /// Number format of the weights: `Q8_0`, `BF16`.
    pub quantization: Option<String>,
    /// The model that an adapter changes.
    pub parent: Option<String>,
    /// The program behind the worker that serves the model: `vllm`, `ollama`.
    pub upstream: Option<String>,
    /// The library whose network computes the model one job at a time, in place of the worker's own: `candle-transformers`.
    pub network: Option<String>,
}

/// Bytes of a name.
const LONGEST_NAME: usize = 64;
const LONGEST_PARENT: usize = 255;

impl ModelDetails {
    /// Drops malformed names, since a worker may send anything.
    #[must_use]
    pub fn checked(self) -> Self {
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "_-.".contains(one);
        let checked = |name: Option<String>| {
            name.filter(|name| (1..=LONGEST_NAME).contains(&name.len()))
                .filter(|name| name.chars().all(is_plain))
        };
        Self {
            format: checked(self.format),
            family: checked(self.family),
            quantization: checked(self.quantization),
            upstream: checked(self.upstream),
            network: checked(self.network),
            parent: self.parent.filter(|parent| {
                let is_short = (1..=LONGEST_PARENT).contains(&parent.len());
                is_short && !parent.contains(char::is_control)
            }),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ModelDetails;

    #[test]
    fn a_name_that_is_none_is_left_out() {
        let said = ModelDetails {
            bytes: Some(1),
            format: Some("gguf".to_owned()),
            family: Some("<script>".to_owned()),
            quantization: Some("Q".repeat(65)),
            parent: Some("a\n".to_owned()),
            ..ModelDetails::default()
        };
        let checked = said.clone().checked();
        assert_eq!((checked.family, checked.quantization), (None, None));
        assert_eq!(checked.parent, None);
        assert_eq!((checked.bytes, checked.format), (said.bytes, said.format));
    }
}
