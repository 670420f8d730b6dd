//! Calls of the AI Horde API, and the interpretation of replies. Coordinators use various software: a reply is
//! interpreted by its status first, and by its message only if the status is ambiguous.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::{Map, Value, json};
use url::Url;

use super::rounds::Came;
use super::{PolledKind, Polling, Served};
use crate::link::session::SafetyRule;
use crate::link::tls;
use muster_protocol::legacy::popped::{PoppedWork, Told};
use muster_protocol::legacy::submit::UPLOADED;
use muster_protocol::link::{MOST_VALUES, has_more_values_than};

/// A whole call. A pop is answered at once or never.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECTING: Duration = Duration::from_secs(10);
/// The error for a reply of a proxy or another program instead of the coordinator.
const STRANGE: &str = "the response is not from a coordinator";
/// Pixels of a tile, the unit of image sizes in interrogation.
const TILE: u64 = 512 * 512;
/// No answer with work for a text model is larger.
const LARGEST_ANSWER: usize = 32 << 20;

#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    key: String,
    agent: String,
}

/// An output on its way to the coordinator.
#[derive(Debug, Clone, PartialEq)]
pub enum FinishedOutput {
    Text(String),
    Image {
        seed: u64,
        /// An image that has no place in the media store, as base64.
        inline: Option<String>,
        /// The rule for an image that the safety checker flagged.
        flagged: Option<SafetyRule>,
    },
    /// The answer to a form, by the name of the form.
    Form(Map<String, Value>),
}

/// Result of a pop.
#[derive(Debug)]
pub enum Popped {
    /// Jobs, and the coordinator's messages to its workers.
    Work(PoppedWork, Vec<Told>),
    Not(Came, String),
    /// No jobs until the configuration changes.
    Refused(String),
}

/// Result of a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum Receipt {
    Taken {
        reward: f64,
    },
    /// The job was cancelled or already submitted.
    NotWanted(String),
    /// The output is not one that this coordinator takes.
    Misfit(String),
    /// A retry may succeed.
    Later(Option<Duration>, String),
}

/// An answer that is no, or none at all.
struct No {
    status: Option<StatusCode>,
    after: Option<Duration>,
    rc: String,
    message: String,
    /// Whether the error has a coordinator's format; others are from a proxy or a different program.
    is_worded: bool,
}

impl Client {
    pub fn new(line: &Polling) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured((*line.tls).clone())
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECTING)
            .timeout(PATIENCE)
            .build();
        Ok(Self {
            http: http.map_err(|error| error.without_url().to_string())?,
            base: line.base.clone(),
            key: line.key.clone(),
            agent: line.agent.clone(),
        })
    }

    /// Pops up to this many jobs.
    pub async fn pop(&self, name: &str, served: &Served, amount: usize) -> Popped {
        let models: Vec<&String> = served.models.keys().collect();
        let named = match served.kind {
            PolledKind::Text | PolledKind::Image => "models",
            PolledKind::Form => "forms",
        };
        let mut body = json!({
            "name": name,
            named: models,
            "threads": served.jobs.clamp(1, 50),
            "amount": amount.clamp(1, 20),
            "bridge_agent": self.agent,
        });
        let more = match served.kind {
            PolledKind::Text => json!({
                "max_length": served.context,
                "max_context_length": served.context,
                "nsfw": true,
            }),
            PolledKind::Image => json!({
                "max_pixels": served.pixels,
                "nsfw": served.permissions.nsfw,
                "allow_img2img": true,
                "allow_painting": true,
                "allow_unsafe_ipaddr": served.permissions.hidden_addresses,
                "allow_post_processing": false,
                "allow_controlnet": false,
                "allow_lora": served.has_loras,
                // Servers other than Muster's know it of no worker's files.
                "allow_textual_inversions": served.has_inversions,
            }),
            PolledKind::Form => json!({"max_tiles": (served.pixels / TILE).max(1)}),
        };
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        let path = match served.kind {
            PolledKind::Text => "generate/text/pop",
            PolledKind::Image => "generate/pop",
            PolledKind::Form => "interrogate/pop",
        };
        match self.call(path, &body).await {
            Ok(reply) if reply.is_object() => {
                let told = Told::all_in(&reply);
                let work = match served.kind {
                    PolledKind::Text => PoppedWork::text(reply),
                    PolledKind::Image => PoppedWork::image(reply),
                    PolledKind::Form => PoppedWork::form(reply),
                };
                Popped::Work(work, told)
            }
            Ok(_) => Popped::Not(Came::NoAnswer, STRANGE.to_owned()),
            Err(no) => no.of_a_pop(),
        }
    }

    /// Brings an output; or gives the job back.
    pub async fn submit(
        &self,
        kind: PolledKind,
        id: &str,
        brought: Option<&FinishedOutput>,
    ) -> Receipt {
        let state = match brought {
            Some(_) => "ok",
            None => "faulted",
        };
        let (generation, seed) = match brought {
            Some(FinishedOutput::Text(text)) => (text.as_str(), 0),
            Some(FinishedOutput::Image { seed, inline, .. }) => {
                (inline.as_deref().unwrap_or(UPLOADED), *seed)
            }
            Some(FinishedOutput::Form(_)) | None => ("faulted", 0),
        };
        let mut body = match (kind, brought) {
            (PolledKind::Form, Some(FinishedOutput::Form(answer))) => {
                json!({"id": id, "result": answer, "state": state})
            }
            (PolledKind::Form, _) => json!({"id": id, "result": {}, "state": "faulted"}),
            _ => json!({"id": id, "generation": generation, "state": state, "seed": seed}),
        };
        if let Some(FinishedOutput::Image {
            flagged: Some(rule),
            ..
        }) = brought
        {
            let about = match rule {
                SafetyRule::Censor | SafetyRule::Refuse => {
                    body["state"] = json!("censored");
                    body["censored"] = json!(true);
                    "censorship"
                }
                SafetyRule::Label => "information",
            };
            body["gen_metadata"] = json!([{"type": about, "value": "nsfw"}]);
        }
        let path = match kind {
            PolledKind::Text => "generate/text/submit",
            PolledKind::Image => "generate/submit",
            PolledKind::Form => "interrogate/submit",
        };
        match self.call(path, &body).await {
            Ok(reply) => match reply["reward"].as_f64() {
                Some(reward) => Receipt::Taken { reward },
                None => Receipt::Later(None, STRANGE.to_owned()),
            },
            Err(no) => no.of_a_submit(),
        }
    }

    /// Reports a job's progress. Returns whether the coordinator supports the call.
    pub async fn progress(&self, id: &str, done: usize, all: usize) -> bool {
        let body = json!({"id": id, "current_step": done.min(all), "total_steps": all});
        let unknown = [StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
        match self.call("generate/progress", &body).await {
            // An unknown job has an error code; an unknown path has none.
            Err(no) if no.status == Some(StatusCode::NOT_FOUND) => !no.rc.is_empty(),
            Err(no) => !no.status.is_some_and(|status| unknown.contains(&status)),
            Ok(_) => true,
        }
    }

    async fn call(&self, path: &str, body: &Value) -> Result<Value, No> {
        let url = format!("{}/api/v2/{path}", self.base.as_str().trim_end_matches('/'));
        let request = self.http.post(url).body(body.to_string());
        let request = request
            .header("content-type", "application/json")
            .header("apikey", &self.key)
            .header("client-agent", &self.agent);
        let response = request.send().await.map_err(No::unreachable)?;
        let (status, after) = (response.status(), header(&response, RETRY_AFTER));
        let elsewhere = header(&response, LOCATION);
        let bytes = whole(response).await?;
        let reply = read(&bytes).unwrap_or(Value::Null);
        match status.is_success() {
            true => Ok(reply),
            false => Err(No {
                status: Some(status),
                after: after.and_then(|after| after.trim().parse().ok().map(Duration::from_secs)),
                rc: reply["rc"].as_str().unwrap_or_default().to_owned(),
                is_worded: reply["message"].is_string() || reply["rc"].is_string(),
                message: said(&reply).unwrap_or_else(|| page(status, elsewhere)),
            }),
        }
    }
}

/// The first error about our request, or else the coordinator's message.
pub fn said(reply: &Value) -> Option<String> {
    let message = reply["message"].as_str()?;
    let errors = reply["errors"].as_object();
    let first = errors.and_then(|errors| errors.iter().next());
    Some(match first {
        Some((place, why)) => format!("{message} ({place}: {})", why.as_str().unwrap_or("wrong")),
        None => message.to_owned(),
    })
}

/// The error for a reply without a coordinator's message.
fn page(status: StatusCode, elsewhere: Option<String>) -> String {
    match elsewhere {
        Some(place) => format!("{STRANGE}: {status}, redirect to {place}"),
        None => format!("{STRANGE}: {status}"),
    }
}

fn header(response: &Response, name: HeaderName) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// `None` for invalid JSON, or with more values than any valid reply.
fn read(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    match has_more_values_than(MOST_VALUES, text) {
        true => None,
        false => serde_json::from_str(text).ok(),
    }
}

async fn whole(mut response: Response) -> Result<Vec<u8>, No> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(No::unreachable)? {
        if bytes.len() + chunk.len() > LARGEST_ANSWER {
            return Err(No::none("the response is too large"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

impl No {
    fn unreachable(error: reqwest::Error) -> Self {
        // Omits the URL, which is in the configuration, and keeps the cause.
        let error = error.without_url();
        if let Some(why) = tls::explain(&error) {
            return Self::none(&why);
        }
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let cause = causes.last().map(ToString::to_string);
        Self::none(&cause.unwrap_or_else(|| error.to_string()))
    }

    fn none(message: &str) -> Self {
        Self {
            status: None,
            after: None,
            rc: String::new(),
            message: message.to_owned(),
            is_worded: false,
        }
    }

    fn is_maintenance(&self) -> bool {
        let message = self.message.to_lowercase();
        matches!(&*self.rc, "WorkerMaintenance" | "WorkerFlaggedMaintenance")
            || message.contains("maintenance mode")
    }

    /// Whether the job was already submitted, or cancelled. Some coordinators report this only in the message.
    fn is_too_late(&self) -> bool {
        let words = ["already submitted", "aborted", "does not exist"];
        matches!(&*self.rc, "DuplicateGen" | "AbortedGen" | "InvalidJobID")
            || words.iter().any(|words| self.message.contains(words))
    }

    fn of_a_pop(self) -> Popped {
        let came = match self.status.map(|status| status.as_u16()) {
            None | Some(408 | 500 | 502..) => Came::NoAnswer,
            Some(429) => Came::TooOften(self.after),
            Some(403) if self.is_maintenance() => Came::Maintenance,
            Some(403) if matches!(&*self.rc, "TimeoutIP" | "TooManyNewIPs") => {
                Came::TooOften(self.after)
            }
            Some(_) if !self.is_worded => Came::NoAnswer,
            Some(_) => return Popped::Refused(self.message),
        };
        Popped::Not(came, self.message)
    }

    fn of_a_submit(self) -> Receipt {
        match self.status.map(|status| status.as_u16()) {
            None | Some(401 | 408 | 429 | 500..) => Receipt::Later(self.after, self.message),
            Some(_) if !self.is_worded => Receipt::Later(self.after, self.message),
            Some(400) if !self.is_too_late() => Receipt::Misfit(self.message),
            Some(_) => Receipt::NotWanted(self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use serde_json::json;

    use super::{Came, No, Popped, Receipt, said};

    fn no(status: u16, rc: &str, message: &str) -> No {
        No {
            status: StatusCode::from_u16(status).ok(),
            after: None,
            rc: rc.to_owned(),
            message: message.to_owned(),
            is_worded: !message.is_empty(),
        }
    }

    fn popped(status: u16, rc: &str, message: &str) -> Result<Came, String> {
        match no(status, rc, message).of_a_pop() {
            Popped::Not(came, _) => Ok(came),
            Popped::Refused(why) => Err(why),
            Popped::Work(..) => panic!("a refusal is no job"),
        }
    }

    #[test]
    fn a_refusal_is_for_good_where_only_people_can_mend_it() {
        let hint = "we cannot accept workers serving this";
        assert_eq!(popped(401, "InvalidAPIKey", "key"), Err("key".to_owned()));
        assert_eq!(popped(403, "WrongCredentials", "no"), Err("no".to_owned()));
        assert_eq!(popped(400, "BadRequest", hint), Err(hint.to_owned()));
        assert_eq!(
            popped(404, "", "nothing here"),
            Err("nothing here".to_owned())
        );
        assert_eq!(popped(501, "", "not built"), Err("not built".to_owned()));
    }

    #[test]
    fn everything_else_passes() {
        assert_eq!(popped(403, "WorkerMaintenance", "x"), Ok(Came::Maintenance));
        let words = "Worker is in Maintenance Mode: updating";
        assert_eq!(popped(403, "", words), Ok(Came::Maintenance));
        assert_eq!(popped(429, "", "2 per 1 second"), Ok(Came::TooOften(None)));
        assert_eq!(popped(403, "TooManyNewIPs", "x"), Ok(Came::TooOften(None)));
        assert_eq!(popped(503, "", "later"), Ok(Came::NoAnswer));
        assert_eq!(popped(500, "", "oops"), Ok(Came::NoAnswer));
        for page in [302, 403, 404] {
            assert_eq!(popped(page, "", ""), Ok(Came::NoAnswer), "{page}");
        }
    }

    #[test]
    fn what_nobody_wants_is_not_brought_again() {
        let brought = |status| no(status, "", "m").of_a_submit();
        let twice = no(400, "DuplicateGen", "m").of_a_submit();
        assert_eq!(twice, Receipt::NotWanted("m".to_owned()));
        assert_eq!(brought(400), Receipt::Misfit("m".to_owned()));
        for status in [403, 404] {
            assert_eq!(
                brought(status),
                Receipt::NotWanted("m".to_owned()),
                "{status}"
            );
        }
        for status in [401, 408, 429, 500, 503] {
            let later = Receipt::Later(None, "m".to_owned());
            assert_eq!(brought(status), later, "{status}");
        }
        for page in [302, 400, 403, 404, 413] {
            let later = Receipt::Later(None, String::new());
            assert_eq!(no(page, "", "").of_a_submit(), later, "{page}");
        }
    }

    #[test]
    fn a_complaint_names_the_place() {
        let reply = json!({"message": "wrong", "errors": {"name": "too long"}});
        assert_eq!(said(&reply).unwrap(), "wrong (name: too long)");
        assert_eq!(said(&json!({"message": "no"})).unwrap(), "no");
        assert_eq!(said(&json!([])), None);
    }
}
