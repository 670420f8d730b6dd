//! Texts and token ids to go on from.

use serde_json::{Value, json};

use crate::openai::Problem;
use crate::openai::shape::{kind, whole};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompts {
    Texts(Vec<String>),
    Tokens(Vec<Vec<u32>>),
}

/// Prompts of one request.
const MOST_PROMPTS: usize = 64;
/// Limit of one prompt; no model has a longer context.
const MOST_TOKENS: usize = 1 << 20;

pub fn read(prompt: Value) -> Result<Prompts, Problem> {
    let list = match prompt {
        Value::String(text) => return Ok(Prompts::Texts(vec![text])),
        Value::Array(list) => list,
        other => return Err(wrong("prompt", &other)),
    };
    match list.first() {
        None => {
            let message = "prompt is empty: send a string, or an array of them";
            Err(Problem::invalid("prompt", message))
        }
        Some(Value::Number(_)) => Ok(Prompts::Tokens(vec![tokens("prompt", &list)?])),
        Some(_) if list.len() > MOST_PROMPTS => {
            let found = list.len();
            let message =
                format!("prompt must contain at most {MOST_PROMPTS} prompts, found {found}");
            Err(Problem::invalid("prompt", message))
        }
        Some(Value::String(_)) => {
            let texts = list
                .into_iter()
                .enumerate()
                .map(|(index, text)| match text {
                    Value::String(text) => Ok(text),
                    other => Err(wrong(&format!("prompt[{index}]"), &other)),
                });
            Ok(Prompts::Texts(texts.collect::<Result<_, _>>()?))
        }
        Some(_) => {
            let lists = list.iter().enumerate().map(|(index, ids)| {
                let place = format!("prompt[{index}]");
                match ids {
                    Value::Array(ids) => tokens(&place, ids),
                    other => Err(wrong(&place, other)),
                }
            });
            Ok(Prompts::Tokens(lists.collect::<Result<_, _>>()?))
        }
    }
}

fn wrong(place: &str, found: &Value) -> Problem {
    let found = kind(found);
    let message = format!("{place} must be a string or an array of token ids, found {found}");
    Problem::invalid(place.to_owned(), message)
}

fn tokens(place: &str, ids: &[Value]) -> Result<Vec<u32>, Problem> {
    if ids.is_empty() || ids.len() > MOST_TOKENS {
        let message = format!(
            "{place} must contain 1 to {MOST_TOKENS} token ids, found {}",
            ids.len()
        );
        return Err(Problem::invalid(place.to_owned(), message));
    }
    let ids = ids
        .iter()
        .map(|id| whole(id).and_then(|id| u32::try_from(id).ok()));
    ids.collect::<Option<_>>().ok_or_else(|| {
        let message = format!("{place} must contain only token ids");
        Problem::invalid(place.to_owned(), message)
    })
}

impl Prompts {
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Tokens(lists) => lists.len(),
        }
    }

    /// As messages of a chat body, for moderation.
    pub fn messages(&self) -> Vec<Value> {
        let message = |text: &str| json!({"role": "user", "content": text});
        match self {
            Self::Texts(texts) => texts.iter().map(|text| message(text)).collect(),
            Self::Tokens(lists) => lists.iter().map(|_| message("")).collect(),
        }
    }

    /// None for texts.
    pub fn into_tokens(self) -> Option<Vec<Vec<u32>>> {
        match self {
            Self::Texts(_) => None,
            Self::Tokens(lists) => Some(lists),
        }
    }
}
