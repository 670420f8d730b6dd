//! `reasoning` as OpenRouter's clients send it: an object in place of `reasoning_effort`.

use serde_json::Value;

use crate::openai::shape::whole;
use crate::openai::{Problem, Shape, Strictness, field};

use super::fields::{EFFORTS, MOST_TOKENS};
use super::request::Draft;

const NAMES: &[&str] = &["effort", "max_tokens", "enabled", "exclude"];
/// Budgets in tokens: the effort is low below the first, and medium below the second.
const EFFORT_STEPS: [i64; 2] = [4096, 16_384];

pub fn read(draft: &mut Draft, value: Value) -> Result<(), Problem> {
    let Value::Object(mut entries) = value else {
        return Ok(());
    };
    entries.retain(|_, value| !value.is_null());
    if draft.strictness == Strictness::Refuse {
        field::nothing_but(NAMES, "reasoning", &entries)?;
    }
    let mut take = |name: &str, shape: Shape| -> Result<Option<Value>, Problem> {
        let value = entries.remove(name);
        if let Some(value) = &value {
            shape.check(&format!("reasoning.{name}"), value)?;
        }
        Ok(value)
    };
    let effort = take("effort", Shape::Word(EFFORTS))?;
    let budget = take("max_tokens", Shape::Integer(1..=MOST_TOKENS))?;
    let enabled = take("enabled", Shape::Flag)?;
    let exclude = take("exclude", Shape::Flag)?;
    if effort.is_some() && budget.is_some() {
        let message = "reasoning.effort and reasoning.max_tokens say the same: send one of them";
        return Err(Problem::invalid("reasoning.max_tokens", message));
    }
    let effort = effort.or_else(|| budget.map(|budget| effort_of(&budget).into()));
    if let Some(effort) = effort {
        draft.effort(effort);
    }
    if let Some(enabled) = enabled {
        draft
            .variables
            .insert("enable_thinking".to_owned(), enabled);
    }
    draft.hides_reasoning |= exclude == Some(Value::Bool(true));
    Ok(())
}

pub fn effort_of(budget: &Value) -> &'static str {
    let [low, medium] = EFFORT_STEPS;
    match whole(budget).unwrap_or_default() {
        budget if budget < low => "low",
        budget if budget < medium => "medium",
        _ => "high",
    }
}
