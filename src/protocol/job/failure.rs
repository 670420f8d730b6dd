//! Failures of jobs: the cause, the party to blame, and the error of every dialect.
//!
//! One table, [`FailureKind::row`], holds the HTTP status and the stable code of each kind; a dialect only decides the
//! shape around them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A failure for the client. The message is for people and contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    pub blame: Blame,
    pub retry: Retry,
    pub message: Cow<'static, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The request itself: no strike, and no retry on another worker.
    Client,
    /// The worker that had it.
    Worker,
    /// The coordinator: no strike.
    Service,
}

/// Whether the same request may succeed if it is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    Never,
    Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    InvalidRequest,
    UnsupportedValue,
    ContextLengthExceeded,
    ContentRefused,
    InvalidKey,
    InsufficientCredits,
    AccessDenied,
    AccountDeleted,
    AccountSuspended,
    TooLarge,
    ModelNotFound,
    ModelOffline,
    NotBuilt,
    RateLimited,
    InFlightLimit,
    StorageQuota,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    NoWorker,
    WorkerFailed,
    WorkerLost,
    EmptyResult,
    BadJob,
    Stalled,
    Expired,
    SlowClient,
    Cancelled,
    Internal,
}

/// Tokens of a prompt, as far as the refusing side knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptLength {
    Exactly(u32),
    AtLeast(u32),
}

/// The public properties of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureRow {
    pub status: u16,
    pub code: &'static str,
    pub blame: Blame,
    pub retry: Retry,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<Cow<'static, str>>) -> Self {
        let FailureRow { blame, retry, .. } = kind.row();
        Self {
            kind,
            blame,
            retry,
            message: message.into(),
        }
    }

    /// The prompt does not fit into the model's context. Clients search the message for its first words.
    pub fn context_overflow(longest: u32, prompt: PromptLength) -> Self {
        let found = match prompt {
            PromptLength::Exactly(tokens) => tokens.to_string(),
            PromptLength::AtLeast(tokens) => format!("at least {tokens}"),
        };
        let message = format!(
            "This model's maximum context length is {longest} tokens. However, your messages resulted in {found} \
             tokens. Please reduce the length of the messages."
        );
        Self::new(FailureKind::ContextLengthExceeded, message)
    }

    pub fn status(&self) -> u16 {
        self.kind.row().status
    }

    pub fn code(&self) -> &'static str {
        self.kind.row().code
    }
}

impl FailureKind {
    #[rustfmt::skip]
    pub const ALL: &[Self] = &[
        Self::InvalidRequest, Self::UnsupportedValue, Self::ContextLengthExceeded, Self::ContentRefused,
        Self::InvalidKey, Self::InsufficientCredits, Self::AccessDenied, Self::AccountDeleted, Self::AccountSuspended, Self::TooLarge, Self::ModelNotFound,
        Self::ModelOffline, Self::NotBuilt, Self::RateLimited, Self::InFlightLimit, Self::StorageQuota, Self::QueueFull,
        Self::ShuttingDown, Self::StoreUnavailable, Self::NoWorker, Self::WorkerFailed, Self::WorkerLost,
        Self::EmptyResult, Self::BadJob, Self::Stalled, Self::Expired, Self::SlowClient, Self::Cancelled,
        Self::Internal,
    ];

    /// The table. A code is a promise: clients compare it, so it never changes its spelling or its meaning.
    #[rustfmt::skip]
    pub const fn row(self) -> FailureRow {
        use Blame::{Client, Service, Worker};
        use Retry::{Later, Never};
        let (status, code, blame, retry) = match self {
            Self::InvalidRequest        => (400, "invalid_request",         Client,  Never),
            Self::UnsupportedValue      => (400, "unsupported_value",       Client,  Never),
            Self::ContextLengthExceeded => (400, "context_length_exceeded", Client,  Never),
            Self::ContentRefused        => (400, "content_policy_violation", Client, Never),
            Self::InvalidKey            => (401, "invalid_api_key",         Client,  Never),
            Self::InsufficientCredits   => (402, "insufficient_credits",    Client,  Never),
            Self::AccessDenied          => (403, "access_denied",           Client,  Never),
            Self::AccountDeleted        => (403, "account_deleted",         Client,  Never),
            Self::AccountSuspended      => (403, "account_suspended",       Client,  Never),
            Self::StorageQuota          => (403, "storage_quota_exceeded",  Client,  Never),
            Self::ModelNotFound         => (404, "model_not_found",         Client,  Never),
            Self::TooLarge              => (413, "request_too_large",       Client,  Never),
            Self::RateLimited           => (429, "rate_limit_exceeded",     Client,  Later),
            Self::InFlightLimit         => (429, "in_flight_limit",         Client,  Later),
            // Read by logs and settled rows; the client it is about has left or does not listen.
            Self::Cancelled             => (499, "cancelled",               Client,  Never),
            Self::SlowClient            => (499, "slow_client",             Client,  Later),
            Self::Internal              => (500, "internal_error",          Service, Later),
            Self::NotBuilt              => (501, "not_implemented",         Service, Never),
            Self::WorkerFailed          => (502, "worker_failed",           Worker,  Later),
            Self::WorkerLost            => (502, "worker_lost",             Worker,  Later),
            Self::EmptyResult           => (502, "empty_result",            Worker,  Later),
            Self::Stalled               => (502, "worker_stalled",          Worker,  Later),
            Self::BadJob                => (502, "bad_job",                 Client,  Never),
            Self::ModelOffline          => (503, "model_offline",           Service, Later),
            Self::NoWorker              => (503, "no_worker",               Service, Later),
            Self::QueueFull             => (503, "queue_full",              Service, Later),
            Self::ShuttingDown          => (503, "shutting_down",           Service, Later),
            Self::StoreUnavailable      => (503, "store_unavailable",       Service, Later),
            Self::Expired               => (504, "expired",                 Service, Later),
        };
        FailureRow { status, code, blame, retry }
    }
}

#[cfg(test)]
mod tests {
    use super::{Blame, FailureKind};

    #[test]
    fn a_client_is_blamed_for_4xx_only_and_for_bad_jobs() {
        for kind in [FailureKind::InvalidRequest, FailureKind::SlowClient] {
            assert_eq!(kind.row().blame, Blame::Client);
            assert!(kind.row().status < 500);
        }
        assert_eq!(FailureKind::BadJob.row().blame, Blame::Client);
        assert_eq!(FailureKind::Expired.row().status, 504);
    }
}
