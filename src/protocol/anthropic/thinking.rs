//! `thinking` of a request: whether the model thinks before it answers, and whether the client sees it.

use serde_json::Value;

use crate::openai::chat::effort_of;
use crate::openai::{Problem, Shape, field};

use super::fields::MOST_TOKENS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thinking {
    pub is_on: bool,
    /// The effort that the token budget stands for.
    pub effort: Option<&'static str>,
    pub shown: ThinkingShown,
}

/// How thinking is returned, where a model writes some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingShown {
    Whole,
    /// Only its signature.
    Signature,
    /// Not at all, though its tokens count.
    Nothing,
}

impl Thinking {
    pub const OFF: Self = Self {
        is_on: false,
        effort: None,
        shown: ThinkingShown::Nothing,
    };

    pub fn read(value: &Value) -> Result<Self, Problem> {
        const KEYS: &[&str] = &["type", "budget_tokens", "display"];
        if let Value::Object(entries) = value {
            field::nothing_but(KEYS, "thinking", entries)?;
        }
        let display = &value["display"];
        if !display.is_null() {
            Shape::Word(&["summarized", "omitted"]).check("thinking.display", display)?;
        }
        const TYPES: &[&str] = &["enabled", "disabled", "adaptive", "between_tools"];
        Shape::Word(TYPES).check("thinking.type", &value["type"])?;
        if value["type"] == "between_tools" {
            let message = "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\" here: models do not report between tool calls";
            return Err(Problem::unsupported("thinking.type", message));
        }
        let is_on = value["type"] != "disabled";
        Ok(Self {
            is_on,
            effort: effort(&value["budget_tokens"])?.filter(|_| is_on),
            shown: match (is_on, display == "omitted") {
                (false, _) => ThinkingShown::Nothing,
                (true, false) => ThinkingShown::Whole,
                (true, true) => ThinkingShown::Signature,
            },
        })
    }
}

fn effort(budget: &Value) -> Result<Option<&'static str>, Problem> {
    if budget.is_null() {
        return Ok(None);
    }
    Shape::Integer(1..=MOST_TOKENS).check("thinking.budget_tokens", budget)?;
    Ok(Some(effort_of(budget)))
}
