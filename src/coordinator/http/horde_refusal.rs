//! Refusals in the codes of this API. Errors of guards and extractors, which all APIs share, are translated here.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::debug;

use super::reply::with_status;
use crate::error::{ApiError, is_temporary, usual_wait};
use crate::storage::StorageError;
use crate::values::Roles;
use muster_protocol::job::FailureKind;
use muster_protocol::legacy::{Code, Refusal};

/// A handler's refusal.
#[derive(Debug)]
pub enum Refused {
    Here(Refusal),
    /// An error of a shared guard or extractor; [`reword`] translates it.
    Door(ApiError),
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::Here(refusal)
    }
}

impl From<Code> for Refused {
    fn from(code: Code) -> Self {
        Self::Here(code.into())
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self::Door(error)
    }
}

impl From<StorageError> for Refused {
    fn from(error: StorageError) -> Self {
        debug!("AI Horde API request failed: {error}");
        let message = "the database is unavailable; retry later";
        Self::Here(Refusal::plain(503, message))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let refusal = match self {
            Self::Here(refusal) => refusal,
            Self::Door(error) => return error.into_response(),
        };
        let status = StatusCode::from_u16(refusal.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = with_status(status, &refusal.body());
        if is_temporary(status.as_u16()) {
            let wait = usual_wait(FailureKind::QueueFull).as_secs();
            response.headers_mut().insert(RETRY_AFTER, wait.into());
        }
        response
    }
}

/// Middleware of every route of this API.
pub async fn reword(request: Request, next: Next) -> Response {
    let has_key = ["apikey", "authorization", "x-api-key"]
        .iter()
        .any(|name| request.headers().contains_key(*name));
    let response = next.run(request).await;
    let Some(error) = response.extensions().get::<ApiError>() else {
        return response;
    };
    let mut reworded = Refused::Here(refusal(error, has_key)).into_response();
    for name in [RETRY_AFTER, WWW_AUTHENTICATE] {
        if let Some(value) = response.headers().get(&name) {
            reworded.headers_mut().insert(name, value.clone());
        }
    }
    reworded
}

fn refusal(error: &ApiError, has_key: bool) -> Refusal {
    let message = error.failure.message.to_string();
    match error.failure.kind {
        FailureKind::InvalidKey if has_key => Code::InvalidApiKey.into(),
        FailureKind::InvalidKey => Refusal::MissingKey,
        FailureKind::AccessDenied if error.lacks == Roles::NONE => {
            Refusal::new(Code::Forbidden, message)
        }
        FailureKind::AccessDenied => lacking(error.lacks).into(),
        FailureKind::AccountDeleted => Code::DeletedUser.into(),
        FailureKind::AccountSuspended => Refusal::new(Code::Forbidden, message),
        FailureKind::InFlightLimit => Refusal::new(Code::TooManyPrompts, message),
        _ => Refusal::plain(error.status(), message),
    }
}

/// The code for an account without these roles.
fn lacking(roles: Roles) -> Code {
    match roles {
        Roles::ADMIN => Code::NotAdmin,
        Roles::MODERATOR => Code::NotModerator,
        _ => Code::Forbidden,
    }
}
