//! SentencePiece's Unigram tokenizer as text encoders' files contain it: SentencePiece's own message, or the metadata
//! of a GGUF file.

use std::panic::catch_unwind;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::Precompiled;
use tokenizers::{AddedToken, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper};

use super::TextError;
use crate::networks::weights::{GgufMetadata, GgufValue};

/// The pieces of a text, and how it is read before it is cut into them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnigramVocabulary {
    /// Each with its logarithmic probability.
    pieces: Vec<(String, f64)>,
    /// The kind of each piece.
    kinds: Vec<u64>,
    /// Replacements of characters, as SentencePiece compiles them; empty for none.
    replacements: Vec<u8>,
    /// Whether a space is prepended to a text.
    has_prefix: bool,
    unknown: Option<u32>,
    end: Option<u32>,
}

const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const BYTE: u64 = 6;
/// Four times the largest vocabulary.
const MAX_PIECES: usize = 1 << 20;
const MAX_PIECE_BYTES: usize = 1 << 10;
/// All pieces together, and the message that holds them: ten times the largest vocabulary's.
const MAX_BYTES: usize = 64 << 20;
const SPACE: char = '▁';

impl UnigramVocabulary {
    /// Parses a SentencePiece model, which is a protocol buffer.
    pub fn from_message(bytes: &[u8]) -> Result<Self, TextError> {
        if bytes.len() > MAX_BYTES {
            let found = bytes.len();
            return Err(broken(format!(
                "{found} bytes, expected at most {MAX_BYTES}"
            )));
        }
        let mut vocabulary = Self {
            pieces: Vec::new(),
            kinds: Vec::new(),
            replacements: Vec::new(),
            has_prefix: true,
            unknown: Some(0),
            end: Some(2),
        };
        for field in MessageFields(bytes) {
            match field? {
                (1, FieldValue::Bytes(piece)) => vocabulary.read_piece(piece)?,
                (2, FieldValue::Bytes(trainer)) => vocabulary.read_trainer(trainer)?,
                (3, FieldValue::Bytes(normalizer)) => vocabulary.read_normalizer(normalizer)?,
                _ => {}
            }
        }
        vocabulary.checked()
    }

    /// Reads the metadata of a GGUF file; `None` if its tokenizer has another type.
    pub fn from_gguf(metadata: &GgufMetadata) -> Result<Option<Self>, TextError> {
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        if metadata.text(&key("model")) != Some("t5") {
            return Ok(None);
        }
        let list = |name: &str| metadata.list(&key(name)).unwrap_or_default();
        let tokens = metadata.texts(&key("tokens")).unwrap_or_default();
        let score = |value: &GgufValue| match value {
            GgufValue::Float(score) => Some(*score),
            _ => None,
        };
        let scores = list("scores").iter().map(score);
        let scores: Option<Vec<f64>> = scores.collect();
        let scores = scores.filter(|scores| scores.len() == tokens.len());
        let scores = scores.ok_or_else(|| broken("tokens and scores of different numbers"))?;
        let tokens = tokens.into_iter().map(str::to_owned);
        let numbers = |name: &str| list(name).iter().filter_map(GgufValue::unsigned);
        let id = |name: &str| {
            metadata
                .unsigned(&key(name))
                .and_then(|id| u32::try_from(id).ok())
        };
        let vocabulary = Self {
            pieces: tokens.zip(scores).collect(),
            kinds: numbers("token_type").collect(),
            replacements: numbers("precompiled_charsmap")
                .map(|byte| byte as u8)
                .collect(),
            has_prefix: metadata.flag(&key("add_space_prefix")).unwrap_or(true),
            unknown: id("unknown_token_id"),
            end: id("eos_token_id"),
        };
        vocabulary.checked().map(Some)
    }

    fn read_piece(&mut self, message: &[u8]) -> Result<(), TextError> {
        let (mut piece, mut score, mut kind) = (String::new(), 0.0, NORMAL);
        for field in MessageFields(message) {
            match field? {
                (1, FieldValue::Bytes(bytes)) => {
                    let text = std::str::from_utf8(bytes);
                    piece = text
                        .map_err(|_| broken("a piece that is not UTF-8"))?
                        .to_owned();
                }
                (2, FieldValue::Fixed(bits)) => score = f64::from(f32::from_bits(bits)),
                (3, FieldValue::Number(number)) => kind = number,
                _ => {}
            }
        }
        self.pieces.push((piece, score));
        self.kinds.push(kind);
        // While reading: a piece without text takes twenty times its bytes.
        check_count(self.pieces.len())
    }

    fn read_trainer(&mut self, message: &[u8]) -> Result<(), TextError> {
        for field in MessageFields(message) {
            match field? {
                (3, FieldValue::Number(kind)) if kind != NORMAL => {
                    return Err(TextError::Unsupported {
                        what: "the kind of the SentencePiece model".to_owned(),
                        found: kind.to_string(),
                        known: "1, Unigram".to_owned(),
                    });
                }
                // A negative id means none.
                (40, FieldValue::Number(id)) => self.unknown = u32::try_from(id).ok(),
                (42, FieldValue::Number(id)) => self.end = u32::try_from(id).ok(),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, message: &[u8]) -> Result<(), TextError> {
        for field in MessageFields(message) {
            match field? {
                (2, FieldValue::Bytes(bytes)) => self.replacements = bytes.to_vec(),
                (3, FieldValue::Number(flag)) => self.has_prefix = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, TextError> {
        let count = self.pieces.len();
        check_count(count)?;
        if count == 0 || self.kinds.len() != count {
            return Err(broken(format!(
                "{count} pieces of {} kinds",
                self.kinds.len()
            )));
        }
        if let Some((piece, _)) = self.pieces.iter().find(|it| it.0.len() > MAX_PIECE_BYTES) {
            return Err(broken(format!("a piece of {} bytes", piece.len())));
        }
        if let Some(score) = self.pieces.iter().find(|it| !it.1.is_finite()) {
            return Err(broken(format!("the score {} of a piece", score.1)));
        }
        let ids = [self.unknown, self.end].into_iter().flatten();
        match ids.into_iter().find(|id| *id as usize >= count) {
            Some(id) => Err(broken(format!("the id {id} among {count} pieces"))),
            None => Ok(self),
        }
    }

    /// A tokenizer that appends the end token to each text.
    pub fn tokenizer(&self) -> Result<tokenizers::Tokenizer, TextError> {
        let unknown = self.unknown.map(|id| id as usize);
        let has_bytes = self.kinds.contains(&BYTE);
        let model = Unigram::from(self.pieces.clone(), unknown, has_bytes).map_err(broken)?;
        let mut tokenizer = tokenizers::Tokenizer::new(ModelWrapper::Unigram(model));
        if !self.replacements.is_empty() {
            // The library panics at tables that no program writes.
            let compiled = catch_unwind(|| Precompiled::from(&self.replacements));
            let compiled = compiled.map_err(|_| broken("inconsistent replacements"))?;
            let normalizer = NormalizerWrapper::Precompiled(compiled.map_err(broken)?);
            tokenizer
                .with_normalizer(Some(normalizer))
                .map_err(broken)?;
        }
        let spaces = json!({
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": if self.has_prefix { "always" } else { "never" },
        });
        let spaces: PreTokenizerWrapper = serde_json::from_value(spaces).map_err(broken)?;
        tokenizer.with_pre_tokenizer(Some(spaces));
        if let Some(end) = self.end {
            let (piece, _) = &self.pieces[end as usize];
            let behind = json!({
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": piece, "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {piece: {"id": piece, "ids": [end], "tokens": [piece]}},
            });
            let behind: tokenizers::PostProcessorWrapper =
                serde_json::from_value(behind).map_err(broken)?;
            tokenizer.with_post_processor(Some(behind));
        }
        let added = self.pieces.iter().zip(&self.kinds);
        // Symbols that users defined have the best score, so that they are found as pieces.
        let added = added.filter(|(_, kind)| [CONTROL, UNKNOWN].contains(kind));
        let added = added.map(|((piece, _), _)| AddedToken::from(piece.clone(), true));
        tokenizer
            .add_tokens(added.collect::<Vec<_>>())
            .map_err(broken)?;
        Ok(tokenizer)
    }
}

fn check_count(pieces: usize) -> Result<(), TextError> {
    match pieces > MAX_PIECES {
        true => Err(broken(format!("more than {MAX_PIECES} pieces"))),
        false => Ok(()),
    }
}

fn broken(reason: impl ToString) -> TextError {
    TextError::broken("the SentencePiece tokenizer", reason.to_string())
}

/// A value of a protocol buffer.
enum FieldValue<'a> {
    Number(u64),
    Fixed(u32),
    Bytes(&'a [u8]),
    /// Eight bytes that no field of ours has.
    Wide,
}

/// The fields of a protocol buffer with their numbers, up to the first that is broken.
struct MessageFields<'a>(&'a [u8]);

impl<'a> MessageFields<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn field(&mut self) -> Option<(u64, FieldValue<'a>)> {
        let key = self.number()?;
        let value = match key & 7 {
            0 => FieldValue::Number(self.number()?),
            1 => self.take(8).map(|_| FieldValue::Wide)?,
            2 => {
                let count = self.number()?;
                FieldValue::Bytes(self.take(usize::try_from(count).ok()?)?)
            }
            5 => FieldValue::Fixed(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for MessageFields<'a> {
    type Item = Result<(u64, FieldValue<'a>), TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| broken("a message that is cut off")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Generated by `tests/fixtures/make/unigram.py`.
    fn fixture(name: &str) -> Vec<u8> {
        let folder =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures");
        std::fs::read(folder.join("golden/unigram").join(name)).unwrap()
    }

    fn check(vocabulary: &UnigramVocabulary) {
        let tokenizer = vocabulary.tokenizer().unwrap();
        let expected: Vec<(String, Vec<u32>)> =
            serde_json::from_slice(&fixture("ids.json")).unwrap();
        assert!(expected.len() > 8);
        for (text, ids) in expected {
            let found = tokenizer.encode(text.as_str(), true).unwrap();
            assert_eq!(found.get_ids(), ids, "{text}");
        }
    }

    #[test]
    fn texts_become_the_pieces_of_sentencepiece() {
        check(&UnigramVocabulary::from_message(&fixture("pieces.model")).unwrap());
    }

    #[test]
    fn a_gguf_file_holds_the_same_tokenizer() {
        let bytes = fixture("pieces.gguf");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pieces.gguf");
        std::fs::write(&path, bytes).unwrap();
        let checkpoint = crate::networks::weights::Checkpoint::open(&path).unwrap();
        let metadata = checkpoint.gguf_metadata().unwrap();
        let vocabulary = UnigramVocabulary::from_gguf(metadata).unwrap().unwrap();
        let other = UnigramVocabulary::from_message(&fixture("pieces.model")).unwrap();
        assert_eq!(vocabulary, other);
        check(&vocabulary);
    }

    #[test]
    fn a_message_that_is_cut_off_or_changed_is_refused_or_read() {
        let whole = fixture("pieces.model");
        for length in 0..whole.len() {
            let read = UnigramVocabulary::from_message(&whole[..length]);
            if let Ok(vocabulary) = read {
                vocabulary.tokenizer().unwrap();
            }
        }
        for at in (0..whole.len()).step_by(7) {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            if let Ok(vocabulary) = UnigramVocabulary::from_message(&changed) {
                let _ = vocabulary.tokenizer();
            }
        }
        assert!(UnigramVocabulary::from_message(&[]).is_err());
    }
}
