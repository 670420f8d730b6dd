//! The error of a request, and its field.

use std::borrow::Cow;

use crate::job::{Failure, FailureKind};

/// A failure of the request itself, with the name of the field it is about: `messages[2].content`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct Problem {
    pub failure: Failure,
    pub param: Option<Cow<'static, str>>,
    /// The field is unknown, whatever its value.
    pub is_unknown: bool,
}

impl Problem {
    /// The value cannot be meant like this.
    pub fn invalid(
        param: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::about(FailureKind::InvalidRequest, param, message)
    }

    /// The value has a meaning, and it cannot be honoured here.
    pub fn unsupported(
        param: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::about(FailureKind::UnsupportedValue, param, message)
    }

    /// The body as a whole cannot be read.
    pub fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::from(Failure::new(FailureKind::InvalidRequest, message))
    }

    fn about(
        kind: FailureKind,
        param: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            failure: Failure::new(kind, message),
            param: Some(param.into()),
            is_unknown: false,
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            param: None,
            is_unknown: false,
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        problem.failure
    }
}
