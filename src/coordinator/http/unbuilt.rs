//! Replies without a handler: 501, 404, 405, and 503 during startup.

use axum::extract::{MatchedPath, OriginalUri, Request};
use axum::http::Method;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use muster_protocol::job::FailureKind;
use muster_protocol::legacy::Refusal;

use super::horde_refusal::Refused;
use super::paths;

/// 501, with the route's name.
pub async fn answer(method: Method, path: MatchedPath) -> ApiError {
    let message = format!("{method} {} is not implemented", path.as_str());
    ApiError::new(FailureKind::NotBuilt, message)
}

pub async fn wrong_path(method: Method, OriginalUri(uri): OriginalUri) -> Response {
    // The path is untrusted: only its start is repeated.
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("no route {method} {path}; see /docs");
    refuse(404, message, uri.path())
}

pub async fn wrong_method(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(200).collect();
    let message = format!("{path} does not support {}", request.method());
    refuse(405, message, request.uri().path())
}

/// 503, until the coordinator has started.
pub async fn starting(OriginalUri(uri): OriginalUri) -> Response {
    let message = "the coordinator is starting; retry in a moment";
    unavailable(message, uri.path())
}

/// 503 with `Retry-After`.
pub fn unavailable(message: &'static str, path: &str) -> Response {
    refuse_as(FailureKind::ShuttingDown, 503, message.to_owned(), path)
}

/// The error shape of the API that the path belongs to.
pub fn refuse(status: u16, message: String, path: &str) -> Response {
    let kind = match status {
        403 => FailureKind::AccessDenied,
        _ => FailureKind::InvalidRequest,
    };
    refuse_as(kind, status, message, path)
}

fn refuse_as(kind: FailureKind, status: u16, message: String, path: &str) -> Response {
    if path.starts_with(paths::HORDE) {
        return Refused::Here(Refusal::plain(status, message)).into_response();
    }
    let error = ApiError::new(kind, message);
    error.with_status(status).into_response()
}
