//! The client's error for a refusal by the queue: the field at fault, and whether to retry. A capability that no worker
//! of the model has is the request's fault, so a retry is pointless.

use std::cmp::Reverse;

use axum::response::Response;
use serde_json::Value;

use crate::dispatch::{Missing, Refusal};
use crate::error::ApiError;
use crate::http::models;
use crate::http::open::KnownModels;
use crate::switchboard::{ModelOnline, Overview};
use muster_protocol::job::{Capabilities, Failure, FailureKind, Formats, Kind};
use muster_protocol::openai::Problem;
use muster_protocol::openai::chat::ChatRequest;

use crate::http::auto::Auto;

/// Models named in a message.
const MOST_NAMES: usize = 10;

pub fn explain(
    refusal: Refusal,
    request: &ChatRequest,
    known: &KnownModels,
    overview: &Overview,
) -> ApiError {
    let model = &request.model;
    match &refusal {
        Refusal::TooManyJobs { wanted, most } => {
            let message =
                format!("n must be at most {most}, the job limit of this account, found {wanted}");
            Problem::invalid("n", message).into()
        }
        Refusal::Unserved { missing, online } => match missing {
            Missing::Model(_) | Missing::Absent(_) if Auto::called(model).is_some() => {
                let message = "no text model is online; retry later";
                Failure::new(FailureKind::NoWorker, message).into()
            }
            Missing::Absent(_) => about(refusal, "model"),
            Missing::Model(_) if known.contains(model) => about(refusal, "model"),
            Missing::Model(_) if online.is_empty() => {
                Failure::new(FailureKind::NoWorker, refusal.to_string()).into()
            }
            Missing::Model(_) => {
                let online: Vec<&str> = online.iter().map(|name| &**name).collect();
                models::unknown(model, &online, known)
            }
            Missing::Kind(_) => {
                let texts = others(overview, model, |_| true);
                let id = known.id(model);
                let what = models::not_of_kind(&id, "a text", overview);
                let message = format!("{what}{}", remedy("text models", &texts));
                Problem::unsupported("model", message).into()
            }
            Missing::Format(_) => match request.text.beyond_plain_text().first() {
                Some(name) => {
                    let able = others(overview, model, |other| {
                        other
                            .formats
                            .meets(Formats::NEUTRAL.with(Formats::OPENAI_CHAT))
                    });
                    unsupported(field(name).to_owned(), model, &able)
                }
                None => match overview.model(model).map(routes).unwrap_or_default() {
                    routes if routes.is_empty() => about(refusal, "model"),
                    routes => {
                        let routes = routes.join(" and ");
                        let message = format!("the workers of {model} serve only {routes} now");
                        Problem::unsupported("model", message).into()
                    }
                },
            },
            Missing::Capability(missing) => match request.param_of(*missing) {
                Some(param) => {
                    let able = others(overview, model, |other| {
                        other.capabilities.contains(*missing)
                    });
                    let names: Vec<&str> = missing.names().collect();
                    lacking(param, &names.join(" and "), model, &able)
                }
                None => refusal.into(),
            },
            Missing::Context { wanted, .. } => {
                let longer = others(overview, model, |other| other.context > *wanted);
                let mut error = about(refusal, "messages");
                if !longer.is_empty() {
                    let said = &error.failure.message;
                    let longer = longer.join(", ");
                    let message = format!("{said} Models online with enough context: {longer}.");
                    error.failure.message = message.into();
                }
                error
            }
            Missing::Reach { .. } | Missing::Trust => about(refusal, "model"),
        },
        _ => refusal.into(),
    }
}

/// Routes of a model whose workers support only their own APIs.
fn routes(model: &ModelOnline) -> Vec<&'static str> {
    if model.formats.meets(Formats::NEUTRAL.with(Formats::LEGACY)) {
        return Vec::new();
    }
    let routes = FORMAT_ROUTES.iter();
    let served = routes.filter(|(format, _)| model.formats.meets(*format));
    served.map(|(_, route)| *route).collect()
}

const FORMAT_ROUTES: [(Formats, &str); 3] = [
    (Formats::OPENAI_CHAT, "/v1/chat/completions"),
    (Formats::ANTHROPIC, "/v1/messages"),
    (Formats::OPENAI_RESPONSES, "/v1/responses"),
];

/// Refuses a chat with too many messages before any other work.
pub fn check_message_count(body: &Value, most: usize) -> Result<(), ApiError> {
    let count = body["messages"].as_array().map_or(0, Vec::len);
    if count <= most {
        return Ok(());
    }
    let message = format!("messages must have at most {most} items, found {count}");
    Err(ApiError {
        param: Some("messages".into()),
        ..ApiError::new(FailureKind::TooLarge, message)
    })
}

/// Other chat models that are online and fit, the one with the longest context first.
fn others<'a>(
    overview: &'a Overview,
    model: &str,
    fits: impl Fn(&ModelOnline) -> bool,
) -> Vec<&'a str> {
    let online = overview.models.iter();
    let is_other = |other: &&ModelOnline| {
        let chats = other.kinds.contains(Kind::Text) && other.is_interactive();
        chats && *other.name != *model && fits(other)
    };
    let mut fitting: Vec<&ModelOnline> = online.filter(is_other).collect();
    fitting.sort_by_key(|other| Reverse(other.context));
    let names = fitting.into_iter().map(|other| &*other.name);
    names.take(MOST_NAMES).collect()
}

/// `; WHAT: one, other`, or an empty text.
fn remedy(what: &str, models: &[&str]) -> String {
    match models {
        [] => String::new(),
        models => format!("; {what} online: {}", models.join(", ")),
    }
}

/// The error of a failed job, with the field that caused it.
pub fn failed(failure: Failure) -> ApiError {
    let is_overflow = failure.kind == FailureKind::ContextLengthExceeded;
    ApiError {
        param: is_overflow.then_some("messages".into()),
        ..failure.into()
    }
}

/// How workers begin a message about a grammar that they cannot compile.
const OF_GRAMMARS: [&str; 4] = [
    "the grammar",
    "the regular expression",
    "the choices",
    "choice: ",
];

/// The same error with the field that gave the grammar, where a worker could not compile it.
pub fn with_grammar_field(error: ApiError, request: &ChatRequest) -> ApiError {
    if error.param.is_some() || error.failure.kind != FailureKind::InvalidRequest {
        return error;
    }
    let message = &*error.failure.message;
    let place = message.split_once(": ").map_or("", |(place, _)| place);
    let param = match place.starts_with("tools[") {
        true => Some(place.to_owned()),
        false => {
            let is_of_grammar = OF_GRAMMARS.iter().any(|begin| message.starts_with(begin))
                || place.starts_with("response_format");
            let field = request.param_of(Capabilities::GRAMMAR);
            field.filter(|_| is_of_grammar).map(str::to_owned)
        }
    };
    ApiError {
        param: param.map(Into::into),
        ..error
    }
}

/// Whether a request failed because the input is too long for the model.
pub fn is_too_long(answer: &Result<Response, ApiError>) -> bool {
    let error = match answer {
        Ok(response) => response.extensions().get::<ApiError>(),
        Err(error) => Some(error),
    };
    error.is_some_and(|error| error.failure.kind == FailureKind::ContextLengthExceeded)
}

fn unsupported(param: String, model: &str, able: &[&str]) -> ApiError {
    let remedy = remedy("models that support it", able);
    let message = format!("{param} is not supported by any worker that serves {model} now{remedy}");
    Problem::unsupported(param, message).into()
}

fn lacking(param: &str, ability: &str, model: &str, able: &[&str]) -> ApiError {
    let remedy = remedy("models that support it", able);
    let message = format!(
        "{param} requires {ability}, which no worker that serves {model} supports now{remedy}"
    );
    Problem::unsupported(param.to_owned(), message).into()
}

fn about(refusal: Refusal, param: &'static str) -> ApiError {
    ApiError {
        param: Some(param.into()),
        ..refusal.into()
    }
}

/// The chat API's field for a part of a text job.
fn field(name: &str) -> &str {
    match name {
        "format" => "response_format",
        other => other,
    }
}
