//! Matches pieces of content to their tokens: clients get log probabilities of the content only, without marks,
//! thoughts, calls and end tokens.
//!
//! The parser is independent of tokens. So the text of the tokens is kept, and each piece of the parser's output is
//! searched in it.

use std::collections::VecDeque;

use muster_engine::runtime::text::{Begins, CHANNEL_MARKS, Detokenizer, Pieces, SPELLED_OUT};
use muster_protocol::job::TokenLogprob;

pub struct Logprobs {
    detokenizer: Detokenizer,
    /// The text of tokens that is not part of any piece yet.
    text: String,
    /// Length of the text before it.
    passed: usize,
    tokens: VecDeque<Token>,
}

struct Token {
    start: usize,
    /// `None` while a character is incomplete.
    end: Option<usize>,
    /// `None` for tokens whose log probability was already sent.
    logprob: Option<TokenLogprob>,
}

impl Logprobs {
    pub fn new(pieces: &Pieces, begins: Begins) -> Self {
        Self {
            detokenizer: Detokenizer::new(pieces, begins),
            text: String::new(),
            passed: 0,
            tokens: VecDeque::new(),
        }
    }

    pub fn push(&mut self, pieces: &Pieces, id: u32, logprob: Option<TokenLogprob>) {
        let before = self.text.len();
        self.detokenizer.push(pieces, id, &mut self.text);
        let first = self.text[before..].chars().next();
        let start = self.passed + before;
        if let Some(first) = first {
            let end = start + first.len_utf8();
            for token in self.tokens.iter_mut().rev() {
                match token.end {
                    None => token.end = Some(end),
                    Some(_) => break,
                }
            }
        }
        let is_text = first.is_some() || self.detokenizer.is_mid_character();
        if is_text && !pieces.bytes(id).is_empty() {
            self.tokens.push_back(Token {
                start,
                end: first.map(|_| self.passed + self.text.len()),
                logprob,
            });
        }
    }

    /// The tokens of the next piece, which follows the previous ones in the text.
    pub fn take(&mut self, piece: &str) -> Vec<TokenLogprob> {
        let Some(at) = self.find(piece).filter(|_| !piece.is_empty()) else {
            return Vec::new();
        };
        let (start, end) = (self.passed + at, self.passed + at + piece.len());
        let mut found = Vec::new();
        while let Some(token) = self.tokens.front()
            && token.start < end
        {
            let is_inside = token.end.is_none_or(|end| end > start);
            let token = self.tokens.pop_front();
            if is_inside {
                found.extend(token.and_then(|token| token.logprob));
            }
        }
        self.text.drain(..at + piece.len());
        self.passed = end;
        found
    }

    /// Marks are passed over, so that a short piece is not found inside one.
    fn find(&self, piece: &str) -> Option<usize> {
        let mut from = 0;
        while !self.text[from..].starts_with(piece) {
            let blank = self.text[from..].len() - self.text[from..].trim_start().len();
            let rest = &self.text[from + blank..];
            let mut marks = SPELLED_OUT.iter().chain(&CHANNEL_MARKS);
            let Some(mark) = marks.find(|mark| rest.starts_with(**mark)) else {
                break;
            };
            from += blank + mark.len();
        }
        Some(from + self.text[from..].find(piece)?)
    }
}

#[cfg(test)]
mod tests {
    use super::Logprobs;
    use muster_engine::runtime::text::{Begins, Pieces};
    use muster_protocol::job::TokenLogprob;

    fn logprobs(tokens: &[&[u8]]) -> Logprobs {
        let mut pieces = Pieces::new(false);
        tokens.iter().for_each(|bytes| pieces.push(bytes));
        let mut logprobs = Logprobs::new(&pieces, Begins::Fresh);
        for (id, bytes) in (0..).zip(tokens) {
            let logprob = TokenLogprob {
                bytes: bytes.to_vec(),
                logprob: -1.0,
                top: Vec::new(),
            };
            logprobs.push(&pieces, id, Some(logprob));
        }
        logprobs
    }

    fn check(tokens: &[&[u8]], pieces: &[(&str, &[&[u8]])]) {
        let mut logprobs = logprobs(tokens);
        for (piece, expected) in pieces {
            let found: Vec<_> = logprobs
                .take(piece)
                .into_iter()
                .map(|one| one.bytes)
                .collect();
            assert_eq!(found, *expected, "{piece:?} of {tokens:?}");
        }
    }

    #[test]
    fn marks_and_ends_are_not_listed() {
        let tokens: &[&[u8]] = &[
            b"<think>",
            b"\n",
            b"t",
            b"</think>",
            b"\n\n",
            b"t",
            b"wo",
            b"",
            b"END",
        ];
        check(tokens, &[("t", &[b"t"]), ("t", &[b"t"]), ("wo", &[b"wo"])]);
    }

    #[test]
    fn each_part_of_a_character_is_listed_once() {
        let tokens: &[&[u8]] = &[b"a", b"\xf0\x9f", b"\x98", b"\x80", b"!"];
        let parts: &[&[u8]] = &[b"\xf0\x9f", b"\x98", b"\x80"];
        check(tokens, &[("a", &[b"a"]), ("😀", parts), ("!", &[b"!"])]);
    }

    #[test]
    fn a_token_across_two_pieces_goes_with_the_first() {
        check(&[b"ab", b"cd"], &[("a", &[b"ab"]), ("bcd", &[b"cd"])]);
    }

    #[test]
    fn a_piece_that_no_token_wrote_lists_nothing() {
        check(&[b"ab"], &[("x", &[]), ("", &[]), ("ab", &[b"ab"])]);
    }
}
