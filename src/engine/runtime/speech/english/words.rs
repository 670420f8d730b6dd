//! The dictionary: American pronunciations of 180,000 words, from misaki (Apache-2.0), made by
//! `tests/fixtures/make/words.py`.

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use crate::networks::weights::Flaw;

const WORDS: &[u8] = include_bytes!("words.zz");
/// Limit of the decompressed size.
const MOST_BYTES: usize = 16 << 20;

/// Words in the order of their bytes.
pub struct Dictionary {
    text: String,
    /// Offsets of the lines.
    lines: Vec<u32>,
}

/// The pronunciations of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DictionaryEntry<'a> {
    pub usual: &'a str,
    /// By part of speech, such as `VERB=...`.
    others: &'a str,
}

impl Dictionary {
    pub fn open() -> Result<Self, Flaw> {
        let broken = |found: String| Flaw::broken("the dictionary", found, "words in order");
        let bytes = decompress_to_vec_zlib_with_limit(WORDS, MOST_BYTES);
        let bytes = bytes.map_err(|error| broken(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| broken(error.to_string()))?;
        let breaks = text.match_indices('\n').map(|(at, _)| at as u32 + 1);
        let lines = [0].into_iter().chain(breaks).collect();
        Ok(Self { text, lines })
    }

    pub fn find(&self, word: &str) -> Option<DictionaryEntry<'_>> {
        let line = |start: u32| -> &str {
            let rest = self.text.get(start as usize..).unwrap_or_default();
            rest.split_once('\n').map_or(rest, |(line, _)| line)
        };
        let key = |start: &u32| line(*start).split('\t').next().unwrap_or_default();
        let at = self.lines.binary_search_by(|start| key(start).cmp(word));
        let start = *self.lines.get(at.ok()?)?;
        let (_, rest) = line(start).split_once('\t')?;
        let (usual, others) = rest.split_once('\t').unwrap_or((rest, ""));
        Some(DictionaryEntry { usual, others })
    }
}

impl<'a> DictionaryEntry<'a> {
    /// The pronunciation as this kind of word. Empty where the word is spelled.
    pub fn of_kind(&self, kind: &str) -> Option<&'a str> {
        let mut others = self
            .others
            .split('\t')
            .filter_map(|one| one.split_once('='));
        others
            .find(|(name, _)| *name == kind)
            .map(|(_, phonemes)| phonemes)
    }
}
