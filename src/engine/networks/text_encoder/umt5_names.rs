//! Maps umT5's tensor names, as published or as in llama.cpp's GGUF files, to those of the folder layout.

use crate::networks::blocks::replaced;
use crate::networks::weights::TensorSource;

/// Names of a text encoder: ours, as published, in GGUF files.
const TEXT: [(&str, &str, &str); 2] = [
    ("shared.", "token_embedding.", "token_embd."),
    ("encoder.final_layer_norm.", "norm.", "enc.output_norm."),
];

/// The same inside a layer.
const TEXT_LAYER: [(&str, &str, &str); 10] = [
    ("0.SelfAttention.q.", "attn.q.", "attn_q."),
    ("0.SelfAttention.k.", "attn.k.", "attn_k."),
    ("0.SelfAttention.v.", "attn.v.", "attn_v."),
    ("0.SelfAttention.o.", "attn.o.", "attn_o."),
    (
        "0.SelfAttention.relative_attention_bias.",
        "pos_embedding.embedding.",
        "attn_rel_b.",
    ),
    ("0.layer_norm.", "norm1.", "attn_norm."),
    ("1.DenseReluDense.wi_0.", "ffn.gate.0.", "ffn_gate."),
    ("1.DenseReluDense.wi_1.", "ffn.fc1.", "ffn_up."),
    ("1.DenseReluDense.wo.", "ffn.fc2.", "ffn_down."),
    ("1.layer_norm.", "norm2.", "ffn_norm."),
];

/// How the tensors of a text encoder are called in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextNames {
    Folder,
    Published,
    Gguf,
}

impl TextNames {
    pub fn of(tensors: &dyn TensorSource) -> Self {
        let [(_, published, gguf), _] = TEXT;
        let has = |stem: &str| tensors.header(&format!("{stem}weight")).is_some();
        match (has(published), has(gguf)) {
            (true, _) => Self::Published,
            (_, true) => Self::Gguf,
            _ => Self::Folder,
        }
    }

    /// The name in the file.
    pub fn name(self, name: &str) -> String {
        let layer = name
            .strip_prefix("encoder.block.")
            .and_then(|rest| rest.split_once(".layer."));
        let renamed = match (self, layer) {
            (Self::Folder, _) => None,
            (_, None) => TEXT.iter().find_map(|row| replaced(name, &self.pair(row))),
            (_, Some((index, part))) => {
                let mut rows = TEXT_LAYER.iter();
                let renamed = rows.find_map(|row| replaced(part, &self.pair(row)));
                let stem = if self == Self::Gguf {
                    "enc.blk"
                } else {
                    "blocks"
                };
                renamed.map(|renamed| format!("{stem}.{index}.{renamed}"))
            }
        };
        renamed.unwrap_or_else(|| name.to_owned())
    }

    fn pair(
        self,
        (ours, published, gguf): &(&'static str, &'static str, &'static str),
    ) -> (&'static str, &'static str) {
        (ours, if self == Self::Gguf { gguf } else { published })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::TextNames;

    /// Pairs of names by `tests/fixtures/make/umt5_gguf_names.py`.
    #[test]
    fn text_encoders_have_the_names_of_llama_cpp_in_gguf_files() {
        let text = include_str!("../../../../tests/fixtures/golden/video/umt5-gguf-names.json");
        let pairs: BTreeMap<String, String> = serde_json::from_str(text).unwrap();
        assert!(pairs.len() > 20);
        for (ours, theirs) in &pairs {
            assert_eq!(&TextNames::Gguf.name(ours), theirs);
        }
        let published = |name| TextNames::Published.name(name);
        let gate = "encoder.block.3.layer.1.DenseReluDense.wi_0.weight";
        assert_eq!(published(gate), "blocks.3.ffn.gate.0.weight");
        assert_eq!(published("shared.weight"), "token_embedding.weight");
    }
}
