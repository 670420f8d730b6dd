//! Reasons for suspicion. Prompts and refused requests are counted by `moderation`, workers' names and actions by `rigs`.

use muster_protocol::job::{AccountId, WorkerId};

/// From this level on an account cannot transfer kudos, and a worker is paused.
pub const TOO_MUCH: u32 = 5;

/// A suspicion mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The suspected account; for a worker its owner.
    pub account: AccountId,
    pub worker: Option<WorkerId>,
    pub reason: Reason,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $name:literal,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $($(#[doc = $doc])+ $reason,)+ }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// The stored name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$reason => $name,)+ }
            }
        }
    };
}

reasons! {
    /// A worker's name is long.
    WorkerNameLong = "worker_name_long",
    /// A worker's name is far too long.
    WorkerNameExtreme = "worker_name_extreme",
    /// A worker's name is profane.
    WorkerNameProfane = "worker_name_profane",
    /// A user's name is profane.
    UserNameProfane = "user_name_profane",
    /// An address that hides where its user is.
    UnsafeAddress = "unsafe_address",
    /// A worker claims larger images than any GPU can generate.
    ExtremeMaxPixels = "extreme_max_pixels",
    /// A worker is faster than any card can be.
    TooFast = "too_fast",
    /// A user's name is long.
    UserNameLong = "user_name_long",
    /// A prompt was refused by the filters.
    CorruptPrompt = "corrupt_prompt",
    /// A worker drops too many of its jobs.
    DroppedJobs = "dropped_jobs",
}

impl Reason {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.name() == name)
    }

    /// Whether every occurrence counts, or only the first.
    pub const fn repeats(self) -> bool {
        matches!(self, Self::TooFast | Self::DroppedJobs)
    }
}

/// The suspicion level from the count of each reason.
pub fn total(marks: &[(Reason, u32)]) -> u32 {
    let counted = marks.iter().map(|(reason, count)| match reason.repeats() {
        true => *count,
        false => (*count).min(1),
    });
    counted.fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::{Reason, total};

    #[test]
    fn most_reasons_count_once_and_two_of_them_every_time() {
        assert_eq!(total(&[]), 0);
        assert_eq!(
            total(&[(Reason::CorruptPrompt, 3), (Reason::TooFast, 3)]),
            4
        );
        assert_eq!(
            total(&[(Reason::TooFast, u32::MAX), (Reason::DroppedJobs, 2)]),
            u32::MAX
        );
    }

    #[test]
    fn reasons_are_stored_by_their_names() {
        for reason in Reason::ALL {
            assert_eq!(Reason::named(reason.name()), Some(*reason));
        }
        assert_eq!(Reason::named("a reason of tomorrow"), None);
    }
}
