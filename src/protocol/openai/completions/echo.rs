//! The prompt before the text of a choice, and where each of its tokens stands in it.

use crate::job::PromptLogprobs;

use super::logprobs::{Characters, Logprobs};

/// A choice's echo of its prompt, and its progress.
#[derive(Debug, Clone, Default)]
pub struct Echo {
    source: EchoSource,
    /// Tokens of the prompt that came.
    known: u32,
}

/// Source of a prompt's text.
#[derive(Debug, Clone, Default)]
pub enum EchoSource {
    /// The prompt is not repeated.
    #[default]
    Nothing,
    /// The client sent it.
    Text(String),
    /// The worker's tokens tell it.
    Tokens,
}

/// How far a token's text may be from where the one before it ended: a token that is no text stands between.
const MOST_GAP: usize = 64;

impl From<EchoSource> for Echo {
    fn from(source: EchoSource) -> Self {
        Self { source, known: 0 }
    }
}

impl Echo {
    /// The text that needs no worker.
    pub fn text(&self) -> &str {
        match &self.source {
            EchoSource::Text(text) => text,
            EchoSource::Nothing | EchoSource::Tokens => "",
        }
    }

    /// Log probabilities for the text after the echo.
    pub fn logprobs(&self) -> Logprobs {
        match &self.source {
            EchoSource::Text(text) => Logprobs::in_text(text.clone()),
            EchoSource::Nothing | EchoSource::Tokens => Logprobs::default(),
        }
    }

    /// Takes tokens of the prompt that have not come before. Returns the text they add.
    pub fn take(
        &mut self,
        prompt: &PromptLogprobs,
        logprobs: &mut Logprobs,
        characters: &mut Characters,
    ) -> String {
        let mut text = String::new();
        for token in prompt.after(self.known) {
            self.known += 1;
            logprobs.push_prompt(token);
            if let EchoSource::Tokens = self.source {
                characters.push(&token.bytes, Some(&mut text));
            }
        }
        text
    }
}

/// The position of a token in a text, from byte `from` on: its first byte and the one after its last.
pub fn find(text: &str, from: usize, token: &[u8]) -> (usize, usize) {
    let rest = text.as_bytes().get(from..).unwrap_or_default();
    if token.is_empty() {
        return (from, from);
    }
    let stands_at =
        |token: &[u8], at: usize| rest.get(at..).is_some_and(|rest| rest.starts_with(token));
    // Some vocabularies encode a first word with a space that the text has not.
    let bare = token.strip_prefix(b" ").filter(|_| from == 0);
    let found = |token: &[u8]| (0..=MOST_GAP).find(|&at| stands_at(token, at));
    match (stands_at(token, 0), bare) {
        (true, _) => (from, from + token.len()),
        (false, Some(bare)) if stands_at(bare, 0) => (from, from + bare.len()),
        _ => match found(token) {
            Some(at) => (from + at, from + at + token.len()),
            // The tokenizer has changed the text.
            None => (from, from),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn tokens_are_found_in_the_text_that_they_were_made_of() {
        assert_eq!(find("Once", 0, b"On"), (0, 2));
        assert_eq!(find("Once", 0, b" On"), (0, 2));
        assert_eq!(find("Once", 0, b""), (0, 0));
        assert_eq!(find("<|end|>hi", 0, b"hi"), (7, 9));
        assert_eq!(find("caf\u{e9}", 3, b"e\xcc\x81"), (3, 3));
        assert_eq!(find("h\u{e9}", 1, b"\xc3"), (1, 2));
        assert_eq!(find("h\u{e9}", 2, b"\xa9"), (2, 3));
        assert_eq!(find("h", 9, b"h"), (9, 9));
    }
}
