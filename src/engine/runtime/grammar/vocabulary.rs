//! A model's tokens as llguidance walks them: a tree of their bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::runtime::text::{Language, Reader};

/// Longer tokens are runs of white space or dashes, which the token tree does not support.
const LONGEST_TOKEN: usize = 512;
/// Texts that a tokenizer must give back as they are before its tokens are forced on a sequence.
const PROBES: [&str; 3] = ["name", "\": \"", ", \"first_name\": 1"];

pub struct TokenTree {
    trie: TokTrie,
    language: Arc<Language>,
    is_canonical: bool,
}

impl TokenTree {
    /// `None` for a vocabulary that has no place in such a tree.
    pub fn new(language: Arc<Language>, vocabulary: usize) -> Option<Self> {
        let trie = catch_unwind(AssertUnwindSafe(|| trie(&language, vocabulary))).ok()?;
        let mut tree = Self {
            trie,
            language,
            is_canonical: false,
        };
        tree.is_canonical = PROBES.iter().all(|probe| tree.encode(probe).is_some());
        Some(tree)
    }

    /// The text's tokens, if they spell the text exactly, which they do not if the tokenizer prepends a space. A
    /// tokenizer in another process is not used, since the inference thread would wait for it.
    fn encode(&self, text: &str) -> Option<Vec<TokenId>> {
        let Reader::Local { tokenizer, .. } = &self.language.reader else {
            return None;
        };
        let tokens = tokenizer.encode(text, false).ok()?;
        let pieces = self.language.pieces();
        let spelled = tokens.iter().flat_map(|&id| pieces.bytes(id));
        spelled.eq(text.as_bytes()).then_some(tokens)
    }
}

/// Control tokens have no bytes, so that no grammar allows them. Ends are allowed where a grammar accepts, and nowhere
/// else.
fn trie(language: &Language, vocabulary: usize) -> TokTrie {
    let ids = 0..u32::try_from(vocabulary).unwrap_or(u32::MAX);
    let word = |id: u32| {
        let bytes = language.pieces().bytes(id);
        let is_word = bytes.len() <= LONGEST_TOKEN && !language.ends.contains(&id);
        if is_word { bytes.to_vec() } else { Vec::new() }
    };
    let words: Vec<Vec<u8>> = ids.clone().map(word).collect();
    let ends = language.ends.iter().copied();
    let ends: Vec<TokenId> = ends.filter(|id| ids.contains(id)).collect();
    let info = TokRxInfo::new(ids.end, ends.first().copied().unwrap_or(INVALID_TOKEN));
    let trie = TokTrie::from(&info, &words);
    match ends.is_empty() {
        true => trie,
        false => trie.with_eos_tokens(&ends),
    }
}

impl TokenizerEnv for TokenTree {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let text = std::str::from_utf8(bytes).ok();
        let tokens = text.filter(|_| self.is_canonical);
        let tokens = tokens.and_then(|text| self.encode(text));
        tokens.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.is_canonical
    }
}
