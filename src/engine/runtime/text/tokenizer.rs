//! Text to tokens, by the model's own `tokenizer.json` or the vocabulary in its GGUF file.

use std::panic::catch_unwind;
use std::path::Path;

use super::detokenize::Pieces;
use super::output::{CHANNEL_MARKS, SPELLED_OUT};
use super::{TextError, read_bounded};

/// A model's tokenizer and its detokenization table.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    pieces: Pieces,
}

impl Tokenizer {
    pub fn open(path: &Path) -> Result<Self, TextError> {
        Self::new(read_file(path)?).map_err(|error| error.in_file(path))
    }

    /// For a file that may lack a decoder: its tokens cannot be converted to text.
    pub fn open_read_only(path: &Path) -> Result<Self, TextError> {
        Self::read_only(read_file(path)?).map_err(|error| error.in_file(path))
    }

    pub fn new(inner: tokenizers::Tokenizer) -> Result<Self, TextError> {
        let pieces = pieces_of(&inner)?;
        Ok(Self {
            pieces,
            ..Self::read_only(inner)?
        })
    }

    pub fn read_only(mut inner: tokenizers::Tokenizer) -> Result<Self, TextError> {
        // Some files carry the truncation and padding of their training.
        inner.with_padding(None);
        let truncation = inner.with_truncation(None).map(drop);
        truncation.map_err(|error| TextError::broken("the tokenizer", error))?;
        let pieces = Pieces::new(false);
        Ok(Self { inner, pieces })
    }

    /// Special tokens in the text are recognized. `prefix` adds the tokenizer's own tokens around a text (BOS).
    pub fn encode(&self, text: &str, prefix: bool) -> Result<Vec<u32>, TextError> {
        let encoding = self.inner.encode_fast(text, prefix);
        let encoding = encoding.map_err(|error| TextError::broken("the tokenizer", error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Two texts as one sequence with the tokenizer's separators, and the segment of each token.
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
    ) -> Result<(Vec<u32>, Vec<u32>), TextError> {
        let encoding = self.inner.encode((first, second), true);
        let encoding = encoding.map_err(|error| TextError::broken("the tokenizer", error))?;
        Ok((
            encoding.get_ids().to_vec(),
            encoding.get_type_ids().to_vec(),
        ))
    }

    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether the text is the name of a special token.
    pub fn is_special(&self, token: &str) -> bool {
        let id = self.inner.token_to_id(token);
        id.is_some_and(|id| self.pieces.bytes(id).is_empty())
    }

    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }
}

fn read_file(path: &Path) -> Result<tokenizers::Tokenizer, TextError> {
    let bytes = read_bounded(path, MAX_FILE_BYTES);
    let bytes = bytes.map_err(|error| TextError::unreadable(path, &error))?;
    read(&bytes).map_err(|reason| TextError::broken(path.display(), reason))
}

/// The library panics at some malformed files, such as one with a merge longer than every token.
pub fn read(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    let read = catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes));
    let read = read.map_err(|_| "inconsistent vocabulary, merges and prefixes")?;
    read.map_err(|error| error.to_string())
}

/// How a vocabulary writes bytes that are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// Each byte is a printable character (GPT-2's table).
    ByteLevel,
    /// `▁` is a space, `<0xE2>` a byte.
    SentencePiece { strips_first_space: bool },
    /// BERT's: `##` continues the word before, every other token begins a word.
    WordPiece,
}

fn pieces_of(tokenizer: &tokenizers::Tokenizer) -> Result<Pieces, TextError> {
    let decoder = serde_json::to_value(tokenizer.get_decoder());
    let decoder = decoder.map_err(|error| TextError::broken("the tokenizer's decoder", error))?;
    let spelling = spelling(&decoder)?;
    let strips = match spelling {
        Spelling::ByteLevel => false,
        Spelling::SentencePiece { strips_first_space } => strips_first_space,
        Spelling::WordPiece => true,
    };
    let added = tokenizer.get_added_tokens_decoder();
    let vocabulary = tokenizer.get_vocab(true);
    let size = vocabulary
        .values()
        .max()
        .map_or(0, |&most| most as usize + 1);
    check_sizes(size, added.values().map(|token| token.content.len()).sum())?;
    let mut tokens = vec![""; size];
    for (token, &id) in &vocabulary {
        if let Some(place) = tokens.get_mut(id as usize) {
            *place = token;
        }
    }
    let table = byte_table();
    let mut pieces = Pieces::new(strips);
    // Other vocabularies have tokens of these names that end texts.
    let has_channels = CHANNEL_MARKS
        .iter()
        .all(|mark| vocabulary.contains_key(*mark));
    let is_spelled_out = |token: &str| {
        SPELLED_OUT.contains(&token) || (has_channels && CHANNEL_MARKS.contains(&token))
    };
    for (id, token) in (0_u32..).zip(tokens) {
        match added.get(&id) {
            Some(added) if added.special && !is_spelled_out(&added.content) => {
                pieces.push(&[]);
            }
            Some(added) => pieces.push(added.content.as_bytes()),
            None => pieces.push(&bytes_of(token, spelling, &table)),
        }
    }
    Ok(pieces)
}

fn check_sizes(vocabulary: usize, added_bytes: usize) -> Result<(), TextError> {
    let check = |what: &str, found: usize, most: usize| match found > most {
        true => Err(TextError::broken(
            "the tokenizer",
            format!("found {found} {what}, expected at most {most}"),
        )),
        false => Ok(()),
    };
    check("token ids", vocabulary, MAX_VOCABULARY)?;
    check("bytes in added tokens", added_bytes, MAX_ADDED_BYTES)
}

/// Four times the largest vocabulary; a file that has more is broken.
pub(super) const MAX_VOCABULARY: usize = 1 << 20;
/// Twice the largest `tokenizer.json`.
pub const MAX_FILE_BYTES: u64 = 64 << 20;
/// Added tokens are found by an automaton of a hundred times their size.
const MAX_ADDED_BYTES: usize = 1 << 20;

fn spelling(decoder: &serde_json::Value) -> Result<Spelling, TextError> {
    let parts = match decoder["type"].as_str() {
        Some("Sequence") => decoder["decoders"]
            .as_array()
            .map_or(&[][..], Vec::as_slice),
        _ => std::slice::from_ref(decoder),
    };
    let part = |name: &str| parts.iter().find(|part| part["type"] == name);
    if part("ByteLevel").is_some() {
        return Ok(Spelling::ByteLevel);
    }
    if part("WordPiece").is_some_and(|part| part["prefix"] == "##") {
        return Ok(Spelling::WordPiece);
    }
    if let Some(metaspace) = part("Metaspace") {
        let strips_first_space = metaspace["prepend_scheme"] != "never";
        return Ok(Spelling::SentencePiece { strips_first_space });
    }
    if part("ByteFallback").is_some() || part("Replace").is_some() {
        let strips_first_space = part("Strip").is_some_and(|strip| strip["start"] != 0);
        return Ok(Spelling::SentencePiece { strips_first_space });
    }
    let found = decoder["type"].as_str().unwrap_or("none").to_owned();
    Err(TextError::Unsupported {
        what: "the tokenizer's decoder".to_owned(),
        found,
        known: "ByteLevel, Metaspace, WordPiece, and sequences with Replace and ByteFallback"
            .to_owned(),
    })
}

fn bytes_of(token: &str, spelling: Spelling, table: &[Option<u8>; 512]) -> Vec<u8> {
    match spelling {
        Spelling::ByteLevel => {
            let byte = |letter: char| table.get(letter as usize).copied().flatten();
            let bytes: Option<Vec<u8>> = token.chars().map(byte).collect();
            bytes.unwrap_or_else(|| token.as_bytes().to_vec())
        }
        Spelling::SentencePiece { .. } => match fallback_byte(token) {
            Some(byte) => vec![byte],
            None => token.replace('▁', " ").into_bytes(),
        },
        Spelling::WordPiece => match token.strip_prefix("##") {
            Some(rest) => rest.as_bytes().to_vec(),
            None => format!(" {token}").into_bytes(),
        },
    }
}

fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// GPT-2's table the other way round: bytes that print as themselves do so, the others are the characters from
/// U+0100 on, in order.
fn byte_table() -> [Option<u8>; 512] {
    let mut table = [None; 512];
    let mut next = 256;
    for byte in 0..=255_u8 {
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            table[byte as usize] = Some(byte);
        } else {
            table[next] = Some(byte);
            next += 1;
        }
    }
    table
}

/// The character of each byte.
pub fn byte_characters() -> [char; 256] {
    let mut characters = ['\0'; 256];
    for (character, byte) in (0..).zip(byte_table()) {
        if let (Some(byte), Some(character)) = (byte, char::from_u32(character)) {
            characters[usize::from(byte)] = character;
        }
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_that_do_not_fit_the_vocabulary_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let text =
            r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}}"#;
        std::fs::write(&path, text).unwrap();

        let refused = Tokenizer::open(&path).map(drop).unwrap_err().to_string();

        assert!(refused.contains("tokenizer.json is invalid"), "{refused}");
        assert!(refused.contains("inconsistent vocabulary"), "{refused}");
    }

    #[test]
    fn a_device_is_no_tokenizer() {
        let refused = Tokenizer::open(Path::new("/dev/zero")).map(drop);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("not a regular file"), "{refused}");
    }
}
