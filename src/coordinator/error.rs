//! Errors for clients: one type, rendered by each dialect in its own shape.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::dispatch::Refusal;
use crate::values::Roles;
use muster_protocol::job::{Failure, FailureKind, Retry};
use muster_protocol::openai::Problem;

/// An error for a client, without internal details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct ApiError {
    pub failure: Failure,
    /// The field with the error.
    pub param: Option<Cow<'static, str>>,
    /// Time until a retry.
    pub retry_after: Option<Duration>,
    /// URL for getting a key.
    pub console: Option<Arc<str>>,
    /// Overrides the kind's usual status.
    pub status: Option<u16>,
    /// The missing roles, if they are the reason.
    pub lacks: Roles,
}

/// Retry time without a measurement: a store or a coordinator is usually back soon.
const SOON: Duration = Duration::from_secs(5);
/// Usual time until a disconnected worker reconnects.
const RECONNECTED: Duration = Duration::from_secs(30);

impl ApiError {
    pub fn new(kind: FailureKind, message: impl Into<Cow<'static, str>>) -> Self {
        Failure::new(kind, message).into()
    }

    #[must_use]
    pub fn after(self, retry_after: Duration) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..self
        }
    }

    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    pub fn status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.failure.status())
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let waits = is_temporary(failure.status()) && failure.retry == Retry::Later;
        Self {
            retry_after: waits.then(|| usual_wait(failure.kind)),
            failure,
            param: None,
            console: None,
            status: None,
            lacks: Roles::NONE,
        }
    }
}

/// With the retry time measured by dispatch.
impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let wait = refusal.wait();
        let error = Self::from(Failure::from(refusal));
        Self {
            retry_after: wait.or(error.retry_after),
            ..error
        }
    }
}

/// Whether clients get a `Retry-After`.
pub fn is_temporary(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// The retry delay without a measurement.
pub fn usual_wait(kind: FailureKind) -> Duration {
    match kind {
        FailureKind::ModelOffline | FailureKind::NoWorker => RECONNECTED,
        _ => SOON,
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self {
            param: problem.param,
            ..problem.failure.into()
        }
    }
}
