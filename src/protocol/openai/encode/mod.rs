//! Requests that read and do not write, in the shapes of OpenAI, vLLM and Jina: tokens, texts of tokens, vectors and scores.
//!
//! | file | routes |
//! | --- | --- |
//! | `tokens` | `/tokenize`, `/detokenize` |
//! | [`embeddings`] | `/v1/embeddings` |
//! | [`rerank`] | `/rerank` |
//! | `base64` | the bytes of vectors |
//! | [`schema`] | all of it as JSON Schema |

mod base64;
pub mod embeddings;
pub mod rerank;
pub mod schema;
mod tokens;

pub use tokens::{DetokenizeRequest, TokenizeRequest, text_reply, tokens_reply};

use std::sync::Arc;

use serde_json::{Map, Value};

use super::field::{self, Field, FieldRow};
use super::shape::{kind, text, whole};
use super::{Problem, Shape, Strictness};

/// Every field of `/tokenize`.
pub fn tokenize_rows() -> Vec<FieldRow> {
    field::rows(tokens::TOKENIZE)
}

/// Every field of `/detokenize`.
pub fn detokenize_rows() -> Vec<FieldRow> {
    field::rows(tokens::DETOKENIZE)
}

/// One field of a request.
const fn field<D>(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut D, Value) -> Result<(), Problem>,
) -> Field<D> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

/// The entries of a body, read by their fields.
fn read<D: Default>(fields: &[Field<D>], body: Value) -> Result<D, Problem> {
    let entries = entries(body)?;
    let mut draft = D::default();
    field::read(fields, entries, Strictness::Refuse, &mut draft)?;
    Ok(draft)
}

fn entries(body: Value) -> Result<Map<String, Value>, Problem> {
    match body {
        Value::Object(entries) => Ok(entries),
        other => {
            let found = kind(&other);
            let message = format!("the body must be a JSON object, found {found}");
            Err(Problem::malformed(message))
        }
    }
}

/// The name of a model, which has to be there. Refusals repeat it, so its length is bounded.
fn model(name: &str) -> Result<Arc<str>, Problem> {
    const LONGEST: usize = 256;
    match name.chars().count() {
        0 => Err(Problem::invalid(
            "model",
            "model is missing: use a name listed by /v1/models",
        )),
        1..=LONGEST => Ok(name.into()),
        count => {
            let message = format!("model must have at most {LONGEST} characters, found {count}");
            Err(Problem::invalid("model", message))
        }
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

/// Every value a token id.
fn token_ids(place: &str, list: &[Value]) -> Result<Vec<u32>, Problem> {
    let ids = list.iter().enumerate().map(|(index, value)| {
        let id = whole(value).and_then(|number| u32::try_from(number).ok());
        id.ok_or_else(|| {
            let found = kind(value);
            let message = format!("{place}[{index}] must be a token id, found {found}");
            Problem::invalid(place.to_owned(), message)
        })
    });
    ids.collect()
}

/// Refuses a value that cannot be honoured.
fn only(name: &'static str, honoured: bool, values: &str) -> Result<(), Problem> {
    match honoured {
        true => Ok(()),
        false => {
            let message = format!("{name} must be {values} here");
            Err(Problem::unsupported(name, message))
        }
    }
}

fn never(name: &'static str) -> Result<(), Problem> {
    let message = format!("{name} is not supported here");
    Err(Problem::unsupported(name, message))
}
