//! Maps errors to failures, and their blame.

use std::time::Duration;

use tracing::warn;

use crate::link::Said;
use crate::upstream::{UpstreamError, UpstreamModel};
use muster_engine::runtime::Failure;
use muster_protocol::job;
use muster_protocol::job::{FailureKind, PromptLength};

/// Retry delay of a job when the engine is full.
const FULL: Duration = Duration::from_millis(500);
const PAUSED: Duration = Duration::from_millis(500);
/// The same for another program.
const PROGRAM_FULL: Duration = Duration::from_secs(1);

/// A coordinator's report of an engine's refusal or failure.
pub fn said(failure: Failure) -> Said {
    let kind = match failure {
        Failure::Busy { .. } => return Said::Busy { retry_after: FULL },
        Failure::Paused => {
            return Said::Busy {
                retry_after: PAUSED,
            };
        }
        Failure::PromptTooLong { found, limit } => {
            let tokens = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            // Reserves one token for the answer.
            let context = tokens(limit.saturating_add(1));
            let found = PromptLength::Exactly(tokens(found));
            return Said::Failed(job::Failure::context_overflow(context, found));
        }
        // Templates stumble over messages that they were not written for: another worker would not do better.
        Failure::BadRequest(_) | Failure::BrokenTemplate(_) => FailureKind::InvalidRequest,
        Failure::NotLoaded { .. }
        | Failure::SlowReader { .. }
        | Failure::Stopped
        | Failure::Crashed { .. }
        | Failure::Internal(_) => FailureKind::WorkerFailed,
    };
    Said::Failed(job::Failure::new(
        kind,
        without_folders(&failure.to_string()),
    ))
}

/// Reduces paths to file names, because clients must not see the owner's folders.
fn without_folders(message: &str) -> String {
    let words = message
        .split_inclusive(|character: char| character.is_whitespace() || "\"'(".contains(character));
    let shortened = |word: &str| match word
        .strip_prefix('/')
        .and_then(|path| path.rsplit_once('/'))
    {
        Some((_, name)) if !name.trim().is_empty() => name.to_owned(),
        _ => word.to_owned(),
    };
    words.map(shortened).collect()
}

/// The same for an upstream program, which is checked again if it may be gone.
pub fn said_of_program(model: &UpstreamModel, error: &UpstreamError) -> Said {
    if error.is_of_program() {
        warn!("a job of {} failed: {error}", model.name);
        model.look_again();
    }
    match error.failure() {
        Some(failure) => Said::Failed(failure),
        None => Said::Busy {
            retry_after: PROGRAM_FULL,
        },
    }
}

pub fn broken() -> Said {
    said(Failure::Stopped)
}

#[cfg(test)]
mod tests {
    use super::said;
    use crate::link::Said;
    use muster_engine::runtime::Failure;
    use muster_protocol::job::{Blame, FailureKind};

    #[test]
    fn context_overflow_is_told_in_the_words_that_clients_match() {
        let Said::Failed(failure) = said(Failure::PromptTooLong {
            found: 9000,
            limit: 8191,
        }) else {
            panic!("a failure was wanted");
        };
        assert_eq!(failure.kind, FailureKind::ContextLengthExceeded);
        let wanted = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 ";
        assert!(failure.message.starts_with(wanted), "{failure}");
    }

    #[test]
    fn files_are_told_by_their_names() {
        let Said::Failed(failure) = said(Failure::Internal(
            "reading /home/ann/loras/paper.safetensors failed: \"/srv/models/a b\" and 1/2".into(),
        )) else {
            panic!("a failure was wanted");
        };
        let message = failure.message.to_string();
        assert!(
            message.contains("reading paper.safetensors failed"),
            "{message}"
        );
        assert!(
            !message.contains("ann") && !message.contains("/srv"),
            "{message}"
        );
        assert!(message.contains("1/2"), "{message}");
    }

    #[test]
    fn the_request_is_blamed_for_itself_and_the_worker_for_the_rest() {
        let blame = |failure| match said(failure) {
            Said::Failed(failure) => Some(failure.blame),
            _ => None,
        };
        let too_long = Failure::PromptTooLong { found: 9, limit: 8 };
        assert_eq!(blame(too_long), Some(Blame::Client));
        assert_eq!(
            blame(Failure::BadRequest(String::new())),
            Some(Blame::Client)
        );
        assert_eq!(
            blame(Failure::BrokenTemplate(String::new())),
            Some(Blame::Client)
        );
        assert_eq!(blame(Failure::Stopped), Some(Blame::Worker));
        let busy = Failure::Busy {
            running: 1,
            waiting: 0,
        };
        assert_eq!(blame(busy), None);
        assert_eq!(blame(Failure::Paused), None);
    }
}
