//! What a job needs and a worker offers, as small sets that compare in one instruction.

use std::fmt;

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Text,
    Image,
    Video,
    Audio,
    Mesh,
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
}

/// A set of things not every worker can do.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capabilities(u16);

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Text,
        Self::Image,
        Self::Video,
        Self::Audio,
        Self::Mesh,
    ];
}

impl Kinds {
    #[must_use]
    pub fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
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
    };

    pub fn covers(self, wanted: Self) -> bool {
        self.window >= wanted.window && self.output >= wanted.output
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

impl Capabilities {
    /// Reads pictures in the prompt.
    pub const IMAGE_INPUT: Self = Self(1);
    pub const VIDEO_INPUT: Self = Self(2);
    /// Takes tools and gives back calls of them.
    pub const TOOLS: Self = Self(4);
    /// Can be made to call a tool, or to keep to a schema.
    pub const GRAMMAR: Self = Self(8);
    pub const LOGPROBS: Self = Self(16);
    /// Goes on from tokens another worker has drawn.
    pub const CONTINUE: Self = Self(32);
    /// Takes frames of more than 1 MiB.
    pub const LARGE_FRAMES: Self = Self(64);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::IMAGE_INPUT, "image input"),
        (Self::VIDEO_INPUT, "video input"),
        (Self::TOOLS, "tools"),
        (Self::GRAMMAR, "grammars"),
        (Self::LOGPROBS, "log probabilities"),
        (Self::CONTINUE, "continuing a stream"),
        (Self::LARGE_FRAMES, "requests above 1 MiB"),
    ];

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn contains(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// What of `self` is not in `offered`.
    #[must_use]
    pub const fn missing_from(self, offered: Self) -> Self {
        Self(self.0 & !offered.0)
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMES
            .into_iter()
            .filter(move |(one, _)| self.contains(*one));
        named.map(|(_, name)| name)
    }
}

impl fmt::Debug for Formats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.names()).finish()
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, Formats, Kind, Kinds};

    #[test]
    fn a_set_names_what_another_lacks() {
        let wanted = Capabilities::TOOLS.with(Capabilities::LOGPROBS);
        let missing = wanted.missing_from(Capabilities::TOOLS);
        assert_eq!(missing.names().collect::<Vec<_>>(), ["log probabilities"]);
        assert!(wanted.contains(Capabilities::TOOLS));
        assert!(!Capabilities::TOOLS.contains(wanted));
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
