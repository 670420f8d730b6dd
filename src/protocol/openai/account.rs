//! Bodies of `/v1/account/…`.

use serde_json::Value;

use super::field::{self, Field};
use super::shape::{kind, whole};
use super::{Problem, Shape, Strictness};

/// A key to be created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRequest {
    pub label: String,
    /// By name; `None` leaves the choice to the service.
    pub scopes: Option<Vec<String>>,
    /// The key is good for the worker of this name only.
    pub worker: Option<String>,
    pub expires_in_secs: Option<u64>,
}

const MAX_LABEL: usize = 100;
const MAX_MODEL_NAME: usize = 256;
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

/// A request for a price quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuoteRequest {
    pub model: String,
    /// `text`, `image`, `video`, `audio`, `3d`, `speech` or `transcript`.
    pub modality: &'static str,
    pub prompt_tokens: u64,
    /// `None`: as long as the model's context allows.
    pub max_tokens: Option<u64>,
    pub outputs: i64,
    /// Length of a video, of audio, or of a sound to write down.
    pub millis: u64,
    /// Characters of a text to speak.
    pub characters: u64,
}

const MODALITIES: [&str; 7] = [
    "text",
    "image",
    "video",
    "audio",
    "3d",
    "speech",
    "transcript",
];
const MAX_TOKENS: i64 = 100_000_000;
const MAX_SECONDS: f64 = 86_400.0;

#[rustfmt::skip]
pub const QUOTE_FIELDS: &[Field<QuoteRequest>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/pricing.", |request, value| {
        request.model = short_text("model", value, MAX_MODEL_NAME)?;
        Ok(())
    }),
    field("modality", Shape::Word(&MODALITIES), "Kind of output; default: text. speech is a text that is spoken, transcript a sound that is written down.", |request, value| {
        let found = MODALITIES.into_iter().find(|word| value == *word);
        request.modality = found.unwrap_or(request.modality);
        Ok(())
    }),
    field("prompt_tokens", Shape::Integer(0..=MAX_TOKENS), "Tokens of the prompt of a text.", |request, value| {
        request.prompt_tokens = whole(&value).and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
        Ok(())
    }),
    field("max_tokens", Shape::Integer(0..=MAX_TOKENS), "Longest output of a text; default: what the context of the model leaves.", |request, value| {
        request.max_tokens = whole(&value).and_then(|tokens| u64::try_from(tokens).ok());
        Ok(())
    }),
    field("n", Shape::Integer(1..=16), "Number of outputs.", |request, value| {
        request.outputs = whole(&value).unwrap_or(1);
        Ok(())
    }),
    field("seconds", Shape::Number(0.0..=MAX_SECONDS), "Length of a video, of audio or of a sound to write down.", |request, value| {
        request.millis = (value.as_f64().unwrap_or(0.0) * 1000.0).ceil() as u64;
        Ok(())
    }),
    field("characters", Shape::Integer(0..=MAX_TOKENS), "Characters of a text to speak.", |request, value| {
        request.characters = whole(&value).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        Ok(())
    }),
];

impl Default for QuoteRequest {
    fn default() -> Self {
        Self {
            model: String::new(),
            modality: "text",
            prompt_tokens: 0,
            max_tokens: None,
            outputs: 1,
            millis: 0,
            characters: 0,
        }
    }
}

impl QuoteRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let request: Self = read(QUOTE_FIELDS, body)?;
        match request.model.is_empty() {
            true => {
                let message = "model is missing: use a name listed by /v1/pricing";
                Err(Problem::invalid("model", message))
            }
            false => Ok(request),
        }
    }
}

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

    use super::{KeyRequest, QuoteRequest};

    #[test]
    fn a_quote_request_is_for_one_text_unless_it_says_otherwise() {
        let request = QuoteRequest::read(json!({"model": "tiny", "max_tokens": 5})).unwrap();
        let wanted = QuoteRequest {
            model: "tiny".to_owned(),
            max_tokens: Some(5),
            ..QuoteRequest::default()
        };
        assert_eq!(request, wanted);
        let video = json!({"model": "v", "modality": "video", "n": 2, "seconds": 1.5});
        let video = QuoteRequest::read(video).unwrap();
        assert_eq!((video.outputs, video.millis), (2, 1500));
        let speech = json!({"model": "s", "modality": "speech", "characters": 12});
        assert_eq!(QuoteRequest::read(speech).unwrap().characters, 12);
        for wrong in [
            json!({}),
            json!({"model": "v", "n": 17}),
            json!({"model": "v", "modality": "smell"}),
            json!({"model": "v", "seconds": -1}),
        ] {
            assert!(QuoteRequest::read(wrong).is_err());
        }
    }

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
