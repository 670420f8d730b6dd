//! What went wrong, and whose fault it was.

use std::time::Duration;

use crate::link::Said;
use crate::protocol::job;
use crate::protocol::job::FailureKind;
use crate::runtime::Failure;

/// How soon an engine that is full may be asked again.
const FULL: Duration = Duration::from_millis(500);
const PAUSED: Duration = Duration::from_millis(500);

/// What a coordinator is told of an engine's refusal or failure.
pub fn said(failure: Failure) -> Said {
    let kind = match failure {
        Failure::Busy { .. } => return Said::Busy { retry_after: FULL },
        Failure::Paused => {
            return Said::Busy {
                retry_after: PAUSED,
            };
        }
        Failure::PromptTooLong { .. } => FailureKind::ContextLengthExceeded,
        // Templates stumble over messages that they were not written for: another worker would not do better.
        Failure::BadRequest(_) | Failure::BrokenTemplate(_) => FailureKind::InvalidRequest,
        Failure::NotLoaded { .. }
        | Failure::SlowReader { .. }
        | Failure::Stopped
        | Failure::Internal(_) => FailureKind::WorkerFailed,
    };
    Said::Failed(job::Failure::new(kind, failure.to_string()))
}

pub fn broken() -> Said {
    said(Failure::Stopped)
}

#[cfg(test)]
mod tests {
    use super::said;
    use crate::link::Said;
    use crate::protocol::job::Blame;
    use crate::runtime::Failure;

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
