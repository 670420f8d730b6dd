//! Descriptions of images: one image and a prompt become a chat, whose answer is the text of the reply.
//!
//! | file | contents |
//! | --- | --- |
//! | `dialect` | the [`Dialect`](crate::openai::chat::Dialect) of this route |
//! | [`schema`] | all of it as JSON Schema |

mod dialect;
pub mod schema;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::field::{self, Field, FieldRow};
use super::form::FormBody;
use super::{Problem, Shape, Strictness};

pub use dialect::DescribeDialect;

/// The prompt of a request without one.
const PROMPT: &str = "Describe this image.";
/// The model of a request without one: the best that reads images.
const MODEL: &str = "auto";
/// As for chats.
const MOST_TOKENS: i64 = u32::MAX as i64;

#[derive(Default)]
struct DescribeDraft {
    image: Option<String>,
    prompt: Option<String>,
    detail: Option<Value>,
    /// Fields of the chat, as they came.
    chat: Map<String, Value>,
}

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut DescribeDraft, Value) -> Result<(), Problem>,
) -> Field<DescribeDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
const FIELDS: &[Field<DescribeDraft>] = &[
    field("image", Shape::Text, "The image: an http or https URL, a data URL, base64, or a file of a form.", |draft, value| {
        draft.image = value.as_str().map(str::to_owned);
        Ok(())
    }),
    field("model", Shape::Text, "Name of a model that reads images; auto, the best one, if absent.", |draft, value| draft.put("model", value)),
    field("prompt", Shape::Text, "What to say about the image; a description if absent.", |draft, value| {
        draft.prompt = value.as_str().map(str::to_owned);
        Ok(())
    }),
    field("detail", Shape::Word(&["auto", "low", "high"]), "low: look at 512 by 512 pixels at most.", |draft, value| {
        draft.detail = Some(value);
        Ok(())
    }),
    field("max_tokens", Shape::Integer(1..=MOST_TOKENS), "Maximum number of generated tokens.", |draft, value| draft.put("max_tokens", value)),
    field("temperature", Shape::Number(0.0..=2.0), "Sampling temperature; 0 takes the most likely token.", |draft, value| draft.put("temperature", value)),
    field("seed", Shape::Integer(i64::MIN..=i64::MAX), "Sampling seed; the same seed samples the same tokens.", |draft, value| draft.put("seed", value)),
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |_, _| Ok(())),
];

/// Every field of a request.
pub fn rows() -> Vec<FieldRow> {
    field::rows(FIELDS)
}

/// The chat of a body in JSON.
pub fn of_json(body: Value) -> Result<Value, Problem> {
    let Value::Object(entries) = body else {
        return Err(Problem::malformed("the body must be a JSON object"));
    };
    read(entries, None)
}

/// The chat of a form.
pub fn of_form(form: FormBody) -> Result<Value, Problem> {
    let entries = form.json(FIELDS)?;
    let mut image = None;
    for file in form.files {
        if file.field() != "image" {
            return Err(file.unwanted());
        }
        if image.is_some() || entries.contains_key("image") {
            return Err(Problem::invalid(
                "image",
                "image occurs twice in the form: send one image",
            ));
        }
        image = Some(STANDARD.encode(&file.bytes));
    }
    read(entries, image)
}

fn read(entries: Map<String, Value>, file: Option<String>) -> Result<Value, Problem> {
    let mut draft = DescribeDraft::default();
    field::read(FIELDS, entries, Strictness::Refuse, &mut draft)?;
    draft.image = file.or(draft.image);
    draft.chat()
}

impl DescribeDraft {
    fn put(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.chat.insert(name.to_owned(), value);
        Ok(())
    }

    fn chat(self) -> Result<Value, Problem> {
        let image = self.image.as_deref().map(str::trim);
        let image = image.filter(|image| !image.is_empty()).ok_or_else(|| {
            let message =
                "image is missing: send a URL, a data URL, base64, or a file named image in a form";
            Problem::invalid("image", message)
        })?;
        // A value with a colon is a URL; all others are base64.
        let url = match image.contains(':') {
            true => image.to_owned(),
            false => format!("data:application/octet-stream;base64,{image}"),
        };
        let mut image = json!({"type": "image_url", "image_url": {"url": url}});
        if let Some(detail) = self.detail {
            image["image_url"]["detail"] = detail;
        }
        let prompt = self.prompt.filter(|prompt| !prompt.trim().is_empty());
        let prompt = prompt.unwrap_or_else(|| PROMPT.to_owned());
        let text = json!({"type": "text", "text": prompt});
        let mut chat = self.chat;
        chat.entry("model").or_insert_with(|| MODEL.into());
        let messages = json!([{"role": "user", "content": [image, text]}]);
        chat.insert("messages".to_owned(), messages);
        Ok(Value::Object(chat))
    }
}
