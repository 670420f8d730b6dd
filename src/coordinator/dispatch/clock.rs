//! Time as a value. Durations are measured on a monotonic clock; the wall clock is only for stored times, since it may
//! jump.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Add;
use std::time::Duration;

use muster_protocol::job::UnixMillis;

/// Both clocks, read together by the shell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    pub wall: UnixMillis,
}

/// Microseconds since [`Mono::START`] before the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// A hash map with a fixed hasher, so that a seed repeats a run exactly. Keys are internal ids, which clients cannot
/// choose, so hash flooding is impossible.
pub type Table<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

impl Mono {
    /// The start of the process, 24 h after zero, so that jobs queued before the restart have a time, too.
    pub const START: Self = Self(24 * 3600 * 1_000_000);

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Earlier by `time`, down to zero.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}
