//! CLIP's tokenizer: lower-case words as byte-level BPE, with an end-of-word mark on the last token.

use std::collections::HashMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use super::tokenizer::read;
use super::{TextError, read_bounded};

const BEGIN: &str = "<|startoftext|>";
const END: &str = "<|endoftext|>";
const WORD_END: &str = "</w>";
/// OpenCLIP's padding token, which is token 0.
const OPEN_CLIP_PAD: &str = "!";
/// The pairs of CLIP's vocabulary, in their order, a line each; from OpenCLIP (MIT licence), packed by
/// `tests/fixtures/make/clip_merges.py`.
const MERGES: &[u8] = include_bytes!("clip-merges.zz");
const MOST_MERGES_BYTES: usize = 1 << 20;
/// How a text is cut into pieces; spaces fall away.
const PIECES: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";

/// The tokenizer of one text encoder. Names of special tokens in a text are plain text to it.
#[derive(Debug)]
pub struct ClipTokenizer {
    inner: tokenizers::Tokenizer,
    pub begin: u32,
    pub end: u32,
    /// Padding of a window after its end.
    pub pad: u32,
}

impl ClipTokenizer {
    /// Reads `vocab.json` and `merges.txt` of a folder, or its `tokenizer.json`.
    pub fn open(folder: &Path) -> Result<Self, TextError> {
        let (vocabulary, merges) = match folder.join("vocab.json").exists() {
            true => (
                read_json(&folder.join("vocab.json"))?,
                read_merges(&folder.join("merges.txt"))?,
            ),
            false => vocabulary_of(&folder.join("tokenizer.json"))?,
        };
        check_sizes(&vocabulary, &merges).map_err(|error| error.in_file(folder))?;
        let tokenizer = Self::new(&vocabulary, &merges, pad_token(folder)?.as_deref());
        tokenizer.map_err(|error| error.in_file(folder))
    }

    /// The vocabulary of CLIP and OpenCLIP, which differ in the token that fills windows.
    pub fn built_in(is_open_clip: bool) -> Result<Self, TextError> {
        let merges = built_in_merges()?;
        let vocabulary = built_in_vocabulary(&merges);
        let merges: Vec<MergedPair> = merges.lines().map(MergedPair::spelled).collect();
        let pad = is_open_clip.then_some(OPEN_CLIP_PAD);
        Self::new(&vocabulary, &merges, pad)
    }

    fn new(
        vocabulary: &TokenIds,
        merges: &[MergedPair],
        pad: Option<&str>,
    ) -> Result<Self, TextError> {
        let parts = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                {"type": "Lowercase"},
            ]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Removed", "invert": true},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            ]},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {
                "type": "BPE",
                "dropout": null,
                "unk_token": END,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": WORD_END,
                "fuse_unk": false,
                "byte_fallback": false,
                "vocab": vocabulary,
                "merges": merges,
            },
        });
        let inner = read(parts.to_string().as_bytes());
        let inner = inner.map_err(|reason| TextError::broken("the tokenizer", reason))?;
        let id = |token: &str| {
            let id = inner.token_to_id(token);
            id.ok_or_else(|| {
                let reason = format!("the vocabulary has no {token:?}");
                TextError::broken("the tokenizer", reason)
            })
        };
        Ok(Self {
            begin: id(BEGIN)?,
            end: id(END)?,
            pad: id(pad.unwrap_or(END))?,
            inner,
        })
    }

    /// The tokens of a text, without begin and end.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|error| TextError::broken("the tokenizer", error))?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// Twice the largest file of a tokenizer of CLIP.
const MOST_BYTES: u64 = 4 << 20;
/// Twice CLIP's.
const MOST_TOKENS: usize = 100_000;
/// Twice CLIP's longest.
const MOST_TOKEN_BYTES: usize = 256;

type TokenIds = HashMap<String, u32>;

/// Two tokens that are merged, as older and newer files write them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum MergedPair {
    Spelled(String),
    Pair(String, String),
}

/// The fields of a `tokenizer.json` that count.
#[derive(Deserialize)]
struct TokenizerJson {
    model: ModelJson,
}

#[derive(Deserialize)]
struct ModelJson {
    end_of_word_suffix: Option<String>,
    vocab: TokenIds,
    merges: Vec<MergedPair>,
}

impl MergedPair {
    fn spelled(line: &str) -> Self {
        Self::Spelled(line.to_owned())
    }
}

fn built_in_merges() -> Result<String, TextError> {
    let broken = |reason: String| TextError::Broken {
        what: "the vocabulary of CLIP in this program".to_owned(),
        reason,
    };
    let bytes = decompress_to_vec_zlib_with_limit(MERGES, MOST_MERGES_BYTES);
    let bytes = bytes.map_err(|error| broken(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| broken(error.to_string()))
}

/// All bytes as letters, the same at the end of a word, the merged pairs, and the two special tokens.
fn built_in_vocabulary(merges: &str) -> TokenIds {
    let letters = byte_letters();
    let ends = letters.iter().map(|letter| format!("{letter}{WORD_END}"));
    let merged = merges.lines().map(|pair| pair.replace(' ', ""));
    let tokens = letters.iter().map(char::to_string).chain(ends);
    let tokens = tokens.chain(merged).chain([BEGIN, END].map(str::to_owned));
    tokens.zip(0..).collect()
}

/// GPT-2's byte-to-character map: printable characters represent themselves and come first.
fn byte_letters() -> Vec<char> {
    let seen = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..=u8::MAX).filter(|byte| !seen(byte));
    let others = (256_u32..)
        .zip(others)
        .filter_map(|(letter, _)| char::from_u32(letter));
    let own = (0..=u8::MAX).filter(seen).map(char::from);
    own.chain(others).collect()
}

/// CLIP's tokenizer consists only of these two, so their sizes limit its memory and time.
fn check_sizes(vocabulary: &TokenIds, merges: &[MergedPair]) -> Result<(), TextError> {
    let found = vocabulary.len().max(merges.len());
    if found > MOST_TOKENS {
        let reason = format!("found {found} tokens or merges, expected at most {MOST_TOKENS}");
        return Err(TextError::broken("the tokenizer", reason));
    }
    let longest = vocabulary.keys().map(String::len).max().unwrap_or(0);
    match longest > MOST_TOKEN_BYTES {
        true => Err(TextError::broken(
            "the tokenizer",
            format!("found a token of {longest} bytes, expected at most {MOST_TOKEN_BYTES}"),
        )),
        false => Ok(()),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, TextError> {
    let bytes = read_bounded(path, MOST_BYTES);
    let bytes = bytes.map_err(|error| TextError::unreadable(path, &error))?;
    serde_json::from_slice(&bytes).map_err(|error| TextError::broken(path.display(), error))
}

/// One pair per line, after a comment line.
fn read_merges(path: &Path) -> Result<Vec<MergedPair>, TextError> {
    let bytes = read_bounded(path, MOST_BYTES);
    let bytes = bytes.map_err(|error| TextError::unreadable(path, &error))?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| TextError::broken(path.display(), error))?;
    let lines = text.lines().filter(|line| !line.starts_with("#version"));
    let merges = lines.filter(|line| !line.trim().is_empty());
    Ok(merges
        .map(|line| MergedPair::spelled(line.trim_end()))
        .collect())
}

/// Vocabulary and merges of a `tokenizer.json`; its other parts are CLIP's or refused.
fn vocabulary_of(path: &Path) -> Result<(TokenIds, Vec<MergedPair>), TextError> {
    let TokenizerJson { model } = read_json(path)?;
    let suffix = model.end_of_word_suffix.as_deref().unwrap_or("none");
    if suffix != WORD_END {
        return Err(TextError::Unsupported {
            what: format!("{}: end_of_word_suffix", path.display()),
            found: suffix.to_owned(),
            known: WORD_END.to_owned(),
        });
    }
    Ok((model.vocab, model.merges))
}

/// The token that fills windows, where a file names one.
fn pad_token(folder: &Path) -> Result<Option<String>, TextError> {
    for file in ["tokenizer_config.json", "special_tokens_map.json"] {
        let path = folder.join(file);
        if !path.exists() {
            continue;
        }
        let json: Value = read_json(&path)?;
        let pad = &json["pad_token"];
        let pad = pad.as_str().or_else(|| pad["content"].as_str());
        if let Some(pad) = pad {
            return Ok(Some(pad.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(path: &str) -> std::path::PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        root.join(path)
    }

    #[test]
    fn merges_larger_than_clips_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("merges.txt");
        std::fs::write(&path, "a b\n".repeat(10 << 20)).unwrap();
        let refused = read_merges(&path).unwrap_err().to_string();
        assert!(refused.contains("merges.txt"), "{refused}");
        assert!(refused.contains("larger than 4194304 bytes"), "{refused}");
    }

    /// See `tests/fixtures/make/drawing.py`.
    #[test]
    fn tokens_agree_with_the_reference() {
        let tokenizer = ClipTokenizer::open(&fixture("tiny-image/tokenizer")).unwrap();
        let golden = std::fs::read(fixture("golden/clip-tokens.json")).unwrap();
        let golden: Vec<(String, Vec<u32>)> = serde_json::from_slice(&golden).unwrap();
        assert!(golden.len() > 10);
        for (text, tokens) in golden {
            assert_eq!(tokenizer.encode(&text).unwrap(), tokens, "{text:?}");
        }
    }

    #[test]
    fn the_vocabulary_that_is_built_in_is_clips() {
        let first = ClipTokenizer::built_in(false).unwrap();
        assert_eq!((first.begin, first.end, first.pad), (49406, 49407, 49407));
        // The published tokens of "a photo of a cat".
        let tokens = first.encode("a photo of a cat").unwrap();
        assert_eq!(tokens, [320, 1125, 539, 320, 2368]);
        let second = ClipTokenizer::built_in(true).unwrap();
        assert_eq!(second.pad, 0);
        assert_eq!(second.encode("!").unwrap(), [256]);
    }

    #[test]
    fn windows_are_filled_with_the_token_that_the_files_name() {
        let open = |path| ClipTokenizer::open(&fixture(path)).unwrap();
        let first = open("tiny-image-xl/tokenizer");
        assert_eq!(first.pad, first.end);
        let second = open("tiny-image-xl/tokenizer_2");
        assert_eq!(second.pad, second.inner.token_to_id("!").unwrap());
    }

    #[test]
    fn a_tokenizer_of_another_kind_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || {
            let refused = ClipTokenizer::open(folder.path());
            refused.unwrap_err().to_string()
        };
        assert!(refused().contains("tokenizer.json was not found"));
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, r#"{"model": {"vocab": {}, "merges": []}}"#).unwrap();
        assert!(refused().contains("end_of_word_suffix: found none; supported: </w>"));
        std::fs::write(folder.path().join("vocab.json"), r#"{"a": 0}"#).unwrap();
        std::fs::write(folder.path().join("merges.txt"), "#version: 0.2\na b\n").unwrap();
        assert!(
            refused().contains("the tokenizer is invalid"),
            "{}",
            refused()
        );
    }
}
