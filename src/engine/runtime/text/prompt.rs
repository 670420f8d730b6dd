//! The tokenizer of a text encoder that reads prompts: tokens with the end that the model's file puts behind them.

use std::path::Path;

use tokenizers::TruncationParams;

use super::tokenizer::{MAX_FILE_BYTES, read};
use super::{TextError, UnigramVocabulary, read_bounded};

#[derive(Debug, Clone)]
pub struct PromptTokenizer(tokenizers::Tokenizer);

const FILE: &str = "tokenizer.json";

impl PromptTokenizer {
    /// From a vocabulary that a file holds beside the weights of a text encoder.
    pub fn of_unigram(vocabulary: &UnigramVocabulary, most: usize) -> Result<Self, TextError> {
        Self::new(vocabulary.tokenizer()?, most)
    }

    /// From the `tokenizer.json` of a folder. Prompts are cut to so many tokens, the end included.
    pub fn open(folder: &Path, most: usize) -> Result<Self, TextError> {
        let path = folder.join(FILE);
        let bytes = read_bounded(&path, MAX_FILE_BYTES);
        let bytes = bytes.map_err(|error| TextError::unreadable(&path, &error))?;
        let inner = read(&bytes).map_err(|reason| TextError::broken(path.display(), reason))?;
        Self::new(inner, most).map_err(|error| error.in_file(&path))
    }

    fn new(mut inner: tokenizers::Tokenizer, most: usize) -> Result<Self, TextError> {
        inner.with_padding(None);
        let truncation = inner.with_truncation(Some(TruncationParams {
            max_length: most,
            ..TruncationParams::default()
        }));
        truncation.map_err(|error| TextError::broken("the tokenizer", error))?;
        Ok(Self(inner))
    }

    /// The tokens of a prompt whose runs of white space count as one space. None where there are none at all.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>, TextError> {
        let words: Vec<&str> = prompt.split_whitespace().collect();
        self.encode_exactly(&words.join(" "))
    }

    /// The tokens of a text as it is.
    pub fn encode_exactly(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding = self.0.encode_fast(text, true);
        let encoding = encoding.map_err(|error| TextError::broken("the tokenizer", error))?;
        Ok(encoding.get_ids().to_vec())
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
        let tokenizer = PromptTokenizer::open(Path::new(folder), 6).unwrap();
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
