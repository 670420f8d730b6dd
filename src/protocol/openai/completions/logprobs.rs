//! Log probabilities in the shape of completions: a list for each fact instead of an object for each token.

use serde_json::{Map, Value, json};

use crate::job::{PromptToken, TokenLogprob};
use crate::openai::chat::shown;

use super::echo::find;

/// The log probabilities of one choice, with the characters before each token.
#[derive(Debug, Default)]
pub struct Logprobs {
    tokens: Vec<Value>,
    values: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<Value>,
    /// The prompt that a client sent as text, and how many of its bytes and characters have tokens.
    text: String,
    at: usize,
    before: usize,
    /// Of all tokens so far beyond the known text.
    characters: Characters,
}

/// Characters that bytes make, of which the last may have begun.
#[derive(Debug, Default)]
pub struct Characters {
    count: usize,
    half: Vec<u8>,
}

impl Characters {
    pub fn push(&mut self, bytes: &[u8], mut out: Option<&mut String>) {
        let joined = [std::mem::take(&mut self.half), bytes.to_vec()].concat();
        let mut chunks = joined.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.count += chunk.valid().chars().count();
            if let Some(out) = out.as_deref_mut() {
                out.push_str(chunk.valid());
            }
            let invalid = chunk.invalid();
            let is_begun =
                std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if is_begun && chunks.peek().is_none() {
                self.half = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.lose(out.as_deref_mut());
            }
        }
    }

    /// The beginning of a character whose rest does not come.
    pub fn finish(&mut self) -> &'static str {
        match std::mem::take(&mut self.half).is_empty() {
            true => "",
            false => {
                self.count += 1;
                "\u{fffd}"
            }
        }
    }

    fn lose(&mut self, out: Option<&mut String>) {
        self.count += 1;
        if let Some(out) = out {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// The position of a token with these bytes.
    fn place(&self, bytes: &[u8]) -> usize {
        let goes_on = bytes.first().is_some_and(|byte| byte & 0xc0 == 0x80);
        self.count + usize::from(!self.half.is_empty() && !goes_on && !bytes.is_empty())
    }
}

impl Logprobs {
    /// Log probabilities of a choice that begins with this prompt.
    pub fn in_text(text: String) -> Self {
        let count = text.chars().count();
        Self {
            text,
            characters: Characters {
                count,
                half: Vec::new(),
            },
            ..Self::default()
        }
    }

    pub fn push(&mut self, token: &TokenLogprob) {
        let offset = self.characters.place(&token.bytes);
        self.characters.push(&token.bytes, None);
        self.add(&token.bytes, offset, Some(token.logprob), &token.top);
    }

    /// A token of the prompt.
    pub fn push_prompt(&mut self, token: &PromptToken) {
        let offset = match self.text.is_empty() {
            true => {
                let offset = self.characters.place(&token.bytes);
                self.characters.push(&token.bytes, None);
                offset
            }
            false => self.offset_in_text(&token.bytes),
        };
        self.add(&token.bytes, offset, token.logprob, &token.top);
    }

    fn offset_in_text(&mut self, bytes: &[u8]) -> usize {
        let (start, end) = find(&self.text, self.at, bytes);
        // The first byte of a character counts for it.
        let begun = |range: std::ops::Range<usize>| {
            let bytes = self.text.as_bytes().get(range).unwrap_or_default();
            bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
        };
        let before = self.before + begun(self.at..start);
        let is_inside = start < self.text.len() && !self.text.is_char_boundary(start);
        self.before = before + begun(start..end);
        self.at = end;
        before - usize::from(is_inside && before > 0)
    }

    fn add(&mut self, bytes: &[u8], offset: usize, logprob: Option<f32>, top: &[(Vec<u8>, f32)]) {
        let text = shown(bytes);
        let top = logprob.map(|logprob| {
            let mut entries = Map::new();
            // The best of several tokens that look alike, and the token itself in any case.
            let own = (bytes.to_vec(), logprob);
            for (bytes, logprob) in top.iter().chain([&own]) {
                let key = shown(bytes).into_owned();
                entries.entry(key).or_insert_with(|| rounded(*logprob));
            }
            Value::Object(entries)
        });
        self.offsets.push(offset.into());
        self.tokens.push(text.into());
        self.values.push(logprob.map_or(Value::Null, rounded));
        self.top.push(top.unwrap_or_default());
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Entries since the last call.
    pub fn take(&mut self) -> Value {
        let Self {
            tokens,
            values,
            top,
            offsets,
            ..
        } = self;
        let [tokens, values, top, offsets] = [tokens, values, top, offsets].map(std::mem::take);
        json!({"tokens": tokens, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets})
    }
}

/// Rounded as in the chat API.
fn rounded(logprob: f32) -> Value {
    const LEAST: f64 = -9999.0;
    let logprob = match logprob.is_nan() {
        true => LEAST,
        false => f64::from(logprob).clamp(LEAST, 0.0),
    };
    ((logprob * 1e6).round() / 1e6).into()
}
