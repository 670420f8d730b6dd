//! Where a GGUF file keeps what `gguf.rs` and `language.rs` want to know.

use super::{EmbeddedText, TextError, Vocabulary, VocabularyKind};
use crate::networks::weights::{GgufMetadata, GgufValue};

const TEMPLATE: &str = "tokenizer.chat_template";

impl EmbeddedText {
    pub fn from_gguf(metadata: &GgufMetadata) -> Result<Self, TextError> {
        let id = |key: &str| token_id(metadata, key);
        let further_ends = ["eot", "eom"].map(|end| id(&format!("tokenizer.ggml.{end}_token_id")));
        Ok(Self {
            vocabulary: vocabulary(metadata)?,
            templates: templates(metadata),
            bos: id("tokenizer.ggml.bos_token_id"),
            eos: id("tokenizer.ggml.eos_token_id"),
            further_ends: further_ends.into_iter().flatten().collect(),
        })
    }
}

fn vocabulary(metadata: &GgufMetadata) -> Result<Option<Vocabulary>, TextError> {
    let Some(model) = metadata
        .text("tokenizer.ggml.model")
        .filter(|&model| model != "none")
    else {
        return Ok(None);
    };
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
    let texts = |key: &str| metadata.texts(key).map(owned).ok_or_else(|| missing(key));
    let kind = match model {
        "gpt2" => VocabularyKind::BytePairs {
            pre: metadata
                .text("tokenizer.ggml.pre")
                .unwrap_or("default")
                .to_owned(),
            merges: texts("tokenizer.ggml.merges")?,
        },
        "gemma4" => VocabularyKind::CharacterPairs {
            merges: texts("tokenizer.ggml.merges")?,
        },
        "llama" => VocabularyKind::SentencePiece {
            scores: numbers(metadata, "tokenizer.ggml.scores", float)
                .ok_or_else(|| missing("tokenizer.ggml.scores"))?,
        },
        _ => {
            return Err(TextError::Unsupported {
                what: "tokenizer.ggml.model".to_owned(),
                found: model.to_owned(),
                known: "gpt2, gemma4 and llama".to_owned(),
            });
        }
    };
    Ok(Some(Vocabulary {
        kind,
        tokens: texts("tokenizer.ggml.tokens")?,
        types: numbers(metadata, "tokenizer.ggml.token_type", GgufValue::unsigned)
            .unwrap_or_default(),
        bos: token_id(metadata, "tokenizer.ggml.bos_token_id"),
        unknown: token_id(metadata, "tokenizer.ggml.unknown_token_id"),
        add_bos: metadata.flag("tokenizer.ggml.add_bos_token"),
        add_space_prefix: metadata.flag("tokenizer.ggml.add_space_prefix"),
    }))
}

/// The template, and those for other uses, whose keys end in their names.
fn templates(metadata: &GgufMetadata) -> Vec<(String, String)> {
    let named = |key: &str| {
        let name = match key.strip_prefix(TEMPLATE)? {
            "" => "default",
            name => name.strip_prefix('.')?,
        };
        Some((name.to_owned(), metadata.text(key)?.to_owned()))
    };
    let mut templates: Vec<_> = metadata.keys().filter_map(named).collect();
    templates.sort();
    templates
}

fn token_id(metadata: &GgufMetadata, key: &str) -> Option<u32> {
    metadata.unsigned(key).and_then(|id| u32::try_from(id).ok())
}

fn numbers<T>(
    metadata: &GgufMetadata,
    key: &str,
    number: fn(&GgufValue) -> Option<T>,
) -> Option<Vec<T>> {
    metadata.list(key)?.iter().map(number).collect()
}

fn float(value: &GgufValue) -> Option<f64> {
    match value {
        GgufValue::Float(float) => Some(*float),
        _ => None,
    }
}

fn missing(key: &str) -> TextError {
    TextError::Missing {
        what: format!("{key} in the GGUF file"),
    }
}
