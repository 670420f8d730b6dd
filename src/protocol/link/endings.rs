//! The last frame of a job: done, or failed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::About;
use super::loose::{AtMost, Loose, LooseId};
use super::object::Object;
use super::output::{about, finish_name, finish_named};
use super::usage::{UsageJson, write_usage};
use crate::job::{Blame, Failure, FailureKind, FinishReason, Usage};

/// Outputs of one media job.
const MOST_RESULTS: usize = 64;

/// The worker has finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub about: About,
    /// The whole output, from peers that say it; some stream nothing else.
    pub full_text: Option<String>,
    pub full_reasoning: Option<String>,
    pub finish: Option<FinishReason>,
    pub usage: Option<Usage>,
    pub cancelled: bool,
    /// The reply of a raw job that was not streamed.
    pub full_json: Option<Value>,
    /// The outputs of a media job, already uploaded.
    pub results: Vec<MediaResult>,
}

/// An uploaded output. Public workers name its index, seed and digest only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MediaResult {
    pub index: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    pub sha256: String,
    /// The key of its upload slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Length of audio and video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The output itself, where it has no upload link. Never on the link.
    #[serde(skip)]
    pub inline: Option<Vec<u8>>,
}

/// The worker failed, or the request is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorFrame {
    pub about: About,
    pub message: String,
    pub client_error: bool,
    /// Between our own peers.
    pub code: Option<FailureKind>,
}

/// Parsed as far as possible: the sender has finished either way, and waits for its ack.
#[derive(Deserialize)]
pub(super) struct DoneJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    #[serde(default)]
    full_text: Loose<String>,
    #[serde(default)]
    full_reasoning: Loose<String>,
    #[serde(default)]
    finish_reason: Loose<String>,
    /// Between our own peers: the stop string that ended the text.
    #[serde(default)]
    stop: Loose<String>,
    #[serde(default)]
    usage: Loose<UsageJson>,
    #[serde(default)]
    cancelled: Loose<bool>,
    full_json: Option<Value>,
    #[serde(default)]
    results: Loose<AtMost<MOST_RESULTS, MediaResult>>,
}

#[derive(Deserialize)]
pub(super) struct ErrorJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    #[serde(default)]
    message: Loose<String>,
    #[serde(default)]
    client_error: Loose<bool>,
    #[serde(default)]
    code: Loose<FailureKind>,
}

impl DoneJson {
    pub fn read(self) -> Option<Done> {
        let results = self.results.0.map_or_else(Vec::new, |list| list.0);
        Some(Done {
            about: about(self.id, self.att, self.seq)?,
            full_text: self.full_text.0,
            full_reasoning: self.full_reasoning.0,
            finish: finish(self.finish_reason.0, self.stop.0),
            usage: self.usage.0.map(Usage::from),
            cancelled: self.cancelled.0.unwrap_or(false),
            full_json: self.full_json,
            results,
        })
    }
}

fn finish(name: Option<String>, stop: Option<String>) -> Option<FinishReason> {
    match (finish_named(&name?), stop) {
        (FinishReason::Stop, Some(stop)) => Some(FinishReason::StopString(stop.into())),
        (finish, _) => Some(finish),
    }
}

impl ErrorJson {
    pub fn read(self) -> Option<ErrorFrame> {
        Some(ErrorFrame {
            about: about(self.id, self.att, self.seq)?,
            message: self.message.0.unwrap_or_default(),
            client_error: self.client_error.0.unwrap_or(false),
            code: self.code.0,
        })
    }
}

impl Done {
    pub fn new(about: About, finish: FinishReason, usage: Usage) -> Self {
        Self {
            about,
            full_text: None,
            full_reasoning: None,
            cancelled: finish == FinishReason::Cancelled,
            finish: Some(finish),
            usage: Some(usage),
            full_json: None,
            results: Vec::new(),
        }
    }

    pub(super) fn write_into(&self, out: &mut String) {
        let mut object = Object::frame("done", out);
        self.about.write(&mut object);
        object.text_if("full_text", self.full_text.as_deref());
        object.text_if("full_reasoning", self.full_reasoning.as_deref());
        object.value_if("full_json", self.full_json.as_ref());
        if !self.results.is_empty() {
            object.value("results", &self.results);
        }
        object.text_if("finish_reason", self.finish.as_ref().map(finish_name));
        if let Some(FinishReason::StopString(stop)) = &self.finish {
            object.text("stop", stop);
        }
        if let Some(usage) = &self.usage {
            object.object("usage", |inner| write_usage(usage, inner));
        }
        if self.cancelled {
            object.flag("cancelled", true);
        }
        object.end();
    }
}

impl ErrorFrame {
    /// The failure of a worker's error. A worker can blame the request or itself; the coordinator's own codes are not
    /// accepted from it.
    pub fn failure(self) -> Failure {
        let plain = match self.client_error {
            true => FailureKind::InvalidRequest,
            false => FailureKind::WorkerFailed,
        };
        let wanted = match self.client_error {
            true => Blame::Client,
            false => Blame::Worker,
        };
        let code = self
            .code
            .filter(|code| WORKERS_WORDS.contains(code) && code.row().blame == wanted);
        Failure::new(code.unwrap_or(plain), self.message)
    }

    pub(super) fn write_into(&self, out: &mut String) {
        let mut object = Object::frame("error", out);
        self.about.write(&mut object);
        object.text("message", &self.message);
        object.flag("client_error", self.client_error);
        object.value_if("code", self.code.as_ref());
        object.end();
    }
}

/// The failures a worker can know of.
const WORKERS_WORDS: [FailureKind; 6] = [
    FailureKind::InvalidRequest,
    FailureKind::UnsupportedValue,
    FailureKind::ContextLengthExceeded,
    FailureKind::TooLarge,
    FailureKind::WorkerFailed,
    FailureKind::Stalled,
];
