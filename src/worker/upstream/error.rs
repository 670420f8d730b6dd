//! Why a program did not do a job.

use std::time::Duration;

use muster_protocol::job::{Failure, FailureKind};

/// Characters of a program's own words.
const MOST_WORDS: usize = 300;

/// The reason, for the client; no address is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    #[error("the program that serves the model cannot be reached: {0}")]
    Unreachable(String),
    #[error("the program that serves the model has sent nothing for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the program that serves the model is busy")]
    Busy,
    /// The request is at fault, in the words of the program.
    #[error("the program that serves the model refuses the request: {0}")]
    Refused(String),
    #[error("{0}")]
    TooLong(String),
    /// The setting is none that the program knows.
    #[error("{0} is not supported by the program that serves the model")]
    Unsupported(&'static str),
    #[error("the program that serves the model failed: {0}")]
    Failed(String),
}

impl UpstreamError {
    /// An HTTP status that is no success, with the program's words.
    pub fn of_status(status: u16, words: &str) -> Self {
        let words = shortened(words);
        let is_too_long = || {
            let lower = words.to_lowercase();
            [
                "context length",
                "context size",
                "maximum context",
                "too many tokens",
                "prompt is too long",
            ]
            .iter()
            .any(|phrase| lower.contains(phrase))
        };
        match status {
            400 | 413 | 422 if is_too_long() => Self::TooLong(words),
            400 | 413 | 422 | 501 => Self::Refused(match words.is_empty() {
                true => format!("status {status}"),
                false => words,
            }),
            429 | 503 => Self::Busy,
            401 | 403 => Self::Failed(format!("status {status}: it expects another key")),
            _ => Self::Failed(format!("status {status} {words}").trim_end().to_owned()),
        }
    }

    /// The failure reported to a coordinator; `None` hands the job back.
    pub fn failure(&self) -> Option<Failure> {
        let kind = match self {
            Self::Busy => return None,
            Self::Refused(_) | Self::Unsupported(_) => FailureKind::UnsupportedValue,
            Self::TooLong(_) => FailureKind::ContextLengthExceeded,
            Self::Unreachable(_) | Self::Silent(_) | Self::Failed(_) => FailureKind::WorkerFailed,
        };
        Some(Failure::new(kind, self.to_string()))
    }

    /// Whether the program may be gone.
    pub fn is_of_program(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_) | Self::Silent(_) | Self::Failed(_)
        )
    }
}

/// A program's error text on one line, without control characters.
pub fn shortened(words: &str) -> String {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = words.chars().filter(|one| !one.is_control());
    words.take(MOST_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::UpstreamError;
    use muster_protocol::job::{Blame, FailureKind};

    #[test]
    fn a_program_is_blamed_for_itself_and_a_request_for_itself() {
        let told = |status, words| UpstreamError::of_status(status, words).failure();
        let kind = |status, words| told(status, words).map(|failure| failure.kind);
        assert_eq!(kind(503, "loading model"), None);
        assert_eq!(kind(500, "CUDA error"), Some(FailureKind::WorkerFailed));
        assert_eq!(kind(404, ""), Some(FailureKind::WorkerFailed));
        assert_eq!(kind(400, "no tools"), Some(FailureKind::UnsupportedValue));
        let long = "This model's maximum context length is 2048 tokens.";
        assert_eq!(kind(400, long), Some(FailureKind::ContextLengthExceeded));
        let blame = told(401, "no").map(|failure| failure.blame);
        assert_eq!(blame, Some(Blame::Worker));
        let noise = format!("a\u{1b}[2J\n{}", "b".repeat(9000));
        let message = told(400, &noise).unwrap().message.to_string();
        assert!(
            message.len() < 500 && !message.contains('\u{1b}'),
            "{message}"
        );
    }
}
