//! Ids and moments as distinct types, so that one cannot be used for another.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::{NoContext, Timestamp, Uuid};

/// A client's request, with all of its outputs. In the AI Horde API, knowing the id is permission to read the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub Uuid);

/// One output of a request: the unit of offers to workers and of payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

/// An account's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub i64);

impl AccountId {
    /// The account of all requests without a key.
    pub const ANONYMOUS: Self = Self(0);
}

/// A worker's row: the same for one name across all its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub i64);

/// Database id of a shared key. Not a secret: [`SharedKeyText`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedKeyId(pub Uuid);

/// A shared key as its holders send it. Knowing it is permission to use it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedKeyText(Uuid);

/// Kudos in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kudos(pub i64);

/// Wall-clock time in milliseconds since the Unix epoch. Not for measuring durations, since the clock may jump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub i64);

/// A time-ordered id (UUIDv7) for rows written by the thousand, so that rows of the same time are neighbours in every
/// index. The other 74 bits are random and cannot be guessed.
pub fn timely() -> Uuid {
    of(Timestamp::now(NoContext))
}

fn of(moment: Timestamp) -> Uuid {
    Uuid::new_v7(moment)
}

/// The last 62 bits, all of them random.
fn drawn(id: Uuid) -> u64 {
    id.as_u64_pair().1 & (u64::MAX >> 2)
}

impl RequestId {
    pub fn random() -> Self {
        Self(timely())
    }

    /// A pseudo-random number derived from the id.
    pub fn drawn(self) -> u64 {
        drawn(self.0)
    }
}

impl JobId {
    pub fn random() -> Self {
        Self(timely())
    }

    /// A pseudo-random number derived from the id.
    pub fn drawn(self) -> u64 {
        drawn(self.0)
    }
}

impl SharedKeyId {
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl SharedKeyText {
    pub fn new(key: Uuid) -> Self {
        Self(key)
    }

    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// The secret text.
    pub fn expose(self) -> Uuid {
        self.0
    }
}

impl fmt::Debug for SharedKeyText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedKeyText(hidden)")
    }
}

impl fmt::Display for SharedKeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for SharedKeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedKeyId(hidden)")
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl UnixMillis {
    /// Later by `wait`, saturating.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// Earlier by `time`, saturating.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::{NoContext, Timestamp};

    use super::{JobId, of};

    #[test]
    fn later_ids_are_greater_and_what_is_drawn_from_them_is_random() {
        let moments = (0..50).map(|second| Timestamp::from_unix(NoContext, second, 0));
        let ids: Vec<JobId> = moments.map(|moment| JobId(of(moment))).collect();
        assert!(ids.is_sorted());
        let drawn: Vec<u64> = ids.iter().map(|id| id.drawn()).collect();
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 50);
        assert!(!drawn.is_sorted());
        // A bit that was the same in all of them would not be random.
        let (all, any) = drawn
            .iter()
            .fold((u64::MAX, 0), |(all, any), one| (all & one, any | one));
        assert_eq!((all, any), (0, u64::MAX >> 2));
    }
}
