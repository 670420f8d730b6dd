//! Incremental parser of a model's output: reasoning, content, tool calls.
//!
//! | file | content |
//! | --- | --- |
//! | `markup` | the marks of a model's chat template |
//! | `parser` | text to [`Piece`]s, one character at a time |
//! | `harmony` | the same for messages in channels, of gpt-oss |
//! | `call` | one call: a JSON object with a name and arguments |
//! | `separated` | calls of DeepSeek and Mistral: a name, a mark, a JSON object |
//! | `parameters` | calls of Qwen3.5 and GLM: tags around each argument |
//! | `pythonic` | calls of LFM2: a Python function call |
//! | `offered` | the tools of a request, and the types of their arguments |
//! | `gemma` | calls of Gemma 4: a name, and arguments with strings between marks |
//! | `scan` | the end and validity of a JSON value |
//!
//! The pieces depend only on the characters so far and not on their split into tokens, so that another worker can take
//! over at any token: it parses the same text without sending it, and continues. Text that only resembles a call is
//! passed on as text.

mod call;
mod gemma;
mod harmony;
mod markup;
mod offered;
mod parameters;
mod parser;
mod pythonic;
mod scan;
mod separated;

#[cfg(test)]
mod tests;

use gemma::{GEMMA_CALL, GEMMA_END_CALL, GEMMA_END_THOUGHT, GEMMA_QUOTE, GEMMA_THOUGHT};

pub use harmony::CHANNEL_MARKS;
pub use markup::{Markup, ToolMarkup};
pub use offered::{JsonTypes, OfferedTool};
pub use parameters::ParameterTags;
pub use parser::OutputParser;
pub use pythonic::{PYTHONIC_CALLS, PYTHONIC_END_CALLS};
pub use separated::{
    DEEPSEEK_CALL, DEEPSEEK_CALLS, DEEPSEEK_END_CALL, DEEPSEEK_END_CALLS, DEEPSEEK_SEPARATOR,
    MISTRAL_ARGUMENTS, MISTRAL_CALL_ID,
};

/// Special tokens that the parser needs as text.
pub const SPELLED_OUT: [&str; 24] = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    MISTRAL_ARGUMENTS,
    MISTRAL_CALL_ID,
    PYTHONIC_CALLS,
    PYTHONIC_END_CALLS,
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    DEEPSEEK_CALLS,
    DEEPSEEK_END_CALLS,
    DEEPSEEK_CALL,
    DEEPSEEK_END_CALL,
    DEEPSEEK_SEPARATOR,
    GEMMA_THOUGHT,
    GEMMA_END_THOUGHT,
    GEMMA_CALL,
    GEMMA_END_CALL,
    GEMMA_QUOTE,
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Content(String),
    Reasoning(String),
    /// The beginning of a call: the first piece with its index.
    Call {
        index: u32,
        name: String,
    },
    /// More of its arguments, to be appended.
    Arguments {
        index: u32,
        text: String,
    },
}
