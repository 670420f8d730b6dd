//! What comes later, and what is not here at all.

use axum::extract::{MatchedPath, OriginalUri, Request};
use axum::http::Method;

use crate::coordinator::error::ApiError;
use crate::protocol::job::FailureKind;

/// 501, with the route's name.
pub async fn answer(method: Method, path: MatchedPath) -> ApiError {
    let message = format!("{method} {} is not built yet", path.as_str());
    ApiError::new(FailureKind::NotBuilt, message)
}

pub async fn wrong_path(method: Method, OriginalUri(uri): OriginalUri) -> ApiError {
    // Other people's paths are not repeated at length.
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("there is no {method} {path}: see /openapi.json");
    ApiError {
        status: Some(404),
        ..ApiError::new(FailureKind::InvalidRequest, message)
    }
}

pub async fn wrong_method(request: Request) -> ApiError {
    let path: String = request.uri().path().chars().take(200).collect();
    let message = format!("{path} does not take {}", request.method());
    ApiError {
        status: Some(405),
        ..ApiError::new(FailureKind::InvalidRequest, message)
    }
}
