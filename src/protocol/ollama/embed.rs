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
    /// Texts that are too long for the model are cut.
    pub truncates: bool,
    /// Names of fields without a meaning here.
    pub ignored: Vec<String>,
}

/// The request so far, as `/v1/embeddings` has it.
#[derive(Default)]
pub struct EmbedDraft {
    embeddings: serde_json::Map<String, Value>,
    keep_alive: Option<KeepAlive>,
    keeps_length: bool,
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
    field("truncate", Shape::Flag, "Cut texts that are too long for the model; true if absent.", |draft, value| {
        draft.keeps_length = value == false;
        Ok(())
    }),
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
        let is_known = |name: &String| FIELDS.iter().any(|field| field.name == name);
        let ignored = entries.keys().filter(|name| !is_known(name));
        let ignored = ignored.cloned().collect();
        let mut draft = EmbedDraft::default();
        field::read(FIELDS, entries, Strictness::Tolerate, &mut draft)?;
        Ok(Self {
            embeddings: EmbeddingsRequest::read(Value::Object(draft.embeddings))?,
            keep_alive: draft.keep_alive,
            truncates: !draft.keeps_length,
            ignored,
        })
    }

    /// The body of `/api/embeddings`, which has one text and calls it `prompt`.
    pub fn read_old(mut body: Value) -> Result<Self, Problem> {
        let Value::Object(entries) = &mut body else {
            return Self::read(body);
        };
        const KNOWN: [&str; 4] = ["model", "prompt", "options", "keep_alive"];
        let mut ignored = Vec::new();
        entries.retain(|name, _| {
            let is_kept = KNOWN.contains(&name.as_str());
            if !is_kept {
                ignored.push(name.clone());
            }
            is_kept
        });
        let prompt = entries.remove("prompt").unwrap_or_default();
        Shape::Text.check("prompt", &prompt)?;
        entries.insert("input".to_owned(), prompt);
        let read = Self::read(body).map_err(|problem| match problem.param.as_deref() {
            Some("input") => {
                Problem::invalid("prompt", problem.to_string().replace("input", "prompt"))
            }
            _ => problem,
        })?;
        Ok(Self { ignored, ..read })
    }

    /// The reply of `/api/embeddings`: a single vector.
    pub fn reply_old(vectors: &[Vector]) -> String {
        let mut out = String::from(r#"{"embedding":"#);
        match vectors.first() {
            Some(vector) => put_vector(vector, &mut out),
            None => out.push_str("[]"),
        }
        out.push('}');
        out
    }

    /// The reply: vectors in the order of the inputs.
    pub fn reply(&self, vectors: &[Vector], usage: Usage, took: Duration) -> String {
        let mut out = format!(
            r#"{{"model":{},"embeddings":["#,
            json!(&*self.embeddings.model)
        );
        for (index, vector) in vectors.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            out.push_str(comma);
            put_vector(vector, &mut out);
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

fn put_vector(vector: &Vector, out: &mut String) {
    out.push('[');
    for (index, number) in vector.0.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // Writing to a string cannot fail, here and above.
        let _ = write!(out, "{comma}{number:?}");
    }
    out.push(']');
}
