//! What the queue's refusal means to the one who asked: which field it is about, and whether waiting helps.

use crate::coordinator::dispatch::{Missing, Refusal};
use crate::coordinator::error::ApiError;
use crate::coordinator::http::models;
use crate::coordinator::http::open::KnownModels;
use crate::protocol::job::{Failure, FailureKind};
use crate::protocol::openai::chat::ChatRequest;

pub fn explain(refusal: Refusal, request: &ChatRequest, known: &KnownModels) -> ApiError {
    let param = match &refusal {
        Refusal::Unserved { missing, online } => match missing {
            Missing::Model(_) if !online.is_empty() && !known.contains(&request.model) => {
                let online: Vec<&str> = online.iter().map(|name| &**name).collect();
                return models::unknown(&request.model, &online);
            }
            Missing::Model(_) if !known.contains(&request.model) => {
                return ApiError::from(Failure::new(FailureKind::NoWorker, refusal.to_string()));
            }
            Missing::Capability(missing) => request.param_of(*missing),
            Missing::Context { .. } => Some("messages"),
            _ => Some("model"),
        },
        _ => None,
    };
    let param = param.map(str::to_owned);
    ApiError {
        param: param.map(Into::into),
        ..Failure::from(refusal).into()
    }
}
