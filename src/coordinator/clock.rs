//! The wall clock, for stored times. Not for measuring durations, since it may jump.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_protocol::job::UnixMillis;

pub fn wall_clock() -> UnixMillis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixMillis::default().after(since.unwrap_or_default())
}

/// The start of the service in seconds, as the creation time of models.
pub fn started_at() -> i64 {
    static STARTED: LazyLock<i64> = LazyLock::new(|| wall_clock().0.div_euclid(1000));
    *STARTED
}

/// `2026-01-31T12:00:00Z`
pub fn rfc3339(moment: UnixMillis) -> String {
    let millis = u64::try_from(moment.0).unwrap_or(0);
    // Later years than the format has are of no clock that works.
    let moment = UNIX_EPOCH + Duration::from_millis(millis.min(LAST_MILLIS));
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// The end of the year 9999.
const LAST_MILLIS: u64 = 253_402_300_799_000;
