//! The parts of a form (`multipart/form-data`) as the JSON that the same request has.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::field::{Field, unknown};
use super::nearest::shortened;
use super::{Problem, Shape};

/// A form, part by part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FormBody {
    pub texts: Vec<(String, String)>,
    pub files: Vec<FormFile>,
}

/// A part with a file name.
#[derive(Debug, Clone, PartialEq)]
pub struct FormFile {
    pub name: String,
    pub bytes: Bytes,
}

/// The end of a name that may occur several times.
const SEVERAL: &str = "[]";

impl FormBody {
    /// The texts, read by the shapes of their fields. A name that ends with `[]` is a list, and one such as `name[key]`
    /// an entry of an object, as OpenAI's clients write them.
    pub fn json<D>(&self, fields: &[Field<D>]) -> Result<Map<String, Value>, Problem> {
        let mut body = Map::new();
        for (name, text) in &self.texts {
            if let Some((name, key)) = entry_name(name)
                && fields
                    .iter()
                    .any(|field| field.name == name && takes_object(&field.shape))
            {
                let object = body.entry(name).or_insert_with(|| Map::new().into());
                if let Value::Object(entries) = object {
                    let value = serde_json::from_str(text).ok();
                    let value =
                        value.filter(|value: &Value| value.is_number() || value.is_boolean());
                    entries.insert(key.into(), value.unwrap_or_else(|| text.as_str().into()));
                }
                continue;
            }
            let (name, is_list) = field_name(name);
            let field = fields.iter().find(|field| field.name == name);
            let Some(field) = field else {
                return Err(unknown("", name, fields.iter().map(|field| field.name)));
            };
            if is_list {
                let list = body.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(text.as_str().into());
                }
                continue;
            }
            if body
                .insert(name.into(), value(&field.shape, text))
                .is_some()
            {
                let message = format!("{name} occurs twice in the form");
                return Err(Problem::invalid(name.to_owned(), message));
            }
        }
        Ok(body)
    }
}

impl FormFile {
    /// The name of its field.
    pub fn field(&self) -> &str {
        field_name(&self.name).0
    }

    /// For a file where a text is wanted.
    pub fn unwanted(&self) -> Problem {
        let name = shortened(self.field()).to_owned();
        let message = format!("the form has an unexpected file: {name}");
        Problem::invalid(name, message)
    }
}

fn field_name(name: &str) -> (&str, bool) {
    match name.strip_suffix(SEVERAL) {
        Some(name) => (name, true),
        None => (name, false),
    }
}

/// `name` and `key` of `name[key]`.
fn entry_name(name: &str) -> Option<(&str, &str)> {
    let (name, key) = name.strip_suffix(']')?.split_once('[')?;
    (!key.is_empty()).then_some((name, key))
}

fn takes_object(shape: &Shape) -> bool {
    match shape {
        Shape::Object => true,
        Shape::Either(shapes) => shapes.iter().any(takes_object),
        _ => false,
    }
}

/// A text of another shape stays a text, and the check of the field refuses it.
fn value(shape: &Shape, text: &str) -> Value {
    let parsed = match shape {
        Shape::Text | Shape::Word(_) => None,
        shape if takes_object(shape) && text.starts_with('{') => serde_json::from_str(text).ok(),
        Shape::Either(shapes) if shapes.iter().any(is_text) => None,
        _ => serde_json::from_str(text).ok(),
    };
    parsed.unwrap_or_else(|| text.into())
}

fn is_text(shape: &Shape) -> bool {
    matches!(shape, Shape::Text | Shape::Word(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Field, FormBody};
    use crate::openai::{Problem, Shape};

    const fn field(name: &'static str, shape: Shape) -> Field<()> {
        Field {
            name,
            about: "",
            shape,
            take: |(), _| Ok(()),
        }
    }

    const FIELDS: &[Field<()>] = &[
        field("prompt", Shape::Text),
        field("n", Shape::Integer(1..=4)),
        field("stream", Shape::Flag),
        field("image", Shape::Either(&[Shape::Text, Shape::List])),
        field(
            "cut",
            Shape::Either(&[Shape::Word(&["auto"]), Shape::Object]),
        ),
    ];

    fn json(texts: &[(&str, &str)]) -> Result<serde_json::Value, Problem> {
        let texts = texts.iter();
        let texts = texts.map(|(name, text)| (String::from(*name), String::from(*text)));
        let form = FormBody {
            texts: texts.collect(),
            files: Vec::new(),
        };
        form.json(FIELDS).map(Into::into)
    }

    #[test]
    fn texts_become_what_their_fields_hold() {
        let read = json(&[("prompt", "7"), ("n", "2"), ("stream", "true")]);
        let expected = json!({"prompt": "7", "n": 2, "stream": true});
        assert_eq!(read.unwrap(), expected);
        let read = json(&[("image[]", "a"), ("image[]", "b")]).unwrap();
        assert_eq!(read, json!({"image": ["a", "b"]}));
        assert_eq!(json(&[("n", "two")]).unwrap(), json!({"n": "two"}));
        let object = json!({"cut": {"type": "vad", "least": 0.5}});
        let entries = [("cut[type]", "vad"), ("cut[least]", "0.5")];
        assert_eq!(json(&entries).unwrap(), object);
        let text = r#"{"type": "vad", "least": 0.5}"#;
        assert_eq!(json(&[("cut", text)]).unwrap(), object);
        assert_eq!(json(&[("cut", "auto")]).unwrap(), json!({"cut": "auto"}));
        assert!(json(&[("prompt[a]", "b")]).is_err());
    }

    #[test]
    fn names_that_are_unknown_or_occur_twice_are_refused() {
        for texts in [[("promt", "a"), ("n", "1")], [("n", "1"), ("n", "2")]] {
            let problem = json(&texts).unwrap_err();
            let name = texts[0].0;
            assert_eq!(problem.param.as_deref(), Some(name));
        }
    }
}
