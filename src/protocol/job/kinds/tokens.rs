//! The tokens of a text, or the text of tokens: the tokenizer's work alone.

use serde::{Deserialize, Serialize};

use super::{JobRequest, KindFacts, OutputForm, TextInput};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "tokens",
    word: "text",
    ability: "tokenization",
    job_type: "text",
    task: None,
    is_relayed: true,
    modality: None,
    route: None,
    limits: &[],
    rate: None,
};

#[derive(Debug, Clone, PartialEq)]
pub enum TokensRequest {
    Tokenize(TokenizeInput),
    Detokenize(DetokenizeInput),
    /// None: the model is loaded, or unloaded, as the job's [`KeepAlive`](crate::job::KeepAlive) says.
    Load,
}

/// The tokens of a text, or of a chat as the model's template renders it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenizeInput {
    pub input: TextInput,
    /// Let the tokenizer add its own tokens (BOS and the like). Without: yes for a text; for a chat no, because templates
    /// write these tokens themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_special_tokens: Option<bool>,
    /// Return the text of each token, too.
    #[serde(default)]
    pub with_strings: bool,
}

/// The text of tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DetokenizeInput {
    pub tokens: Vec<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenList {
    pub ids: Vec<u32>,
    /// The tokens' texts, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strings: Option<Vec<String>>,
    /// The model's context on the worker that answers.
    #[serde(default)]
    pub context: u32,
}

impl JobRequest for TokensRequest {
    fn output(&self) -> OutputForm {
        OutputForm::Values
    }

    fn size(&self) -> u64 {
        1
    }

    fn read_bytes(&self) -> usize {
        match self {
            Self::Tokenize(text) => bytes_of(&text.input),
            Self::Detokenize(tokens) => 4 * tokens.tokens.len(),
            Self::Load => 0,
        }
    }

    fn is_computed(&self) -> bool {
        false
    }
}

/// A token counts as four.
pub(super) fn bytes_of(input: &TextInput) -> usize {
    match input {
        TextInput::Prompt(text) => text.len(),
        TextInput::Tokens(tokens) => 4 * tokens.len(),
        TextInput::Chat(chat) => {
            let values = chat.messages.iter().chain(&chat.tools);
            values.map(|value| value.to_string().len()).sum()
        }
    }
}
