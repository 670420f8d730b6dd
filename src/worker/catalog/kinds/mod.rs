//! Facts about the models of each kind, as an entry of the catalog states them: one file for each kind, and one list.

mod encoder;
mod image;
mod music;
mod speech;
mod text;
mod transcription;
mod video;

use serde::Deserialize;

pub use encoder::{EmbeddingFacts, RankingFacts};
pub use image::{DrawingDefaults, ImageFacts};
pub use music::{ComposingDefaults, MusicFacts};
pub use speech::SpeechFacts;
pub use text::{Defaults, MINIMUM_CONTEXT, Shape, TextFacts};
pub use transcription::TranscriptionFacts;
pub use video::{FilmingDefaults, VideoFacts};

use super::Family;
use crate::hub;
use muster_protocol::job::Kind;

/// Activations, logits and the program itself.
pub const WORKSPACE_BYTES: u64 = 256 * 1024 * 1024;

/// Facts about a model of one kind.
trait ModelFacts: Sized {
    const RULES: KindRules;

    fn read(stated: StatedFacts) -> Result<Self, String>;

    fn check(&self) -> Result<(), String>;

    fn parameters(&self) -> u64;

    /// Memory besides the weights, for one job of the usual size.
    fn workspace_bytes(&self) -> u64 {
        WORKSPACE_BYTES
    }
}

/// The form of entries of a kind.
#[derive(Clone, Copy)]
pub struct KindRules {
    pub families: &'static [Family],
    /// The settings of its table of defaults.
    pub defaults: &'static [&'static str],
    /// Folders of its components, whose files may be in other sources.
    pub folders: &'static [&'static str],
    /// Components that a model in one file takes.
    pub of_one_file: &'static [&'static str],
    /// Refuses a list of files that lacks one, where components are in other sources.
    pub refuse_incomplete: fn(&hub::Source, &[&str]) -> Result<(), String>,
}

impl KindRules {
    /// For a kind without components.
    const fn of(
        families: &'static [Family],
        defaults: &'static [&'static str],
        refuse_incomplete: fn(&hub::Source, &[&str]) -> Result<(), String>,
    ) -> Self {
        Self {
            families,
            defaults,
            folders: &[],
            of_one_file: &[],
            refuse_incomplete,
        }
    }
}

/// Facts as an entry states them. Each kind takes its own.
#[derive(Default)]
pub struct StatedFacts {
    pub context: Option<u64>,
    pub shape: Option<Shape>,
    pub parameters: Option<u64>,
    pub defaults: StatedDefaults,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct StatedDefaults {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    size: Option<[u32; 2]>,
    steps: Option<u32>,
    cfg_scale: Option<f32>,
    sampler: Option<String>,
    schedule: Option<String>,
    clip_skip: Option<u32>,
    frames: Option<u32>,
    rate: Option<f32>,
    seconds: Option<f32>,
}

impl StatedFacts {
    /// The parameters of a model of media, which has neither context nor shape. `model` with its article.
    fn parameters_of(&self, model: &str) -> Result<u64, String> {
        match (self.context, self.shape, self.parameters) {
            (None, None, Some(parameters)) => Ok(parameters),
            _ => Err(format!(
                "{model} model needs parameters, and has no context and no shape"
            )),
        }
    }

    /// The same of a kind without defaults.
    fn parameters_alone(&self, model: &str) -> Result<u64, String> {
        let parameters = self.parameters_of(model)?;
        match self.defaults == StatedDefaults::default() {
            true => Ok(parameters),
            false => Err(format!("{model} model has no defaults")),
        }
    }
}

/// Refuses with the name of the first that is wrong.
fn refuse_wrong<const N: usize>(wrong: [(&str, bool); N]) -> Result<(), String> {
    match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
        Some((name, _)) => Err(format!("{name} is out of range")),
        None => Ok(()),
    }
}

fn is_outside<T: PartialOrd>(value: Option<T>, range: std::ops::RangeInclusive<T>) -> bool {
    value.is_some_and(|value| !range.contains(&value))
}

macro_rules! kinds {
    ($($kind:ident($facts:ty),)*) => {
        /// Facts about a model of each kind.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Facts {
            $($kind($facts)),*
        }

        /// The kinds of models that the catalog has, by the word in an entry.
        pub const KINDS: &[(&str, Kind)] = &[$((Kind::$kind.name(), Kind::$kind)),*];

        impl Facts {
            pub fn read(kind: Kind, stated: StatedFacts) -> Result<Self, String> {
                match kind {
                    $(Kind::$kind => <$facts>::read(stated).map(Self::$kind),)*
                    other => Err(format!("the catalog has no {} models", other.name())),
                }
            }

            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind),*
                }
            }

            pub fn check(&self) -> Result<(), String> {
                match self {
                    $(Self::$kind(facts) => facts.check()),*
                }
            }

            pub fn parameters(&self) -> u64 {
                match self {
                    $(Self::$kind(facts) => facts.parameters()),*
                }
            }

            /// Memory besides the weights, for one job of the usual size.
            pub fn workspace_bytes(&self) -> u64 {
                match self {
                    $(Self::$kind(facts) => facts.workspace_bytes()),*
                }
            }
        }

        /// The form of entries of a kind.
        pub fn rules(kind: Kind) -> KindRules {
            match kind {
                $(Kind::$kind => <$facts as ModelFacts>::RULES,)*
                _ => TextFacts::RULES,
            }
        }
    };
}

kinds! {
    Text(TextFacts),
    Embedding(EmbeddingFacts),
    Ranking(RankingFacts),
    Image(ImageFacts),
    Transcription(TranscriptionFacts),
    Video(VideoFacts),
    Speech(SpeechFacts),
    Music(MusicFacts),
}

impl Family {
    pub fn kind(self) -> Kind {
        let kinds = KINDS.iter().map(|(_, kind)| *kind);
        let mut kinds = kinds.filter(|kind| rules(*kind).families.contains(&self));
        kinds.next().unwrap_or(Kind::Text)
    }
}

/// The word of earlier versions for models that transcribe.
const EARLIER_TRANSCRIPTION: &str = "hearing";

/// The kind of this word.
pub fn kind_named(word: &str) -> Option<Kind> {
    let word = match word {
        EARLIER_TRANSCRIPTION => Kind::Transcription.name(),
        word => word,
    };
    let found = KINDS.iter().find(|(name, _)| *name == word);
    found.map(|(_, kind)| *kind)
}
