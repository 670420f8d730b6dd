//! The rate limit of a key, for generation routes. Off by default; if set, every reply reports the requests left. (The
//! queue limits the number of concurrent jobs of an account.)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;

use crate::error::ApiError;
use crate::state::LiveSettings;
use crate::values::KeyId;
use muster_protocol::job::FailureKind;

use super::admitted::Admitted;
use super::body;
use super::journal::JournaledRequest;

#[derive(Debug)]
pub struct Limits {
    settings: LiveSettings,
    buckets: Mutex<HashMap<KeyId, Bucket>>,
}

/// A token bucket of a key; refills evenly up to one minute's worth.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// The state of a key's limit after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tally {
    per_minute: u32,
    left: u32,
    /// Time until the bucket is full.
    full_in: Duration,
    /// Retry delay, if the limit was exceeded.
    wait: Option<Duration>,
}

/// Buckets kept before the full ones are cleared away.
const MOST_BUCKETS: usize = 10_000;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");

/// Middleware of generation routes, behind their guard.
pub async fn count(
    State(limits): State<Arc<Limits>>,
    Admitted(caller): Admitted,
    request: Request,
    next: Next,
) -> Response {
    let journaled = request.extensions().get::<JournaledRequest>();
    if journaled.is_some_and(|it| it.is_repeated || it.continues.is_some()) {
        // The coordinator that was lost with it counted it.
        return next.run(request).await;
    }
    let Some(tally) = limits.ask(caller.key, Instant::now()) else {
        return next.run(request).await;
    };
    let mut response = match tally.wait {
        None => next.run(request).await,
        Some(wait) => {
            // The body is read first, since a client that is still sending may miss an early reply.
            body::discard(request.into_body()).await;
            tally.exceeded(wait).into_response()
        }
    };
    tally.tell(response.headers_mut());
    response
}

impl Limits {
    pub fn new(settings: LiveSettings) -> Self {
        Self {
            settings,
            buckets: Mutex::default(),
        }
    }

    /// Counts one request.
    fn ask(&self, key: KeyId, now: Instant) -> Option<Tally> {
        let per_minute = self.settings.current().requests_per_minute?.max(1);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MOST_BUCKETS {
            buckets.retain(|_, bucket| bucket.filled(per_minute, now) < f64::from(per_minute));
        }
        let bucket = buckets.entry(key).or_insert(Bucket {
            left: f64::from(per_minute),
            at: now,
        });
        bucket.left = bucket.filled(per_minute, now);
        bucket.at = now;
        let is_allowed = bucket.left >= 1.0;
        if is_allowed {
            bucket.left -= 1.0;
        }
        Some(bucket.tally(per_minute, is_allowed))
    }
}

impl Bucket {
    fn filled(&self, per_minute: u32, now: Instant) -> f64 {
        let most = f64::from(per_minute);
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + since * most / 60.0).min(most)
    }

    fn tally(&self, per_minute: u32, is_allowed: bool) -> Tally {
        let each = 60.0 / f64::from(per_minute);
        // Between 0 and a minute: `left` is between nothing and a minute's worth.
        let until = |requests: f64| Duration::from_secs_f64((requests - self.left).max(0.0) * each);
        Tally {
            per_minute,
            left: self.left as u32,
            full_in: until(f64::from(per_minute)),
            wait: (!is_allowed).then(|| until(1.0)),
        }
    }
}

impl Tally {
    fn exceeded(&self, wait: Duration) -> ApiError {
        let message = format!(
            "rate limit of this key: {} requests per minute",
            self.per_minute
        );
        ApiError::new(FailureKind::RateLimited, message).after(wait)
    }

    fn tell(&self, headers: &mut HeaderMap) {
        headers.insert(LIMIT, self.per_minute.into());
        headers.insert(REMAINING, self.left.into());
        if let Ok(reset) = HeaderValue::try_from(spelled(self.full_in)) {
            headers.insert(RESET, reset);
        }
    }
}

/// A duration in OpenAI's format: `120ms`, `17s`.
fn spelled(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{millis}ms"),
        millis => format!("{}s", millis.div_ceil(1000)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Limits, Tally, spelled};
    use crate::state::{DoorSettings, LiveSettings};
    use crate::values::KeyId;

    fn limits(per_minute: Option<u32>) -> Limits {
        Limits::new(settings(per_minute).into())
    }

    fn settings(requests_per_minute: Option<u32>) -> DoorSettings {
        DoorSettings {
            requests_per_minute,
            ..DoorSettings::default()
        }
    }

    #[test]
    fn a_limit_that_is_changed_applies_to_the_next_request() {
        let live = LiveSettings::from(settings(None));
        let limits = Limits::new(live.clone());
        let ask = || limits.ask(KeyId(1), Instant::now());
        assert!(ask().is_none());
        live.change(settings(Some(1)));
        assert!(ask().unwrap().wait.is_none());
        assert!(ask().unwrap().wait.is_some());
    }

    #[test]
    fn a_key_that_asks_too_often_is_told_when_to_come_back() {
        let (limits, now) = (limits(Some(2)), Instant::now());
        let ask = |key, after| {
            let tally = limits.ask(KeyId(key), now + Duration::from_secs(after));
            let Tally {
                left,
                full_in,
                wait,
                ..
            } = tally.unwrap();
            (left, full_in.as_secs(), wait.map(|wait| wait.as_secs()))
        };
        assert_eq!(ask(1, 0), (1, 30, None));
        assert_eq!(ask(1, 0), (0, 60, None));
        assert_eq!(ask(1, 0), (0, 60, Some(30)));
        assert_eq!(ask(2, 0), (1, 30, None));
        assert_eq!(ask(1, 30), (0, 60, None));
    }

    #[test]
    fn limits_are_off_unless_set() {
        let limits = limits(None);
        assert!((0..1000).all(|_| limits.ask(KeyId(1), Instant::now()).is_none()));
    }

    #[test]
    fn times_are_spelled_as_openai_spells_them() {
        assert_eq!(spelled(Duration::from_millis(120)), "120ms");
        assert_eq!(spelled(Duration::from_millis(16_001)), "17s");
    }
}
