//! Time as a value. Waits are measured on a clock that only goes forward; the wall clock is for what is stored,
//! and may jump.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Add;
use std::time::Duration;

use crate::protocol::job::UnixMillis;

/// Both clocks, read together by the shell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    pub wall: UnixMillis,
}

/// Microseconds since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// A table by an identity of our own. Its hashes are the same in every run, so that a seed repeats a run
/// exactly; nobody outside chooses the keys.
pub type Table<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

impl Mono {
    /// How long after `earlier` this is; nothing when it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}
