//! How often a key may ask. Off unless set. (How many jobs an account may have at a time is a matter of the queue.)

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::coordinator::accounts::{Caller, KeyId};
use crate::coordinator::error::ApiError;
use crate::coordinator::state::DoorSettings;
use crate::protocol::job::FailureKind;

#[derive(Debug)]
pub struct Limits {
    per_minute: Option<u32>,
    buckets: Mutex<HashMap<KeyId, Bucket>>,
}

/// Requests a key has left. It fills up evenly, to a minute's worth at most.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// Buckets kept before the full ones are cleared away.
const MOST_BUCKETS: usize = 10_000;

impl Limits {
    pub fn new(settings: &DoorSettings) -> Self {
        Self {
            per_minute: settings.requests_per_minute,
            buckets: Mutex::default(),
        }
    }

    /// Counts one request.
    pub fn ask(&self, caller: &Caller) -> Result<(), ApiError> {
        self.ask_at(caller.key, Instant::now())
    }

    fn ask_at(&self, key: KeyId, now: Instant) -> Result<(), ApiError> {
        let Some(per_minute) = self.per_minute else {
            return Ok(());
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST_BUCKETS {
            buckets.retain(|_, bucket| bucket.filled(per_minute, now) < f64::from(per_minute));
        }
        let bucket = buckets.entry(key).or_insert(Bucket {
            left: f64::from(per_minute),
            at: now,
        });
        bucket.left = bucket.filled(per_minute, now);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let wait = Duration::from_secs_f64((1.0 - bucket.left) * 60.0 / f64::from(per_minute));
        let message = format!("this key may ask {per_minute} times a minute");
        Err(ApiError::new(FailureKind::RateLimited, message).after(wait))
    }
}

impl Bucket {
    fn filled(&self, per_minute: u32, now: Instant) -> f64 {
        let most = f64::from(per_minute);
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + since * most / 60.0).min(most)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Limits;
    use crate::coordinator::accounts::KeyId;
    use crate::coordinator::state::DoorSettings;

    fn limits(per_minute: Option<u32>) -> Limits {
        Limits::new(&DoorSettings {
            requests_per_minute: per_minute,
            ..DoorSettings::default()
        })
    }

    #[test]
    fn a_key_that_asks_too_often_is_told_when_to_come_back() {
        let (limits, now) = (limits(Some(2)), Instant::now());
        let ask = |key, after| limits.ask_at(KeyId(key), now + Duration::from_secs(after));
        assert!(ask(1, 0).is_ok() && ask(1, 0).is_ok());
        let error = ask(1, 0).unwrap_err();
        assert_eq!(error.status(), 429);
        assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
        assert!(ask(2, 0).is_ok());
        assert!(ask(1, 31).is_ok());
    }

    #[test]
    fn limits_are_off_unless_set() {
        let limits = limits(None);
        assert!((0..1000).all(|_| limits.ask_at(KeyId(1), Instant::now()).is_ok()));
    }
}
