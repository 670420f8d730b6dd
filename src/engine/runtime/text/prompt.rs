//! The tokenizer of a text encoder: tokens of prompts, followed by the end token of the model's file.

use std::path::Path;

use super::{Isolation, Language, TextError, TextSource, UnigramVocabulary};
use crate::runtime::Failure;

/// Untrusted files are parsed in a text process.
pub struct PromptTokenizer {
    language: Language,
    /// The tokens around a text.
    special: Vec<u32>,
    most: usize,
}

const FILE: &str = "tokenizer.json";

impl PromptTokenizer {
    /// Builds the tokenizer from a vocabulary in the file of a text encoder.
    pub fn of_unigram(
        vocabulary: &UnigramVocabulary,
        most: usize,
        isolation: Option<&Isolation>,
    ) -> Result<Self, TextError> {
        let source = TextSource {
            unigram: Some(vocabulary),
            is_read_only: true,
            isolation,
            ..TextSource::default()
        };
        Self::new(source, most)
    }

    /// Opens the `tokenizer.json` of a folder. Prompts are truncated to this many tokens, including the end.
    pub fn open(
        folder: &Path,
        most: usize,
        isolation: Option<&Isolation>,
    ) -> Result<Self, TextError> {
        let path = folder.join(FILE);
        let source = TextSource {
            tokenizer: Some(&path),
            is_read_only: true,
            isolation,
            ..TextSource::default()
        };
        Self::new(source, most)
    }

    fn new(source: TextSource<'_>, most: usize) -> Result<Self, TextError> {
        let language = Language::open(source)?;
        let special = language.encode("", true);
        let special = special.map_err(|error| TextError::broken("the tokenizer", error))?;
        Ok(Self {
            language,
            special,
            most,
        })
    }

    /// The tokens of a prompt, with runs of white space collapsed to one space. `None` without tokens.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>, Failure> {
        let words: Vec<&str> = prompt.split_whitespace().collect();
        self.encode_exactly(&words.join(" "))
    }

    /// The tokens of a text as it is.
    pub fn encode_exactly(&self, text: &str) -> Result<Vec<u32>, Failure> {
        let mut tokens = self.language.encode(text, true)?;
        if tokens.len() > self.most {
            let end = match tokens.ends_with(&self.special) {
                true => self.special.as_slice(),
                false => &[],
            };
            tokens.truncate(self.most.saturating_sub(end.len()));
            tokens.extend(end);
        }
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_cut_before_their_end() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/tiny-video/tokenizer"
        );
        let tokenizer = PromptTokenizer::open(Path::new(folder), 6, None).unwrap();
        let whole = tokenizer.encode(" a \n red").unwrap();
        assert_eq!(whole, tokenizer.encode("a red").unwrap());
        let cut = tokenizer.encode(&"a red circle ".repeat(20)).unwrap();
        assert_eq!(cut.len(), 6);
        assert_eq!(cut.last(), whole.last());
        assert_eq!(tokenizer.encode("").unwrap().len(), 1);
        let exactly = tokenizer.encode_exactly(" a \n red").unwrap();
        assert_ne!(exactly, whole);
    }
}
