//! What the queue's refusal means to the client: which field it is about, and whether waiting helps. What no worker of
//! the model can do is the request's fault: sending it again does not help.

use crate::dispatch::{Missing, Refusal};
use crate::error::ApiError;
use crate::http::models;
use crate::http::open::KnownModels;
use muster_protocol::job::{Failure, FailureKind};
use muster_protocol::legacy::text::job::only_for_our_workers;
use muster_protocol::openai::Problem;
use muster_protocol::openai::chat::ChatRequest;

use super::auto::Auto;

pub fn explain(refusal: Refusal, request: &ChatRequest, known: &KnownModels) -> ApiError {
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
                models::unknown(model, &online)
            }
            Missing::Kind(_) => {
                Problem::unsupported("model", format!("{model} is not a text model")).into()
            }
            Missing::Format(_) => match only_for_our_workers(&request.text).first() {
                Some(name) => unsupported(field(name).to_owned(), model),
                None => about(refusal, "model"),
            },
            Missing::Capability(missing) => match request.param_of(*missing) {
                Some(param) => unsupported(param.to_owned(), model),
                None => refusal_of(refusal),
            },
            Missing::Context { .. } => about(refusal, "messages"),
            Missing::Reach(_) | Missing::Trust => about(refusal, "model"),
        },
        _ => refusal_of(refusal),
    }
}

/// What ended a job, with the field that it is about.
pub fn failed(failure: Failure) -> ApiError {
    let is_overflow = failure.kind == FailureKind::ContextLengthExceeded;
    ApiError {
        param: is_overflow.then_some("messages".into()),
        ..failure.into()
    }
}

fn unsupported(param: String, model: &str) -> ApiError {
    let message = format!("{param} is not supported by any worker that serves {model} now");
    Problem::unsupported(param, message).into()
}

fn about(refusal: Refusal, param: &'static str) -> ApiError {
    ApiError {
        param: Some(param.into()),
        ..refusal_of(refusal)
    }
}

fn refusal_of(refusal: Refusal) -> ApiError {
    Failure::from(refusal).into()
}

/// What the chat API calls a part of a text job.
fn field(name: &str) -> &str {
    match name {
        "format" => "response_format",
        other => other,
    }
}
