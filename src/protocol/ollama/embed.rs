//! `/api/embed`: texts to vectors.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::job::{KeepAlive, Usage, Vector};
use crate::openai::encode::embeddings::EmbeddingsRequest;
use crate::openai::field::{self, Field, FieldRow};
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, Strictness};

use super::fields::{KEEP_ALIVE, KEEP_ALIVE_ABOUT, keep_alive};
use super::untagged;

/// Texts whose vectors are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedRequest {
    pub embeddings: EmbeddingsRequest,
    pub keep_alive: Option<KeepAlive>,
}

/// The request so far, as `/v1/embeddings` has it.
#[derive(Default)]
pub struct EmbedDraft {
    embeddings: serde_json::Map<String, Value>,
    keep_alive: Option<KeepAlive>,
}

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut EmbedDraft, Value) -> Result<(), Problem>,
) -> Field<EmbedDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
pub const FIELDS: &[Field<EmbedDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /api/tags.", |draft, value| {
        draft.put("model", untagged(value.as_str().unwrap_or_default()).into())
    }),
    field("input", Shape::Either(&[Shape::Text, Shape::List]), "A text, or an array of texts.", |draft, value| draft.put("input", value)),
    field("dimensions", Shape::Integer(1..=65_536), "Shorten the vectors to so many numbers; only of models trained for it.", |draft, value| draft.put("dimensions", value)),
    field("truncate", Shape::Flag, "No effect: texts that are too long are refused.", |_, _| Ok(())),
    field("options", Shape::Object, "No effect: nothing is sampled.", |_, _| Ok(())),
    field("keep_alive", KEEP_ALIVE, KEEP_ALIVE_ABOUT, |draft, value| {
        draft.keep_alive = Some(keep_alive(&value)?);
        Ok(())
    }),
];

impl EmbedDraft {
    fn put(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.embeddings.insert(name.to_owned(), value);
        Ok(())
    }
}

impl EmbedRequest {
    pub fn rows() -> Vec<FieldRow> {
        field::rows(FIELDS)
    }

    pub fn read(body: Value) -> Result<Self, Problem> {
        let Value::Object(entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        let mut draft = EmbedDraft::default();
        field::read(FIELDS, entries, Strictness::Refuse, &mut draft)?;
        Ok(Self {
            embeddings: EmbeddingsRequest::read(Value::Object(draft.embeddings))?,
            keep_alive: draft.keep_alive,
        })
    }

    /// The reply: vectors in the order of the inputs.
    pub fn reply(&self, vectors: &[Vector], usage: Usage, took: Duration) -> String {
        let mut out = format!(
            r#"{{"model":{},"embeddings":["#,
            json!(&*self.embeddings.model)
        );
        for (index, vector) in vectors.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            // Writing to a string cannot fail, here and below.
            let _ = write!(out, "{comma}[");
            for (index, number) in vector.0.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                let _ = write!(out, "{comma}{number:?}");
            }
            out.push(']');
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let _ = write!(
            out,
            r#"],"total_duration":{nanoseconds},"load_duration":0,"prompt_eval_count":{}}}"#,
            usage.prompt_tokens
        );
        out
    }
}
