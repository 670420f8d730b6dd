//! Bodies of `/v1/account/…`.

use serde_json::Value;

use super::field::{self, Field};
use super::shape::{kind, whole};
use super::{Problem, Shape, Strictness};

/// A key to be created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRequest {
    pub label: String,
    /// By name; none where the client leaves the choice to the service.
    pub scopes: Option<Vec<String>>,
    /// The key is good for the worker of this name only.
    pub worker: Option<String>,
    pub expires_in_secs: Option<u64>,
}

const MAX_LABEL: usize = 100;
const MAX_WORKER_NAME: usize = 200;
/// Ten years.
const MAX_LIFETIME_SECS: i64 = 315_360_000;

#[rustfmt::skip]
pub const KEY_FIELDS: &[Field<KeyRequest>] = &[
    field("label", Shape::Text, "Label of the key, at most 100 characters.", |request, value| {
        request.label = short_text("label", value, MAX_LABEL)?;
        Ok(())
    }),
    field("scopes", Shape::List, "Names of scopes, all of them held by the calling key; default: inference.submit and account.read, as far as the calling key has them, or worker.connect with worker.", |request, value| {
        request.scopes = Some(texts("scopes", &value)?);
        Ok(())
    }),
    field("purpose", Shape::Word(&["inference"]), "What the key is for.", |_, _| Ok(())),
    field("worker", Shape::Text, "Name of the only worker that the key connects.", |request, value| {
        request.worker = Some(short_text("worker", value, MAX_WORKER_NAME)?);
        Ok(())
    }),
    field("expires_in", Shape::Integer(1..=MAX_LIFETIME_SECS), "Seconds until the key expires; default: with the calling key, or never.", |request, value| {
        request.expires_in_secs = whole(&value).and_then(|secs| u64::try_from(secs).ok());
        Ok(())
    }),
];

impl KeyRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        read(KEY_FIELDS, body)
    }
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

fn read<D: Default>(fields: &[Field<D>], body: Value) -> Result<D, Problem> {
    let Value::Object(entries) = body else {
        let found = kind(&body);
        let message = format!("the body must be a JSON object, found {found}");
        return Err(Problem::malformed(message));
    };
    let mut request = D::default();
    field::read(fields, entries, Strictness::Refuse, &mut request)?;
    Ok(request)
}

fn short_text(name: &'static str, value: Value, max: usize) -> Result<String, Problem> {
    let text = match value {
        Value::String(text) => text,
        _ => String::new(),
    };
    let is_plain = !text.chars().any(char::is_control);
    match text.chars().count() <= max && is_plain {
        true => Ok(text),
        false => {
            let message =
                format!("{name} must have at most {max} characters and no control characters");
            Err(Problem::invalid(name, message))
        }
    }
}

fn texts(name: &'static str, value: &Value) -> Result<Vec<String>, Problem> {
    let items = value.as_array().into_iter().flatten();
    let texts = items.map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(|| {
        let message = format!("{name} must be an array of strings");
        Problem::invalid(name, message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::KeyRequest;

    #[test]
    fn a_key_request_is_read_by_its_fields() {
        let request = KeyRequest::read(json!({
            "label": "laptop", "scopes": ["account.read"], "purpose": "inference", "expires_in": 60,
        }));
        let wanted = KeyRequest {
            label: "laptop".to_owned(),
            scopes: Some(vec!["account.read".to_owned()]),
            worker: None,
            expires_in_secs: Some(60),
        };
        assert_eq!(request, Ok(wanted));
        assert_eq!(KeyRequest::read(json!({})), Ok(KeyRequest::default()));
    }

    #[test]
    fn a_key_request_with_an_unknown_field_or_value_is_refused_by_its_name() {
        for (body, param) in [
            (json!({"scope": []}), "scope"),
            (json!({"scopes": [1]}), "scopes"),
            (json!({"purpose": "validator"}), "purpose"),
            (json!({"expires_in": 0}), "expires_in"),
            (json!({"label": "a\nb"}), "label"),
        ] {
            let problem = KeyRequest::read(body).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some(param));
        }
    }
}
