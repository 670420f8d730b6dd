//! `/v1/embeddings`, as OpenAI has it.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{base64, field, list, model, read, text, token_ids};
use crate::job::{TextInput, Usage, Vector};
use crate::openai::field::{Field, FieldRow};
use crate::openai::shape::whole;
use crate::openai::{Problem, Shape};

/// Limit of inputs, as in OpenAI's API.
pub const MOST_INPUTS: usize = 2048;
const MOST_DIMENSIONS: i64 = 65_536;

/// Texts whose vectors are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingsRequest {
    pub model: Arc<str>,
    pub inputs: Vec<TextInput>,
    pub dimensions: Option<u32>,
    pub format: VectorFormat,
}

/// How a vector stands in the reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VectorFormat {
    /// An array of numbers.
    #[default]
    Float,
    /// The numbers as little-endian f32.
    Base64,
}

#[derive(Default)]
pub(super) struct EmbeddingsDraft {
    model: String,
    inputs: Option<Vec<TextInput>>,
    dimensions: Option<u32>,
    format: VectorFormat,
}

#[rustfmt::skip]
pub(super) const FIELDS: &[Field<EmbeddingsDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models?type=all.", |draft, value| {
        draft.model = text(value);
        Ok(())
    }),
    field("input", Shape::Either(&[Shape::Text, Shape::List]), "A text, an array of texts, an array of token ids, or an array of such arrays; at most 2048 inputs.", |draft, value| {
        draft.inputs = Some(inputs(value)?);
        Ok(())
    }),
    field("encoding_format", Shape::Word(&["float", "base64"]), "float, or base64 of little-endian 32-bit floats.", |draft, value| {
        draft.format = match value == "base64" {
            true => VectorFormat::Base64,
            false => VectorFormat::Float,
        };
        Ok(())
    }),
    field("dimensions", Shape::Integer(1..=MOST_DIMENSIONS), "Shorten the vectors to so many numbers and scale them to length 1; only of models trained for it.", |draft, value| {
        draft.dimensions = whole(&value).and_then(|number| u32::try_from(number).ok());
        Ok(())
    }),
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |_, _| Ok(())),
];

/// Every field of a request.
pub fn rows() -> Vec<FieldRow> {
    crate::openai::field::rows(FIELDS)
}

impl EmbeddingsRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let draft: EmbeddingsDraft = read(FIELDS, body)?;
        let model = model(&draft.model)?;
        let inputs = draft.inputs.ok_or_else(|| {
            let message = "input is missing: send a text or an array of texts";
            Problem::invalid("input", message)
        })?;
        Ok(Self {
            model,
            inputs,
            dimensions: draft.dimensions,
            format: draft.format,
        })
    }
}

fn inputs(value: Value) -> Result<Vec<TextInput>, Problem> {
    if let Value::String(text) = value {
        return Ok(vec![prompt("input", text)?]);
    }
    let values = list(value);
    let is_one = values.first().is_some_and(Value::is_number);
    match values.len() {
        0 => return Err(empty("input")),
        _ if is_one => return Ok(vec![TextInput::Tokens(token_ids("input", &values)?)]),
        count if count > MOST_INPUTS => {
            let message = format!("input must have at most {MOST_INPUTS} entries, found {count}");
            return Err(Problem::invalid("input", message));
        }
        _ => {}
    }
    let read = values.into_iter().enumerate().map(|(index, value)| {
        let place = format!("input[{index}]");
        match value {
            Value::String(text) => prompt(&place, text),
            Value::Array(ids) if ids.is_empty() => Err(empty(&place)),
            Value::Array(ids) => Ok(TextInput::Tokens(token_ids(&place, &ids)?)),
            _ => {
                let message = format!("{place} must be a string or an array of token ids");
                Err(Problem::invalid(place, message))
            }
        }
    });
    read.collect()
}

fn prompt(place: &str, text: String) -> Result<TextInput, Problem> {
    match text.is_empty() {
        true => Err(empty(place)),
        false => Ok(TextInput::Prompt(text)),
    }
}

fn empty(place: &str) -> Problem {
    Problem::invalid(place.to_owned(), format!("{place} is empty"))
}

/// The reply: vectors in the order of the inputs. Written at once, because numbers as values take many times their text.
pub fn reply(model: &str, vectors: &[Vector], format: VectorFormat, usage: Usage) -> String {
    let mut out = String::from(r#"{"object":"list","data":["#);
    for (index, vector) in vectors.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            out,
            r#"{{"object":"embedding","index":{index},"embedding":"#
        );
        match format {
            VectorFormat::Float => write_numbers(&vector.0, &mut out),
            VectorFormat::Base64 => {
                let bytes = vector.0.iter().flat_map(|number| number.to_le_bytes());
                let _ = write!(out, "\"{}\"", base64::encode(bytes));
            }
        }
        out.push('}');
    }
    let count = usage.prompt_tokens;
    let usage = json!({"prompt_tokens": count, "total_tokens": count});
    let _ = write!(out, r#"],"model":{},"usage":{usage}}}"#, json!(model));
    out
}

fn write_numbers(numbers: &[f32], out: &mut String) {
    out.push('[');
    for (index, number) in numbers.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // With a fraction, also where it is whole: some clients take no integers here.
        let _ = write!(out, "{comma}{number:?}");
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{EmbeddingsRequest, VectorFormat, reply};
    use crate::job::{TextInput, Usage, Vector};

    fn read(input: Value) -> Result<Vec<TextInput>, String> {
        let request = EmbeddingsRequest::read(json!({"model": "m", "input": input}));
        request
            .map(|request| request.inputs)
            .map_err(|problem| format!("{}: {problem}", problem.param.as_deref().unwrap_or("")))
    }

    #[test]
    fn inputs_are_texts_or_token_ids_alone_or_several() {
        let text = |text: &str| TextInput::Prompt(text.to_owned());
        assert_eq!(read(json!("a")), Ok(vec![text("a")]));
        assert_eq!(read(json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
        assert_eq!(read(json!([1, 2])), Ok(vec![TextInput::Tokens(vec![1, 2])]));
        let two = vec![TextInput::Tokens(vec![1]), TextInput::Tokens(vec![2, 3])];
        assert_eq!(read(json!([[1], [2, 3]])), Ok(two));
    }

    #[test]
    fn an_input_that_holds_nothing_or_too_much_is_refused() {
        let refused = |input: Value, part: &str| {
            let error = read(input).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused(json!(""), "input is empty");
        refused(json!([]), "input is empty");
        refused(json!(["a", ""]), "input[1] is empty");
        refused(json!([[]]), "input[0] is empty");
        refused(
            json!(vec!["a"; 100_000]),
            "at most 2048 entries, found 100000",
        );
        refused(json!([1, -1]), "input[1] must be a token id, found -1");
        refused(json!([[1, "a"]]), "input[0][1] must be a token id");
        refused(json!([{"text": "a"}]), "input[0]: ");
    }

    #[test]
    fn the_reply_holds_numbers_or_their_bytes() {
        let vectors = [Vector(vec![1.0, -0.5])];
        let usage = Usage {
            prompt_tokens: 3,
            ..Usage::default()
        };
        let reply = |format| -> Value {
            let text = reply("m", &vectors, format, usage);
            serde_json::from_str(&text).unwrap()
        };
        let floats = reply(VectorFormat::Float);
        assert_eq!(floats["data"][0]["embedding"], json!([1.0, -0.5]));
        assert_eq!(
            floats["usage"],
            json!({"prompt_tokens": 3, "total_tokens": 3})
        );
        let bytes = reply(VectorFormat::Base64);
        assert_eq!(bytes["data"][0]["embedding"], "AACAPwAAAL8=");
    }
}
