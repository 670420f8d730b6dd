//! Metadata keys of a GGUF file for `gguf.rs` and `language.rs`.

use super::{EmbeddedText, TextError, Vocabulary, VocabularyKind};
use crate::networks::weights::{GgufMetadata, GgufValue};

const TEMPLATE: &str = "tokenizer.chat_template";

impl EmbeddedText {
    pub fn from_gguf(metadata: &GgufMetadata) -> Result<Self, TextError> {
        let id = |key: &str| token_id(metadata, key);
        let further_ends = ["eot", "eom"].map(|end| id(&format!("tokenizer.ggml.{end}_token_id")));
        Ok(Self {
            vocabulary: vocabulary(metadata)?,
            templates: match is_for_ranking(metadata) {
                true => pair_template(metadata).into_iter().collect(),
                false => templates(metadata),
            },
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
        "bert" => return word_pieces(metadata).map(Some),
        _ => {
            return Err(TextError::Unsupported {
                what: "tokenizer.ggml.model".to_owned(),
                found: model.to_owned(),
                known: "gpt2, gemma4, llama and bert".to_owned(),
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
        eos: token_id(metadata, "tokenizer.ggml.eos_token_id"),
        add_bos: metadata.flag("tokenizer.ggml.add_bos_token"),
        // A text that a model continues has no end.
        add_eos: pooling(metadata).is_some()
            && metadata.flag("tokenizer.ggml.add_eos_token") == Some(true),
        add_space_prefix: metadata.flag("tokenizer.ggml.add_space_prefix"),
    }))
}

/// BERT's words, with special tokens around a text.
fn word_pieces(metadata: &GgufMetadata) -> Result<Vocabulary, TextError> {
    let key = "tokenizer.ggml.tokens";
    let tokens = metadata.texts(key).ok_or_else(|| missing(key))?;
    let tokens: Vec<String> = tokens.into_iter().map(str::to_owned).collect();
    let mark = |keys: &[&str], usual: &str| {
        let keys = keys.iter();
        let mut named =
            keys.filter_map(|key| token_id(metadata, &format!("tokenizer.ggml.{key}_token_id")));
        named.next().or_else(|| {
            let found = tokens.iter().position(|token| token == usual)?;
            u32::try_from(found).ok()
        })
    };
    Ok(Vocabulary {
        kind: VocabularyKind::WordPieces,
        bos: mark(&["cls", "bos"], "[CLS]"),
        // The format's own spelling comes first.
        eos: mark(&["seperator", "separator", "eos"], "[SEP]"),
        unknown: mark(&["unknown"], "[UNK]"),
        add_bos: Some(true),
        add_eos: true,
        add_space_prefix: None,
        types: numbers(metadata, "tokenizer.ggml.token_type", GgufValue::unsigned)
            .unwrap_or_default(),
        tokens,
    })
}

/// The chat templates: the default, and others whose keys end in their names.
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

/// The pooling type in files of encoders; 0 for a generative model.
fn pooling(metadata: &GgufMetadata) -> Option<u64> {
    let architecture = metadata.text("general.architecture")?;
    let pooling = metadata.unsigned(&format!("{architecture}.pooling_type"))?;
    Some(pooling).filter(|&pooling| pooling != 0)
}

fn is_for_ranking(metadata: &GgufMetadata) -> bool {
    pooling(metadata) == Some(4)
}

/// The file's text with the placeholders `{query}` and `{document}`, converted to a chat template with two messages.
fn pair_template(metadata: &GgufMetadata) -> Option<(String, String)> {
    let text = metadata.text(&format!("{TEMPLATE}.rerank"))?;
    let literal = |text: &str| format!("{{{{ {} }}}}", serde_json::Value::from(text));
    let place = |index: usize| format!("{{{{ messages[{index}].content }}}}");
    let (before, rest) = text.split_once("{query}")?;
    let (between, after) = rest.split_once("{document}")?;
    let parts = [
        literal(before),
        place(0),
        literal(between),
        place(1),
        literal(after),
    ];
    Some(("default".to_owned(), parts.concat()))
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
