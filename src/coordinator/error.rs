//! What a client is told when something fails: one type, rendered by each dialect in its own shape.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::Roles;
use muster_protocol::job::{Failure, FailureKind, Retry};
use muster_protocol::openai::Problem;

/// A failure on its way out of a door. What went wrong inside is in no field of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct ApiError {
    pub failure: Failure,
    /// The field it is about.
    pub param: Option<Cow<'static, str>>,
    /// When it may go better.
    pub retry_after: Option<Duration>,
    /// Where to get a key.
    pub console: Option<Arc<str>>,
    /// Where the kind's usual status is not the right one.
    pub status: Option<u16>,
    /// The roles whose lack is the reason, where it is that.
    pub lacks: Roles,
}

/// When nothing better is known.
const SOON: Duration = Duration::from_secs(5);

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
        let waits = matches!(failure.status(), 429 | 503) && failure.retry == Retry::Later;
        Self {
            retry_after: waits.then_some(SOON),
            failure,
            param: None,
            console: None,
            status: None,
            lacks: Roles::NONE,
        }
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
