//! The fields that a client sent, and its key: the holder of that key may read them again, whatever styles or filters
//! changed and whichever account pays. Stored beside the final request, only where they differ.

use serde_json::{Map, Value, json};

use crate::accounts::Caller;
use crate::requests::Requests;
use crate::storage::StorageError;
use crate::values::KeyId;
use muster_protocol::job::{AccountId, RequestId, SharedKeyId};
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::text::request::GenerationInputText;

/// Keys in a stored request.
const SENT: &str = "sent";
const BY: &str = "by";
const REQUEST: &str = "request";

/// The client's own fields.
#[derive(Debug)]
pub struct Sent {
    by: By,
    /// Without images: only their keys are used, and they are large.
    fields: Map<String, Value>,
}

/// A stored request as submitted. Source images of image requests are keys.
#[derive(Debug)]
pub struct Again {
    /// `None` for requests accepted by an earlier version.
    by: Option<By>,
    pub fields: Map<String, Value>,
}

/// The account and key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct By {
    account: AccountId,
    key: KeyId,
    shared_key: Option<SharedKeyId>,
}

impl Requests {
    /// A request as submitted; `None` if it is unknown or cannot be parsed.
    pub async fn again(&self, id: RequestId) -> Result<Option<Again>, StorageError> {
        let body = self.0.store.request_body(id).await?;
        Ok(body.and_then(|body| Again::read(&body)))
    }
}

impl Sent {
    pub fn text(asked: &mut GenerationInputText, caller: &Caller) -> Self {
        let extra = asked.extra_source_images.take();
        let sent = Self::new(json!(asked), caller);
        asked.extra_source_images = extra;
        sent
    }

    pub fn image(asked: &mut GenerationInputImage, caller: &Caller) -> Self {
        let (source, mask) = (asked.source_image.take(), asked.source_mask.take());
        let extra = asked.extra_source_images.take();
        let sent = Self::new(json!(asked), caller);
        asked.source_image = source;
        asked.source_mask = mask;
        asked.extra_source_images = extra;
        sent
    }

    fn new(asked: Value, caller: &Caller) -> Self {
        Self {
            by: By::of(caller),
            fields: match asked {
                Value::Object(fields) => fields,
                _ => Map::new(),
            },
        }
    }

    /// Adds the fields that differ from the final request to its stored body.
    pub(super) fn write(&self, body: &mut Value) {
        let became = &body[REQUEST];
        let other = self.fields.iter();
        let other = other.filter(|(name, sent)| became[name.as_str()] != **sent);
        let other = other.map(|(name, sent)| (name.clone(), sent.clone()));
        let other: Map<String, Value> = other.collect();
        if !other.is_empty() {
            body[SENT] = other.into();
        }
        body[BY] = self.by.written();
    }
}

impl Again {
    fn read(body: &str) -> Option<Self> {
        let mut body: Map<String, Value> = serde_json::from_str(body).ok()?;
        let Some(Value::Object(mut fields)) = body.remove(REQUEST) else {
            return None;
        };
        if let Some(Value::Object(sent)) = body.remove(SENT) {
            fields.extend(sent);
        }
        let by = body.get(BY).and_then(By::read);
        Some(Self { by, fields })
    }

    /// Whether the caller sent it with this key, or may read the account's private data.
    pub fn is_by(&self, caller: &Caller) -> bool {
        self.by.is_some_and(|by| {
            let mine = By::of(caller);
            mine == by || mine.account == by.account && caller.sees_own()
        })
    }

    /// Approximate memory.
    pub fn bytes(&self) -> usize {
        let fields = self.fields.iter();
        fields.map(|(name, value)| name.len() + bytes(value)).sum()
    }
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, it)| name.len() + bytes(it)).sum(),
        _ => size_of::<Value>(),
    }
}

impl By {
    fn of(caller: &Caller) -> Self {
        Self {
            account: caller.account,
            key: caller.key,
            shared_key: caller.shared.as_ref().map(|key| key.id),
        }
    }

    fn written(self) -> Value {
        json!({"account": self.account.0, "key": self.key.0, "shared_key": self.shared_key})
    }

    fn read(written: &Value) -> Option<Self> {
        Some(Self {
            account: AccountId(written["account"].as_i64()?),
            key: KeyId(written["key"].as_i64()?),
            shared_key: serde_json::from_value(written["shared_key"].clone()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Again, Sent};
    use crate::accounts::Caller;
    use muster_protocol::legacy::Body as _;
    use muster_protocol::legacy::image::request::GenerationInputImage;

    #[test]
    fn only_what_became_something_else_is_kept_twice_and_what_was_sent_is_read_again() {
        let asked = json!({"prompt": "a kid", "source_image": "base64", "params": {"n": 2}});
        let mut asked = GenerationInputImage::read(asked).unwrap();
        let sent = Sent::image(&mut asked, &Caller::anonymous());
        assert_eq!(asked.source_image.as_deref(), Some("base64"));
        asked.prompt = "oil, a adult".to_owned();
        asked.params.steps = Some(12);
        asked.source_image = Some("key".to_owned());
        let mut body = json!({"request": asked});
        sent.write(&mut body);
        let names: Vec<_> = body["sent"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["prompt", "params"]);
        let again = Again::read(&body.to_string()).unwrap();
        assert!(again.is_by(&Caller::anonymous()));
        assert_eq!(again.fields["prompt"], "a kid");
        assert_eq!(again.fields["params"]["n"], 2);
        assert_eq!(again.fields["params"].get("steps"), None);
        assert_eq!(again.fields["source_image"], "key");
    }

    #[test]
    fn what_is_as_it_was_sent_is_kept_once_and_what_an_earlier_version_has_kept_is_nobodys() {
        let mut asked = GenerationInputImage::read(json!({"prompt": "a cat"})).unwrap();
        let sent = Sent::image(&mut asked, &Caller::anonymous());
        let mut body = json!({"request": asked});
        let earlier = Again::read(&body.to_string()).unwrap();
        assert!(!earlier.is_by(&Caller::anonymous()));
        sent.write(&mut body);
        assert_eq!(body.get("sent"), None);
        assert!(Again::read("[]").is_none() && Again::read("{}").is_none());
    }
}
