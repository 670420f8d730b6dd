//! Requirements of jobs and capabilities of workers: small sets and limits that compare at once.

use std::fmt;

use super::Kind;
use super::ids::WorkerId;

/// A set of [`Kind`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kinds(u16);

/// A set of request formats a worker understands.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Formats(u8);

/// The demands of a job. [`Reach`] is the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Needs {
    Text(TextNeeds),
    Media(MediaNeeds),
}

/// The limits of a worker, or of one of its models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    pub text: TextNeeds,
    pub media: MediaNeeds,
}

/// Limits of a text, for input or output. The public contract states window and output for the whole job, independent
/// of its actual prompt, and only for polling workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextNeeds {
    /// Tokens of the prompt, and one more.
    pub context: u32,
    /// Tokens of prompt and output as a worker that polls counts them.
    pub window: u32,
    /// Tokens of output.
    pub output: u32,
}

/// Limits of media. A job that leaves one at 0 demands nothing of it; a worker without a limit has the largest number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaNeeds {
    /// Width times height of an image, a frame, or an image that is looked at.
    pub pixels: u32,
    /// Counted steps; for a worker, the most that each of its models supports.
    pub steps: u32,
    pub frames: u32,
    /// Seconds of music.
    pub seconds: u32,
    /// Characters of a spoken text.
    pub characters: u32,
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
        // Sorted, so that equal targets share a lane.
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

    pub fn each(self) -> impl Iterator<Item = Kind> {
        let all = Kind::each();
        all.filter(move |kind| self.contains(*kind))
    }

    /// The kinds of a model's outputs. An asynchronous speech counts as music.
    pub fn of_output(self) -> impl Iterator<Item = Kind> {
        let speaks = self.contains(Kind::Speech);
        self.each()
            .filter(move |kind| !speaks || *kind != Kind::Music)
    }

    /// The kinds that they are listed as, each once.
    pub fn listed(self) -> impl Iterator<Item = Kind> {
        let listed = self
            .each()
            .fold(Self::default(), |all, kind| all.with(kind.listed_as()));
        listed.each()
    }
}

impl From<Kind> for Kinds {
    fn from(kind: Kind) -> Self {
        Self::default().with(kind)
    }
}

impl Default for Needs {
    fn default() -> Self {
        Self::Text(TextNeeds::default())
    }
}

impl Needs {
    /// Tokens of context; media have none.
    pub fn context(self) -> u32 {
        match self {
            Self::Text(text) => text.context,
            _ => 0,
        }
    }

    /// With another context, where there is one.
    #[must_use]
    pub fn with_context(self, context: u32) -> Self {
        match self {
            Self::Text(text) => Self::Text(TextNeeds { context, ..text }),
            other => other,
        }
    }
}

impl MediaNeeds {
    pub const ENDLESS: Self = Self {
        pixels: u32::MAX,
        steps: u32::MAX,
        frames: u32::MAX,
        seconds: u32::MAX,
        characters: u32::MAX,
    };

    /// Each limit with its name.
    pub fn named(self) -> [(&'static str, u32); 5] {
        [
            ("pixels", self.pixels),
            ("steps", self.steps),
            ("frames", self.frames),
            ("seconds", self.seconds),
            ("characters", self.characters),
        ]
    }

    fn covers(self, needs: Self) -> bool {
        let pairs = self.named().into_iter().zip(needs.named());
        pairs
            .into_iter()
            .all(|((_, most), (_, wanted))| most >= wanted)
    }

    fn or(self, other: Self) -> Self {
        Self {
            pixels: self.pixels.max(other.pixels),
            steps: self.steps.max(other.steps),
            frames: self.frames.max(other.frames),
            seconds: self.seconds.max(other.seconds),
            characters: self.characters.max(other.characters),
        }
    }
}

impl Reach {
    /// No limits.
    pub const ENDLESS: Self = Self {
        text: TextNeeds {
            context: u32::MAX,
            window: u32::MAX,
            output: u32::MAX,
        },
        media: MediaNeeds::ENDLESS,
    };

    pub fn covers(&self, needs: Needs) -> bool {
        match needs {
            Needs::Text(it) => {
                self.text.context >= it.context
                    && self.text.window >= it.window
                    && self.text.output >= it.output
            }
            Needs::Media(it) => self.media.covers(it),
        }
    }

    /// The limits that a kind of media has, by their names.
    pub fn limits(&self, kind: Kind) -> impl Iterator<Item = (&'static str, u32)> {
        let named = self.media.named().into_iter();
        named.filter(move |(name, _)| kind.facts().limits.contains(name))
    }

    /// The same with a model's context.
    #[must_use]
    pub fn with_context(self, context: u32) -> Self {
        let text = TextNeeds {
            context,
            ..self.text
        };
        Self { text, ..self }
    }

    /// The larger of both limits.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            text: TextNeeds {
                context: self.text.context.max(other.text.context),
                window: self.text.window.max(other.text.window),
                output: self.text.output.max(other.text.output),
            },
            media: self.media.or(other.media),
        }
    }
}

impl Formats {
    /// The job as it stands in this module: our own workers.
    pub const NEUTRAL: Self = Self(1);
    pub const OPENAI_CHAT: Self = Self(2);
    pub const OPENAI_RESPONSES: Self = Self(4);
    pub const ANTHROPIC: Self = Self(8);
    /// The payloads of the AI Horde API.
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
