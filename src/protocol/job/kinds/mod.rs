//! The kinds of work, one file each: the request, its requirements for a worker, its form of output, and its unit of
//! price. The list below makes [`Body`]; [`JobRequest`] is the coordinator's interface to all of them.

mod embedding;
mod form;
mod image;
mod music;
mod part;
mod ranking;
mod request;
mod speech;
mod text;
mod tokens;
#[cfg(feature = "tone")]
mod tone;
mod transcription;
mod video;
#[macro_use]
mod wire;

use std::ops::{Deref, DerefMut};

pub use embedding::{EmbeddingRequest, Vector};
pub use form::FormRequest;
pub use image::{
    ControlMap, ImageRequest, Lora, NEGATIVE, PromptSide, SolverSettings, SourceImage, SourceUse,
    TextualInversion, USUAL_SIZE, WorkflowText, named_inversions,
};
pub use music::{MusicRequest, SoundFormat};
pub use part::ResultPart;
pub use ranking::RankingRequest;
pub use request::{JobRequest, MediaFile, ModelDefaults, OutputForm};
pub use speech::{
    LONGEST_SPEECH, Samples, SpeechGap, SpeechPart, SpeechRequest, SpokenWord, most_spoken,
};
pub use text::{
    Chat, OutputFormat, Sampling, StopRules, TextInput, TextRequest, ToolChoice, Voice,
};
pub use tokens::{DetokenizeInput, TokenList, TokenizeInput, TokensRequest};
#[cfg(feature = "tone")]
pub use tone::ToneRequest;
pub use transcription::{
    HeardLogprob, Transcript, TranscriptSegment, TranscriptWord, TranscriptionRequest,
};
pub use video::{Clip, LONGEST_VIDEO, MOST_FRAMES, VideoRequest};
pub(crate) use wire::ValuesJson;

use super::Job;
#[cfg(doc)]
use super::MediaNeeds;

/// The names of a kind, which stand in databases and on the link, and where it is listed.
#[derive(Debug, Clone, Copy)]
pub struct KindFacts {
    /// The name that no other kind has.
    pub name: &'static str,
    /// In listings, in messages and in the database, which count several kinds as one.
    pub word: &'static str,
    /// The ability of a worker, for messages.
    pub ability: &'static str,
    /// The job type on the link.
    pub job_type: &'static str,
    /// On the link, of kinds that share a job type with texts.
    pub task: Option<&'static str>,
    /// Whether workers send its output token by token or as values, and not as a file.
    pub is_relayed: bool,
    /// The output in lists of models.
    pub modality: Option<&'static str>,
    /// The route of `/v1`.
    pub route: Option<&'static str>,
    /// The limits of its models, by their names in [`MediaNeeds::named`].
    pub limits: &'static [&'static str],
    /// The price of its output, or of the sound that it hears; of others tokens alone have a price.
    pub rate: Option<Rate>,
}

/// A price in lists of prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In the configuration and in `/v1/pricing`.
    pub name: &'static str,
    pub unit: PriceUnit,
}

/// The unit that has a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceUnit {
    Output,
    Second,
    Minute,
    MillionCharacters,
}

/// Three-dimensional models.
const MESH: KindFacts = KindFacts {
    name: "3d",
    word: "3d",
    ability: "3d generation",
    job_type: "3d",
    task: None,
    is_relayed: false,
    modality: Some("3d"),
    route: None,
    limits: &[],
    rate: Some(Rate {
        name: "per_3d_generation_usd",
        unit: PriceUnit::Output,
    }),
};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($request:ty) in $module:ident $(as $file:ident)?;)*) => {
        /// The work of a job.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Body {
            $($(#[$doc])* $kind(Box<$request>)),*
        }

        /// The kind of a job's work.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $kind),*,
            /// Three-dimensional models, which workers may offer and no route asks for.
            Mesh,
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$kind),*, Self::Mesh];

            pub const fn facts(self) -> &'static KindFacts {
                match self {
                    $(Self::$kind => &$module::FACTS,)*
                    Self::Mesh => &MESH,
                }
            }
        }

        impl Body {
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind),*
                }
            }
        }

        impl Deref for Body {
            type Target = dyn JobRequest;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$kind(request) => &**request),*
                }
            }
        }

        impl DerefMut for Body {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self {
                    $(Self::$kind(request) => &mut **request),*
                }
            }
        }

        $(impl From<$request> for Body {
            fn from(request: $request) -> Self {
                Self::$kind(Box::new(request))
            }
        })*

        media_json! { $($($kind($request) as $file;)?)* }
    };
}

/// The list, and kinds of tests. A request with a file as its output has the name of its kind on the link and on disk.
macro_rules! kinds_with {
    ($($of_tests:tt)*) => {
        kinds! {
            Text(TextRequest) in text;
            /// The tokens of a text, or the text of tokens.
            Tokens(TokensRequest) in tokens;
            Embedding(EmbeddingRequest) in embedding;
            /// The scores of documents.
            Ranking(RankingRequest) in ranking;
            Image(ImageRequest) in image as file;
            Video(VideoRequest) in video as file;
            Music(MusicRequest) in music as file;
            Transcription(TranscriptionRequest) in transcription;
            Speech(SpeechRequest) in speech;
            /// Looking at an image, or working on one.
            Form(FormRequest) in form;
            $($of_tests)*
        }
    };
}

#[cfg(not(feature = "tone"))]
kinds_with! {}
#[cfg(feature = "tone")]
kinds_with! {
    /// A tone of one frequency.
    Tone(ToneRequest) in tone as file;
}

impl Kind {
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    pub const fn word(self) -> &'static str {
        self.facts().word
    }

    pub const fn ability(self) -> &'static str {
        self.facts().ability
    }

    pub const fn is_relayed(self) -> bool {
        self.facts().is_relayed
    }

    pub fn each() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied()
    }

    /// The kind that is listed under this word.
    pub fn listed(word: &str) -> Option<Self> {
        Self::each().find(|kind| kind.word() == word)
    }

    /// The kind that it is listed and counted as.
    pub fn listed_as(self) -> Self {
        Self::listed(self.word()).unwrap_or(self)
    }
}

impl Body {
    pub fn image(&self) -> Option<&ImageRequest> {
        match self {
            Self::Image(image) => Some(image),
            _ => None,
        }
    }
}

impl Job {
    /// Fills in settings that the request leaves to the worker's model and that the coordinator has to know. `None` if
    /// there are none. The price is that of the resulting output, and the hold stays.
    pub fn bound(&self, model: &ModelDefaults) -> Option<Self> {
        if !self.body.is_unbound() {
            return None;
        }
        let mut body = self.body.clone();
        body.bind(model);
        let (paid, longest) = (body.paid_millis(), self.body.paid_millis());
        let price = self.price.map(|price| match longest {
            0 => price,
            longest => price.for_part(paid.min(longest), longest),
        });
        Some(Self {
            body,
            price,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, ImageRequest, MusicRequest, SourceImage, VideoRequest};

    #[test]
    fn each_kind_has_its_seed_its_words_and_its_sources() {
        let source = || {
            Some(SourceImage {
                image: "a".to_owned(),
                mask: Some("b".to_owned()),
                extra: vec![("c".to_owned(), 1.0)],
                size: None,
            })
        };
        let (prompt, negative_prompt) = ("seen".to_owned(), Some("unseen".to_owned()));
        let image = ImageRequest {
            prompt: prompt.clone(),
            negative_prompt: negative_prompt.clone(),
            source: source(),
            ..ImageRequest::default()
        };
        let music = MusicRequest {
            prompt: prompt.clone(),
            lyrics: Some("sung".to_owned()),
            ..MusicRequest::default()
        };
        let video = VideoRequest {
            prompt,
            negative_prompt,
            source: source(),
            ..VideoRequest::default()
        };
        let check = |mut body: Body, texts: &[&str], sources: &[&str]| {
            body.set_seed(7);
            assert_eq!(body.seed(), Some(7));
            assert_eq!(
                (body.texts(), body.sources()),
                (texts.to_vec(), sources.to_vec())
            );
            for source in body.sources_mut() {
                source.push('!');
            }
            let marked: Vec<_> = sources.iter().map(|name| format!("{name}!")).collect();
            assert_eq!(body.sources(), marked);
        };
        check(image.into(), &["seen", "unseen"], &["a", "b", "c"]);
        check(music.into(), &["seen", "sung"], &[]);
        check(video.into(), &["seen", "unseen"], &["a", "b", "c"]);
    }
}
