//! Work for a worker.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::job_types::{job_type, kind_of};
use super::loose::{AtMost, Loose, LooseId};
use super::object::Object;
use super::output::about;
use super::{About, FrameError};
use crate::job::{Body, KeepAlive, Kind, MediaJson, TextRequest, ValuesJson};

const MOST_SLOTS: usize = 64;
/// Format name of the neutral payload between our own peers.
const NEUTRAL: &str = "neutral";

/// An offer that needs no answer but its result.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFrame {
    pub about: About,
    /// A model name of the worker.
    pub model: String,
    pub kind: Kind,
    pub payload: Payload,
    /// An upload slot for each output of a media job.
    pub upload: Vec<UploadSlot>,
    /// Go on after this, exactly.
    pub prefill: Option<Prefill>,
    /// For our own workers: jobs of one salt may find each other's computed prompts. Without, a job finds its own only.
    pub cache_salt: Option<String>,
    /// Time left until the job expires.
    pub deadline: Option<Duration>,
    /// For our own workers: how long the model stays in memory after the job.
    pub keep_alive: Option<KeepAlive>,
}

/// The contents of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// Between our own peers: the neutral request, with links to its sources.
    Neutral(Body),
    /// The public shapes: the client's dialect, or the flat keys of a media job.
    Public(Map<String, Value>),
    /// Does not match its stated format: from a newer coordinator, or a broken one.
    Unreadable,
    /// Nested too deeply, or with too many values, to be parsed here.
    Excessive,
}

/// Upload target of an output, by HTTP PUT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadSlot {
    pub put_url: String,
    pub key: String,
    pub content_type: String,
}

/// Output delivered by an earlier attempt. The text may lag behind the tokens; an upstream program sends no tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Prefill {
    pub text: String,
    pub tokens: Vec<u32>,
    /// Token count of the text, if the text is the whole output, without reasoning and tool calls. A worker may then continue
    /// from the text.
    pub written: Option<u32>,
}

#[derive(Deserialize)]
pub(super) struct JobJson<'a> {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    model: Option<String>,
    job_type: Option<String>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    upload: Option<AtMost<MOST_SLOTS, UploadSlot>>,
    prefill: Option<Prefill>,
    cache_salt: Option<String>,
    deadline_ms: Option<u64>,
    keep_alive_ms: Option<i64>,
}

/// A payload before its format is known.
#[derive(Default, Deserialize)]
struct PayloadJson<'a> {
    #[serde(default)]
    api_format: Loose<String>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    #[serde(borrow)]
    encode: Option<&'a RawValue>,
    #[serde(borrow)]
    media: Option<&'a RawValue>,
}

/// Fields of a job that must be readable so that it can be refused.
#[derive(Deserialize)]
pub(super) struct JobHeadJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    model: Option<String>,
}

impl JobHeadJson {
    pub fn unreadable(self, error: &FrameError) -> Option<JobFrame> {
        let payload = match error {
            FrameError::WrongShape { .. } => Payload::Unreadable,
            // Valid JSON as far as known without parsing all of it, since its head was parsed.
            FrameError::NotJson { .. }
            | FrameError::NotAnObject
            | FrameError::TooManyValues { .. } => Payload::Excessive,
        };
        let about = about(self.id, self.att, None)?;
        Some(JobFrame::text(about, &self.model?, payload))
    }
}

impl JobJson<'_> {
    /// None when it names no job.
    pub fn read(self) -> Result<Option<JobFrame>, FrameError> {
        let kind = self.job_type.as_deref().map(kind_of);
        let payload = match kind {
            Some(None) => Payload::Unreadable,
            Some(Some(_)) | None => {
                Payload::read(self.payload).map_err(|error| FrameError::from_json("job", &error))?
            }
        };
        let Some(about) = about(self.id, self.att, self.seq) else {
            return Ok(None);
        };
        Ok(Some(JobFrame {
            about,
            model: self.model.unwrap_or_default(),
            kind: match &payload {
                Payload::Neutral(body) => body.kind(),
                _ => kind.flatten().unwrap_or(Kind::Text),
            },
            payload,
            upload: self.upload.map_or_else(Vec::new, |list| list.0),
            prefill: self.prefill,
            cache_salt: self.cache_salt,
            deadline: self.deadline_ms.map(Duration::from_millis),
            keep_alive: self.keep_alive_ms.map(KeepAlive::of_millis),
        }))
    }
}

impl Payload {
    fn read(payload: Option<&RawValue>) -> Result<Self, serde_json::Error> {
        let Some(payload) = payload.map(RawValue::get) else {
            return Ok(Self::Public(Map::new()));
        };
        let said = match payload.starts_with('{') {
            true => serde_json::from_str(payload)?,
            false => PayloadJson::default(),
        };
        if said.api_format.0.as_deref() != Some(NEUTRAL) {
            return serde_json::from_str(payload).map(Self::Public);
        }
        let read = match (said.encode, said.media) {
            (Some(values), _) => {
                serde_json::from_str::<ValuesJson<'_>>(values.get()).map(Body::from)
            }
            (None, Some(media)) => {
                serde_json::from_str::<MediaJson<'_>>(media.get()).map(Body::from)
            }
            (None, None) => {
                let request = said.request.map_or("null", RawValue::get);
                serde_json::from_str::<TextRequest>(request).map(Body::from)
            }
        };
        match read {
            Ok(body) => Ok(Self::Neutral(body)),
            Err(error) if error.is_data() => Ok(Self::Unreadable),
            Err(error) => Err(error),
        }
    }

    /// The stated format; public chat jobs may omit it.
    pub fn format(&self) -> &str {
        match self {
            Self::Public(payload) => payload
                .get("api_format")
                .and_then(Value::as_str)
                .unwrap_or("openai-chat"),
            Self::Neutral(_) | Self::Unreadable | Self::Excessive => NEUTRAL,
        }
    }
}

impl JobFrame {
    /// A text job as public peers know it.
    pub fn text(about: About, model: &str, payload: Payload) -> Self {
        Self {
            about,
            model: model.to_owned(),
            kind: Kind::Text,
            payload,
            upload: Vec::new(),
            prefill: None,
            cache_salt: None,
            deadline: None,
            keep_alive: None,
        }
    }

    pub(super) fn write_into(&self, out: &mut String) {
        let mut object = Object::frame("job", out);
        self.about.write(&mut object);
        if !self.kind.is_relayed() {
            object.text("job_type", job_type(self.kind));
        }
        object.text("model", &self.model);
        match &self.payload {
            Payload::Public(payload) => object.value("payload", payload),
            Payload::Neutral(body) => object.object("payload", |payload| {
                if let Body::Text(request) = body {
                    payload.value("request", request);
                } else if let Some(values) = ValuesJson::of(body) {
                    payload.value("encode", &values);
                } else if let Some(media) = MediaJson::of(body) {
                    payload.value("media", &media);
                }
                payload.text("api_format", NEUTRAL);
            }),
            Payload::Unreadable | Payload::Excessive => object.null("payload"),
        }
        if !self.upload.is_empty() {
            object.value("upload", &self.upload);
        }
        if let Some(prefill) = &self.prefill {
            object.object("prefill", |inner| {
                inner.text("text", &prefill.text);
                inner.numbers("tokens", &prefill.tokens);
                inner.number_if("written", prefill.written);
            });
        }
        object.text_if("cache_salt", self.cache_salt.as_deref());
        object.number_if("deadline_ms", self.deadline.map(|left| left.as_millis()));
        object.number_if("keep_alive_ms", self.keep_alive.map(KeepAlive::to_millis));
        object.end();
    }
}
