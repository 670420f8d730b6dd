//! Common parts of media replies: delivery of an output, and its worker.

use serde_json::{Map, Value, json};

use super::Problem;
use super::shape::text;

const LONGEST_TOKEN: usize = 128;

/// How the client gets an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MediaEncoding {
    /// A signed link.
    #[default]
    Url,
    Base64,
    UrlAndBase64,
}

impl MediaEncoding {
    /// Parses `response_format`.
    pub fn named(word: &Value) -> Self {
        match word == "url" {
            true => Self::Url,
            false => Self::Base64,
        }
    }

    pub fn has_url(self) -> bool {
        self != Self::Base64
    }

    pub fn has_base64(self) -> bool {
        self != Self::Url
    }
}

/// How the client follows its request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MediaTracking {
    /// The reply has a link to the results, which come later.
    pub is_async: bool,
    /// The client's name for the request.
    pub client_ref: Option<String>,
    /// For `/v1/progress`.
    pub progress_token: Option<String>,
}

const LONGEST_REF: usize = 128;

/// Descriptions of these fields.
pub const ASYNC: &str = "Answer 202 at once with a link to the results in /v1/media/results, which survive a restart of the service.";
pub const CLIENT_REF: &str = "Your name for a request with async, of at most 128 bytes: /v1/media/results?client_ref=NAME finds it.";
pub const PROGRESS_TOKEN: &str = "A name that is hard to guess, of at most 128 bytes: /v1/progress/{token} shows how far the request is.";

pub const LATER_PROGRESS: &str = "A name that is hard to guess, of at most 128 bytes: /v1/progress/{token} shows how far a request with async is.";

impl MediaTracking {
    pub fn take_async(&mut self, value: &Value) -> Result<(), Problem> {
        self.is_async = *value == true;
        Ok(())
    }

    pub fn take_client_ref(&mut self, value: Value) -> Result<(), Problem> {
        let name = text(value);
        if !(1..=LONGEST_REF).contains(&name.len()) {
            let found = name.len();
            let message = format!("client_ref must have 1 to {LONGEST_REF} bytes, found {found}");
            return Err(Problem::invalid("client_ref", message));
        }
        self.client_ref = Some(name);
        Ok(())
    }

    pub fn take_progress_token(&mut self, value: Value) -> Result<(), Problem> {
        self.progress_token = Some(progress_token(text(value))?);
        Ok(())
    }

    /// For routes that show the progress of later results alone. Otherwise as [`Self::check`].
    pub fn check_for_later(&self, whole: bool, field: &'static str) -> Result<(), Problem> {
        if self.progress_token.is_some() && !self.is_async {
            let message = "progress_token requires async to be true";
            return Err(Problem::unsupported("progress_token", message));
        }
        self.check(whole, field)
    }

    /// `whole` is false where the client wants a stream or the bytes in the reply, with the field that says so.
    pub fn check(&self, whole: bool, field: &'static str) -> Result<(), Problem> {
        if self.client_ref.is_some() && !self.is_async {
            let message = "client_ref requires async to be true";
            return Err(Problem::unsupported("client_ref", message));
        }
        if self.is_async && !whole {
            let message = format!("{field} cannot be combined with async: the results are links");
            return Err(Problem::unsupported(field, message));
        }
        Ok(())
    }
}

/// The reply to a request that is served later.
pub fn accepted(jobs: &[String], client_ref: Option<&str>, is_possible: bool) -> Value {
    let first = jobs.first().map(String::as_str).unwrap_or_default();
    json!({
        "object": "media.request",
        "state": "pending",
        "job_id": first,
        "job_ids": jobs,
        "client_ref": client_ref,
        "is_possible": is_possible,
        "links": {"results": results_link(first), "cancel": format!("/v1/jobs/{first}/cancel")},
    })
}

/// The link to the results of a job.
pub fn results_link(job: &str) -> String {
    format!("/v1/media/results?job_id={job}")
}

/// The schema of [`accepted`].
pub fn accepted_schema() -> Value {
    json!({
        "type": "object",
        "required": ["object", "state", "job_id", "job_ids", "client_ref", "is_possible", "links"],
        "properties": {
            "object": {"const": "media.request"},
            "state": {"const": "pending"},
            "job_id": {"type": "string", "description": "Job of the first output."},
            "job_ids": {"type": "array", "items": {"type": "string"}},
            "client_ref": {"type": ["string", "null"]},
            "is_possible": {"type": "boolean", "description": "false: no worker that is online can serve it; it waits for one."},
            "links": {
                "type": "object",
                "required": ["results", "cancel"],
                "properties": {"results": {"type": "string"}, "cancel": {"type": "string"}},
            },
        },
    })
}

/// The outputs of a request that was served later.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MediaResults {
    pub job: String,
    pub state: MediaState,
    /// Spent, in micro-USD.
    pub cost: i64,
    /// In percent.
    pub progress: u8,
    pub media: Vec<StoredMedia>,
    pub model: String,
    pub worker: String,
    /// Duration of the slowest output.
    pub seconds: f64,
    /// The code of the failure that has closed it.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MediaState {
    #[default]
    Pending,
    Completed,
    Closed,
}

/// An output behind a link.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredMedia {
    pub url: String,
    pub key: String,
    pub sha256: Option<String>,
    pub seed: Option<u64>,
}

impl MediaState {
    const WORDS: [&str; 3] = ["pending", "completed", "closed_without_result"];

    fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

impl MediaResults {
    pub fn render(&self) -> Value {
        let seconds = (self.seconds * 100.0).round() / 100.0;
        let entry = |media: &StoredMedia| {
            json!({
                "url": media.url, "key": media.key, "sha256": media.sha256, "seed": media.seed,
            })
        };
        let media: Vec<Value> = self.media.iter().map(entry).collect();
        let result = json!({
            "media": media,
            "model": self.model,
            "worker": self.worker,
            "gen_time": seconds,
            "recipe_root": null,
        });
        json!({
            "job_id": self.job,
            "state": self.state.word(),
            "progress": self.progress,
            "actual_micro": self.cost,
            "error": self.error,
            "result": (self.state == MediaState::Completed).then_some(result),
        })
    }

    pub fn schema() -> Value {
        let media = json!({
            "type": "object",
            "required": ["url", "key", "sha256", "seed"],
            "properties": {
                "url": {"type": "string", "description": "Signed link."},
                "key": {"type": "string"},
                "sha256": {"type": ["string", "null"]},
                "seed": {"type": ["integer", "null"]},
            },
        });
        let result = json!({
            "type": ["object", "null"],
            "required": ["media", "model", "worker", "gen_time", "recipe_root"],
            "properties": {
                "media": {"type": "array", "items": media, "description": "In the order of the request."},
                "model": {"type": "string"},
                "worker": {"type": "string"},
                "gen_time": {"type": "number", "description": "Seconds of the slowest output, without the queue."},
                "recipe_root": {"type": "null"},
            },
        });
        json!({
            "type": "object",
            "required": ["job_id", "state", "progress", "actual_micro", "error", "result"],
            "properties": {
                "job_id": {"type": "string", "description": "Job of the first output."},
                "state": {"type": "string", "enum": MediaState::WORDS},
                "progress": {"type": "integer", "minimum": 0, "maximum": 100},
                "actual_micro": {"type": "integer", "description": "Spent so far, in micro-USD."},
                "error": {"type": ["string", "null"], "description": "Code of the failure that closed the request."},
                "result": result,
            },
        })
    }
}

/// An output as it goes to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedMedia {
    pub index: u32,
    /// Signed.
    pub url: Option<String>,
    pub base64: Option<String>,
    pub seed: Option<u64>,
    /// Width and height of an image.
    pub size: Option<(u32, u32)>,
}

impl FinishedMedia {
    /// The length of the link and the base64 together.
    pub fn bytes(&self) -> usize {
        let parts = self.url.iter().chain(&self.base64);
        parts.map(String::len).sum()
    }

    /// The fields of a reply that deliver it.
    pub fn insert_into(&self, entry: &mut Map<String, Value>) {
        let fields = [("url", &self.url), ("b64_json", &self.base64)];
        for (name, data) in fields {
            if let Some(data) = data {
                entry.insert(name.to_owned(), data.as_str().into());
            }
        }
    }
}

/// About the network that made the outputs of a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MediaGrid {
    pub job: String,
    pub worker: Option<String>,
    pub model: String,
    /// Duration of the slowest output.
    pub seconds: f64,
}

impl MediaGrid {
    /// Two places are enough for people; the clock of the worker is not exact.
    pub fn rounded_seconds(&self) -> f64 {
        (self.seconds * 100.0).round() / 100.0
    }

    pub fn render(&self) -> Value {
        let seconds = self.rounded_seconds();
        json!({
            "job_id": self.job,
            "worker": self.worker,
            "model": self.model,
            "gen_time": seconds,
        })
    }

    pub fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["job_id", "worker", "model", "gen_time"],
            "properties": {
                "job_id": {"type": "string", "description": "Job of the first output; X-Job-Id names all."},
                "worker": {"type": ["string", "null"]},
                "model": {"type": "string"},
                "gen_time": {"type": "number", "description": "Seconds of the slowest output, without the queue."},
            },
        })
    }
}

/// A complete reply for media whose entries have only data and seed.
pub fn reply(created: i64, outputs: &[FinishedMedia], grid: &MediaGrid) -> Value {
    let entry = |output: &FinishedMedia| {
        let mut entry = Map::from_iter([("seed".to_owned(), json!(output.seed))]);
        output.insert_into(&mut entry);
        Value::Object(entry)
    };
    let data: Vec<Value> = outputs.iter().map(entry).collect();
    json!({"created": created, "data": data, "grid": grid.render()})
}

/// The schema of [`reply`].
pub fn reply_schema() -> Value {
    let output = json!({
        "type": "object",
        "required": ["seed"],
        "properties": {
            "url": {"type": "string", "description": "Signed link."},
            "b64_json": {"type": "string", "contentEncoding": "base64"},
            "seed": {"type": ["integer", "null"]},
        },
    });
    json!({
        "type": "object",
        "required": ["created", "data", "grid"],
        "properties": {
            "created": {"type": "integer"},
            "data": {"type": "array", "items": output},
            "grid": MediaGrid::schema(),
        },
    })
}

fn progress_token(token: String) -> Result<String, Problem> {
    match token.len() {
        1..=LONGEST_TOKEN => Ok(token),
        found => {
            let message =
                format!("progress_token must have 1 to {LONGEST_TOKEN} bytes, found {found}");
            Err(Problem::invalid("progress_token", message))
        }
    }
}
