//! Extensions of the public protocol, agreed between two peers. An extension is used only if both know it.

use std::fmt;

use serde::Deserialize;

use super::loose::AtMost;
use super::object::Object;

/// Rises only for incompatible changes.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// Several jobs a socket; frames carry attempts.
    Multi,
    /// Frames carry numbers and survive a lost socket.
    Resume,
    /// Cancels at any time, for every kind.
    Cancel2,
    /// Reports on capacity and speed.
    State,
    /// Both sides can ask for an orderly end.
    Drain,
    /// Several deltas in one frame.
    Coalesce,
    /// The worker beats while it is silent in a job, and jobs have deadlines.
    Lease,
    /// The coordinator notifies the worker of maintenance.
    Notices,
    /// The coordinator sends only jobs of the owner's account.
    OwnJobs,
}

impl Extension {
    pub const ALL: [Self; 9] = [
        Self::Multi,
        Self::Resume,
        Self::Cancel2,
        Self::State,
        Self::Drain,
        Self::Coalesce,
        Self::Lease,
        Self::Notices,
        Self::OwnJobs,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Multi => "multi",
            Self::Resume => "resume",
            Self::Cancel2 => "cancel2",
            Self::State => "state",
            Self::Drain => "drain",
            Self::Coalesce => "coalesce",
            Self::Lease => "lease",
            Self::Notices => "notices",
            Self::OwnJobs => "own_jobs",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// A set of them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions(u16);

impl Extensions {
    pub fn all() -> Self {
        Extension::ALL.into_iter().fold(Self::default(), Self::with)
    }

    #[must_use]
    pub fn with(self, extension: Extension) -> Self {
        Self(self.0 | extension.bit())
    }

    #[must_use]
    pub fn without(self, extension: Extension) -> Self {
        Self(self.0 & !extension.bit())
    }

    pub fn has(self, extension: Extension) -> bool {
        self.0 & extension.bit() != 0
    }

    /// The extensions of both peers.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn names(self) -> Vec<&'static str> {
        let chosen = Extension::ALL.into_iter().filter(|one| self.has(*one));
        chosen.map(Extension::name).collect()
    }

    /// Unknown names are ignored.
    pub fn named(names: &[String]) -> Self {
        let known = Extension::ALL.into_iter();
        known
            .filter(|one| names.iter().any(|name| name == one.name()))
            .fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.names()).finish()
    }
}

/// Optional abilities of our own workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Gives back calls of tools.
    Tools,
    Logprobs,
    /// Reports log probabilities of the prompt's tokens.
    PromptLogprobs,
    /// Continues from tokens that another worker sampled.
    Continue,
    /// Keeps to `min_tokens`, `ignore_eos` and `stop_token_ids`.
    StopRules,
    /// Keeps to schemas and other grammars, and calls a tool where it must.
    Grammars,
    /// Takes jobs whose output comes as values: tokens of texts and texts of tokens for all its models that read them, the
    /// others by the kinds of each.
    Encode,
    /// Makes images from others.
    SourceImages,
    /// Makes only the masked part of an image.
    Inpainting,
    /// Leaves out the last layers of a text encoder.
    ClipSkip,
    /// Applies LoRAs of its own folder.
    Loras,
    /// Puts textual inversions of its own folder into prompts.
    TextualInversions,
    /// Makes images that fit to themselves at opposite edges.
    Tiling,
    /// Generates a large image in two passes.
    HiresFix,
    /// Encodes sound as MP3.
    Mp3,
    /// Searches for a transcript with several beams.
    BeamSearch,
    /// Reports log probabilities of the tokens of transcripts.
    TranscriptLogprobs,
    /// Finds the language of a sound among those that the request names.
    NamedLanguages,
    /// Says when each word of a speech sounds.
    WordTimes,
    /// Reads images in chats; an ability of a model.
    ImageInput,
}

impl Ability {
    const ALL: [Self; 20] = [
        Self::Tools,
        Self::Logprobs,
        Self::PromptLogprobs,
        Self::Continue,
        Self::StopRules,
        Self::Grammars,
        Self::Encode,
        Self::SourceImages,
        Self::Inpainting,
        Self::ClipSkip,
        Self::Loras,
        Self::TextualInversions,
        Self::Tiling,
        Self::HiresFix,
        Self::Mp3,
        Self::BeamSearch,
        Self::TranscriptLogprobs,
        Self::NamedLanguages,
        Self::WordTimes,
        Self::ImageInput,
    ];

    /// Names of later versions are left out.
    pub fn named(names: &[String]) -> Vec<Self> {
        let known = Self::ALL.into_iter();
        known
            .filter(|one| names.iter().any(|name| name == one.name()))
            .collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Logprobs => "logprobs",
            Self::PromptLogprobs => "prompt_logprobs",
            Self::Continue => "continue",
            Self::StopRules => "stop_rules",
            Self::Grammars => "grammars",
            Self::Encode => "encode",
            Self::SourceImages => "source_images",
            Self::Inpainting => "inpainting",
            Self::ClipSkip => "clip_skip",
            Self::Loras => "loras",
            Self::TextualInversions => "textual_inversions",
            Self::Tiling => "tiling",
            Self::HiresFix => "hires_fix",
            Self::Mp3 => "mp3",
            Self::BeamSearch => "beam_search",
            Self::TranscriptLogprobs => "transcript_logprobs",
            Self::NamedLanguages => "named_languages",
            Self::WordTimes => "word_times",
            Self::ImageInput => "image_input",
        }
    }
}

/// Jobs that the owner of a worker refuses. Coordinators of earlier versions offer them anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// Images that may be NSFW.
    Nsfw,
    /// Images for clients behind a VPN or a proxy.
    HiddenAddresses,
}

impl Exclusion {
    const ALL: [Self; 2] = [Self::Nsfw, Self::HiddenAddresses];

    /// Names of later versions are left out.
    pub fn named(names: &[String]) -> Vec<Self> {
        let known = Self::ALL.into_iter();
        known
            .filter(|one| names.iter().any(|name| name == one.name()))
            .collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Nsfw => "nsfw",
            Self::HiddenAddresses => "hidden_addresses",
        }
    }
}

/// `ext` of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub version: u32,
    pub want: Extensions,
    pub can: Vec<Ability>,
    pub excludes: Vec<Exclusion>,
    /// The largest frame it reads.
    pub max_frame: Option<u64>,
}

/// `ext` of `ready`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    pub version: u32,
    pub r#use: Extensions,
    pub max_frame: Option<u64>,
    /// Session name for resuming.
    pub session: Option<String>,
    /// Seconds between beats and reports.
    pub beat_secs: Option<u32>,
    /// How long jobs are held for a worker that lost its socket.
    pub grace_secs: Option<u32>,
    /// Origins that links to sources and uploads have, as `https://store.example`. None from a coordinator that does not say.
    pub hosts: Option<Vec<String>>,
}

/// Some are of later versions.
type Words = AtMost<256, String>;

#[derive(Deserialize)]
pub(super) struct WantedJson {
    v: Option<u32>,
    want: Option<Words>,
    can: Option<Words>,
    excludes: Option<Words>,
    max_frame: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct AgreedJson {
    v: Option<u32>,
    r#use: Option<Words>,
    max_frame: Option<u64>,
    session: Option<String>,
    hb_s: Option<u32>,
    grace_s: Option<u32>,
    hosts: Option<Words>,
}

impl From<WantedJson> for Wanted {
    fn from(json: WantedJson) -> Self {
        Self {
            version: json.v.unwrap_or(VERSION),
            want: Extensions::named(&json.want.unwrap_or_default().0),
            can: Ability::named(&json.can.unwrap_or_default().0),
            excludes: Exclusion::named(&json.excludes.unwrap_or_default().0),
            max_frame: json.max_frame,
        }
    }
}

impl From<AgreedJson> for Agreed {
    fn from(json: AgreedJson) -> Self {
        Self {
            version: json.v.unwrap_or(VERSION),
            r#use: Extensions::named(&json.r#use.unwrap_or_default().0),
            max_frame: json.max_frame,
            session: json.session,
            beat_secs: json.hb_s,
            grace_secs: json.grace_s,
            hosts: json.hosts.map(|hosts| hosts.0),
        }
    }
}

impl Wanted {
    pub(super) fn write(&self, object: &mut Object<'_>) {
        let can: Vec<_> = self.can.iter().map(|one| one.name()).collect();
        object.number("v", self.version);
        object.texts("want", &self.want.names());
        object.texts("can", &can);
        if !self.excludes.is_empty() {
            let excludes: Vec<_> = self.excludes.iter().map(|one| one.name()).collect();
            object.texts("excludes", &excludes);
        }
        object.number_if("max_frame", self.max_frame);
    }
}

impl Agreed {
    pub(super) fn write(&self, object: &mut Object<'_>) {
        object.number("v", self.version);
        object.texts("use", &self.r#use.names());
        object.number_if("max_frame", self.max_frame);
        object.text_if("session", self.session.as_deref());
        object.number_if("hb_s", self.beat_secs);
        object.number_if("grace_s", self.grace_secs);
        if let Some(hosts) = &self.hosts {
            object.texts("hosts", hosts);
        }
    }
}
