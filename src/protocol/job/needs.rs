//! What a job needs and a worker offers, as small sets that compare in one instruction.

use std::fmt;

use super::ids::WorkerId;

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Text,
    Image,
    Video,
    Audio,
    Mesh,
    /// What is in an image.
    Interrogation,
}

/// A set of [`Kind`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kinds(u8);

/// A set of request formats a worker understands.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Formats(u8);

/// How much a worker that polls for jobs takes. The public contract states both for the whole job, whatever its prompt
/// turns out to be; workers on a socket have no such limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    /// Tokens of context.
    pub window: u32,
    /// Tokens of output.
    pub output: u32,
    /// Width times height of an image.
    pub pixels: u32,
    /// Steps of an image, as they are counted; of a worker, as many as it draws with each of its models.
    pub steps: u32,
}

/// Which workers may serve it: all, only some, or all but some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Targets {
    named: [Option<WorkerId>; Targets::MOST],
    denied: bool,
}

impl Targets {
    pub const MOST: usize = 5;

    /// Only these, or all but these. Further ones are left out.
    pub fn of(workers: impl IntoIterator<Item = WorkerId>, denied: bool) -> Self {
        let mut named = [None; Self::MOST];
        for (place, worker) in named.iter_mut().zip(workers) {
            *place = Some(worker);
        }
        // Those who name the same wait in the same line.
        named.sort_unstable();
        let denied = denied && named.iter().any(Option::is_some);
        Self { named, denied }
    }

    /// None at all.
    pub fn nobody() -> Self {
        // No worker has this number.
        Self::of([WorkerId(0)], false)
    }

    pub fn is_everybody(self) -> bool {
        self.workers().next().is_none()
    }

    pub fn allows(self, worker: WorkerId) -> bool {
        self.is_everybody() || self.named.contains(&Some(worker)) != self.denied
    }

    pub fn workers(self) -> impl Iterator<Item = WorkerId> {
        self.named.into_iter().flatten()
    }

    pub fn are_denied(self) -> bool {
        self.denied
    }
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::Text,
        Self::Image,
        Self::Video,
        Self::Audio,
        Self::Mesh,
        Self::Interrogation,
    ];

    /// In listings, in messages and in the database.
    pub fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Mesh => "3d",
            Self::Interrogation => "interrogation",
        }
    }
}

impl Kinds {
    #[must_use]
    pub fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

impl From<Kind> for Kinds {
    fn from(kind: Kind) -> Self {
        Self::default().with(kind)
    }
}

impl Reach {
    pub const ENDLESS: Self = Self {
        window: u32::MAX,
        output: u32::MAX,
        pixels: u32::MAX,
        steps: u32::MAX,
    };

    pub fn covers(self, wanted: Self) -> bool {
        self.window >= wanted.window
            && self.output >= wanted.output
            && self.pixels >= wanted.pixels
            && self.steps >= wanted.steps
    }
}

impl Formats {
    /// The job as it stands in this module: our own workers.
    pub const NEUTRAL: Self = Self(1);
    pub const OPENAI_CHAT: Self = Self(2);
    pub const OPENAI_RESPONSES: Self = Self(4);
    pub const ANTHROPIC: Self = Self(8);
    /// The payloads of the legacy poll API.
    pub const LEGACY: Self = Self(16);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::NEUTRAL, "neutral"),
        (Self::OPENAI_CHAT, "openai-chat"),
        (Self::OPENAI_RESPONSES, "openai-responses"),
        (Self::ANTHROPIC, "anthropic"),
        (Self::LEGACY, "legacy"),
    ];

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn named(name: &str) -> Option<Self> {
        let row = Self::NAMES.into_iter().find(|(_, one)| *one == name);
        row.map(|(format, _)| format)
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMES
            .into_iter()
            .filter(move |(one, _)| self.meets(*one));
        named.map(|(_, name)| name)
    }
}

impl fmt::Debug for Formats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Formats, Kind, Kinds, Targets};
    use crate::job::WorkerId;

    #[test]
    fn targets_allow_those_they_name_or_all_others() {
        let (one, two) = (WorkerId(1), WorkerId(2));
        assert!(Targets::default().allows(one) && Targets::of([], true).allows(one));
        let only = Targets::of([one], false);
        assert!(only.allows(one) && !only.allows(two));
        let but = Targets::of([one], true);
        assert!(!but.allows(one) && but.allows(two));
        assert_eq!(
            Targets::of([one, two], false),
            Targets::of([two, one], false)
        );
    }

    #[test]
    fn formats_meet_when_they_share_one() {
        let ours = Formats::NEUTRAL.with(Formats::OPENAI_CHAT);
        assert!(ours.meets(Formats::OPENAI_CHAT));
        assert!(!ours.meets(Formats::ANTHROPIC));
        assert!(!ours.meets(Formats::default()));
    }

    #[test]
    fn kinds_hold_what_was_put_in() {
        let kinds = Kinds::from(Kind::Text).with(Kind::Mesh);
        assert!(kinds.contains(Kind::Text) && kinds.contains(Kind::Mesh));
        assert!(!kinds.contains(Kind::Image));
    }
}
