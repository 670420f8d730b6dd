//! Structured output: the tokens that a request's grammar allows next.
//!
//! | file | content |
//! | --- | --- |
//! | `lark` | a [`Grammar`] in the form that llguidance compiles: answer, thought and tool calls put together |
//! | `arguments` | separate arguments of a function, for markups with tags or names |
//! | `vocabulary` | a model's tokens as llguidance's tree |
//! | `prover` | a process that tries a source before this one compiles it |
//! | `slots` | the queue of compilations |
//! | `compiler` | compilation with limits, and the cache of compiled grammars of one model |
//! | `guide` | the state of one sequence: mask, accepted token, forced tokens |
//!
//! A grammar is compiled where requests are prepared, never on the inference thread. The compiled grammar is kept and
//! copied for each sequence, so that sequences share nothing and their masks are computed in parallel. The state is a
//! function of the tokens alone: another worker that replays them reaches the same state.

mod arguments;
mod compiler;
mod guide;
mod lark;
mod prover;
mod slots;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;
mod vocabulary;

use serde_json::{Value, json};

use super::text::ToolMarkup;

pub use compiler::Grammars;
pub use guide::{DeadEnd, Guide};
pub use prover::{Prover, ProverProgram, serve as serve_prover};

/// The constraint on the complete text of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Grammar {
    pub thought: Thought,
    /// Tool calls that the text may or must hold.
    pub calls: Option<Calls>,
    pub answer: Answer,
}

/// The thought that a text begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Thought {
    #[default]
    None,
    /// The model may open one.
    Possible,
    /// The prompt has opened one: the text begins inside it.
    Open,
}

/// The text besides thought and calls.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// There is none: the text is calls alone.
    Nothing,
    /// Any text.
    Text,
    JsonObject,
    JsonSchema(Value),
    /// A pattern of the crate `regex` for the whole text.
    Regex(String),
    Choice(Vec<String>),
    /// Lark with the extensions of llguidance.
    Lark(String),
}

/// Calls in a model's own markup.
#[derive(Debug, Clone, PartialEq)]
pub struct Calls {
    pub markup: ToolMarkup,
    /// The functions that may be called.
    pub functions: Vec<Function>,
    /// At most one call.
    pub single: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub name: String,
    /// JSON schema of the arguments, an object; `None` for a function without arguments.
    pub parameters: Option<Value>,
    /// Arguments keep to every keyword of the schema, or the request is refused. Otherwise keywords that cannot be
    /// enforced are left out.
    pub strict: bool,
}

impl Grammar {
    /// The same without the parameters of functions that are not strict; none where that changes nothing.
    fn loosened(&self) -> Option<Self> {
        let any = || Some(json!({"type": "object"}));
        let mut looser = self.clone();
        let functions = &mut looser.calls.as_mut()?.functions;
        for function in functions.iter_mut().filter(|function| !function.strict) {
            function.parameters = any();
        }
        (looser != *self).then_some(looser)
    }

    /// Constrains an answer without thoughts or calls.
    pub fn answer(answer: Answer) -> Self {
        Self {
            thought: Thought::None,
            calls: None,
            answer,
        }
    }
}
