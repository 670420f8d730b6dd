//! Log probabilities in the shape of completions: a list for each fact instead of an object for each token.

use serde_json::{Map, Value, json};

use crate::job::TokenLogprob;
use crate::openai::chat::shown;

/// The log probabilities of one choice, with the characters before each token.
#[derive(Debug, Default)]
pub struct Logprobs {
    tokens: Vec<Value>,
    values: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<Value>,
    /// Characters of all tokens so far.
    characters: usize,
}

impl Logprobs {
    pub fn push(&mut self, token: &TokenLogprob) {
        let text = shown(&token.bytes);
        self.offsets.push(self.characters.into());
        self.characters += text.chars().count();
        self.tokens.push(text.into());
        self.values.push(rounded(token.logprob));
        let top: Map<String, Value> = token
            .top
            .iter()
            .map(|(bytes, logprob)| (shown(bytes).into_owned(), rounded(*logprob)))
            .collect();
        self.top.push(Value::Object(top));
    }

    /// What came since this was last asked.
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

/// As the chat API tells them.
fn rounded(logprob: f32) -> Value {
    const LEAST: f64 = -9999.0;
    let logprob = match logprob.is_nan() {
        true => LEAST,
        false => f64::from(logprob).clamp(LEAST, 0.0),
    };
    ((logprob * 1e6).round() / 1e6).into()
}
