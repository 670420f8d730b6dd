//! The coordinator's answer to a registration: welcome, or why not.

use serde::Deserialize;

use super::extensions::{Agreed, AgreedJson};
use super::loose::AtMost;
use super::object::Object;
use super::registration::MOST_CLAIMS;
use crate::job::JobId;

/// The worker is registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ready {
    /// The same for one name forever.
    pub worker_id: String,
    pub ext: Option<Agreed>,
    pub resume: Vec<Verdict>,
}

/// The decision about an attempt that a reconnected worker claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub job: JobId,
    pub attempt: u32,
    /// Resume after this frame; `None`: drop the job.
    pub go_on_after: Option<u64>,
}

/// The last frame before a refused socket is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalFrame {
    pub message: String,
    pub code: Option<RefusalCode>,
    pub retry_secs: Option<u64>,
}

/// Why, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    Auth,
    Scope,
    NameTaken,
    Cooldown,
    Identity,
    Profile,
    RetiredModel,
    Version,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(super) struct ReadyJson {
    worker_id: Option<String>,
    ext: Option<AgreedJson>,
    resume: Option<AtMost<MOST_CLAIMS, VerdictJson>>,
}

#[derive(Deserialize)]
struct VerdictJson {
    id: JobId,
    att: u32,
    have: Option<u64>,
    verdict: String,
}

#[derive(Deserialize)]
pub(super) struct RefusalJson {
    message: Option<String>,
    code: Option<RefusalCode>,
    retry_s: Option<u64>,
}

impl From<ReadyJson> for Ready {
    fn from(json: ReadyJson) -> Self {
        let verdict = |one: VerdictJson| Verdict {
            job: one.id,
            attempt: one.att,
            go_on_after: (one.verdict == "continue").then_some(one.have.unwrap_or(0)),
        };
        let resume = json.resume.unwrap_or_default().0;
        Self {
            worker_id: json.worker_id.unwrap_or_default(),
            ext: json.ext.map(Agreed::from),
            resume: resume.into_iter().map(verdict).collect(),
        }
    }
}

impl From<RefusalJson> for RefusalFrame {
    fn from(json: RefusalJson) -> Self {
        Self {
            message: json.message.unwrap_or_default(),
            code: json.code,
            retry_secs: json.retry_s,
        }
    }
}

impl Ready {
    pub(super) fn write_into(&self, out: &mut String) {
        let mut object = Object::frame("ready", out);
        object.text("worker_id", &self.worker_id);
        if let Some(ext) = &self.ext {
            object.object("ext", |inner| ext.write(inner));
        }
        if !self.resume.is_empty() {
            object.list("resume", &self.resume, Verdict::write);
        }
        object.end();
    }
}

impl Verdict {
    fn write(&self, out: &mut String) {
        let mut object = Object::new(out);
        object.display_text("id", self.job);
        object.number("att", self.attempt);
        object.number_if("have", self.go_on_after);
        let verdict = match self.go_on_after {
            Some(_) => "continue",
            None => "drop",
        };
        object.text("verdict", verdict);
        object.end();
    }
}

impl RefusalFrame {
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: Some(code),
            retry_secs: None,
        }
    }

    pub(super) fn write_into(&self, out: &mut String) {
        let mut object = Object::frame("error", out);
        object.text("message", &self.message);
        object.text_if("code", self.code.map(RefusalCode::name));
        object.number_if("retry_s", self.retry_secs);
        object.end();
    }
}

impl RefusalCode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Scope => "scope",
            Self::NameTaken => "name_taken",
            Self::Cooldown => "cooldown",
            Self::Identity => "identity",
            Self::Profile => "profile",
            Self::RetiredModel => "retired_model",
            Self::Version => "version",
            Self::Other => "other",
        }
    }
}
