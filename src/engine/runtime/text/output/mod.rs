//! What a model writes, taken apart as it comes: reasoning, content, calls of tools.
//!
//! | file | what it is |
//! | --- | --- |
//! | `markup` | which marks a model's chat template makes it write |
//! | `parser` | text to [`Piece`]s, one character at a time |
//! | `harmony` | the same for messages in channels, of gpt-oss |
//! | `call` | one call: a JSON object with a name and arguments |
//! | `separated` | one call as DeepSeek writes it: a name, a mark, a JSON object |
//! | `scan` | where a JSON value ends, and whether it is one |
//!
//! What has been said so far depends on the characters so far and never on how they were cut into pieces, so that
//! another worker can take over at any token: it reads the same text, keeps silent about it, and goes on. Text
//! that only looks like a call is let through as text.

mod call;
mod harmony;
mod markup;
mod parser;
mod scan;
mod separated;

#[cfg(test)]
mod tests;

pub use harmony::CHANNEL_MARKS;
pub use markup::{Markup, ToolMarkup};
pub use parser::OutputParser;
pub use separated::{
    DEEPSEEK_CALL, DEEPSEEK_CALLS, DEEPSEEK_END_CALL, DEEPSEEK_END_CALLS, DEEPSEEK_SEPARATOR,
};

/// Tokens without text in a vocabulary whose spelling is part of the markup.
pub const SPELLED_OUT: [&str; 11] = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    DEEPSEEK_CALLS,
    DEEPSEEK_END_CALLS,
    DEEPSEEK_CALL,
    DEEPSEEK_END_CALL,
    DEEPSEEK_SEPARATOR,
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
