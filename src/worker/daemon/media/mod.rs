//! Models that make media or transcribe: their files and their jobs.
//!
//! | file | contents |
//! | --- | --- |
//! | `image/`, `video/`, `music`, `speech`, `transcription` | one kind each: the files of its models, the catalog's facts about them, its jobs |
//! | `file` | a job with uploaded outputs, from its request to its file |
//! | `finish` | a finished image: safety check and final size |
//! | `upstream` | images of upstream programs |
//!
//! A new kind is a module and a row of the list below.

mod file;
mod finish;
mod image;
mod music;
mod speech;
#[cfg(feature = "tone")]
mod tone;
mod transcription;
mod upstream;
mod video;

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use super::MediaModel;
use super::fit::Needs;
use super::locate::{LocateError, Shelves};
use crate::catalog::Facts;
use crate::link::Said;
use crate::link::session::Work;
use muster_engine::networks::weights::Quantize;
use muster_engine::runtime::hearing::HearingSource;
use muster_engine::runtime::image::{ImageDefaults, ImageSource};
use muster_engine::runtime::maker::{MakeRequest, Pipeline};
use muster_engine::runtime::music::MusicSource;
use muster_engine::runtime::speech::SpeechSource;
use muster_engine::runtime::text::Isolation;
use muster_engine::runtime::video::VideoSource;
use muster_engine::runtime::{ComponentFolders, DeviceChoice, LoadError, SharedWeights};
use muster_protocol::job::{Body, Failure, FailureKind};
use muster_protocol::link::Payload;

pub use file::MediaDesk;
pub use image::{fetch_file, infotext};
pub use transcription::{SOUND_TOKENS, transcript};
pub use upstream::draw_upstream;
pub use video::{FilmType, VideoFile};

/// The files of a model that the maker loads.
pub trait MediaFiles {
    fn path(&self) -> &Path;

    /// Reads only the headers of the files.
    fn needs(&self) -> Result<Needs, LoadError>;

    /// The description sent to coordinators. `room_bytes` are available for its jobs besides its weights.
    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError>;

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError>;

    /// Weights that other models in memory may hold, too: they take memory once.
    fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Ok(Vec::new())
    }

    /// An image model's defaults for settings that a request omits.
    fn drawing(&self) -> Option<ImageDefaults> {
        None
    }

    /// Parses tokenizers in a separate process. CLIP's built-in tokenizer needs none, because its sizes are limited.
    fn isolate(&mut self, _: Isolation) {}

    /// Quantizes the matrices of linear layers while loading, where the kind can.
    fn quantize(&mut self, _: Option<Quantize>) {}

    /// Missing components are taken from the catalog's models, if they are on disk.
    fn complete(&mut self, _: Shelves<'_>) -> Result<(), LocateError> {
        Ok(())
    }
}

/// A source whose files are in the catalog.
trait CatalogSource: Sized {
    /// The facts of an entry of this kind.
    type Facts;

    fn of_entry(
        facts: &Self::Facts,
        path: PathBuf,
        components: ComponentFolders,
    ) -> Result<Self, String>;
}

macro_rules! sources {
    ($($kind:ident($source:ty) $(of $facts:ident)?,)*) => {
        #[derive(Debug, Clone, PartialEq)]
        pub enum MediaSource {
            $($kind($source)),*
        }

        impl MediaSource {
            /// Detects the kind of a model from its folder or file; `None` for text models.
            pub fn at(path: &Path) -> Option<Self> {
                $(if <$source>::is_at(path) {
                    return Some(Self::$kind(<$source>::new(path)));
                })*
                None
            }

            /// The files of an entry of the catalog; none of a model for text. Fails at words that the engine does not know.
            pub fn of_entry(
                facts: &Facts,
                path: &Path,
                components: &ComponentFolders,
            ) -> Result<Option<Self>, String> {
                Ok(match facts {
                    $($(Facts::$facts(facts) => {
                        let source = <$source>::of_entry(facts, path.to_owned(), components.clone())?;
                        Some(Self::$kind(source))
                    })?)*
                    Facts::Text(_) | Facts::Embedding(_) | Facts::Ranking(_) => None,
                })
            }
        }

        impl Deref for MediaSource {
            type Target = dyn MediaFiles;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$kind(source) => source),*
                }
            }
        }

        impl DerefMut for MediaSource {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self {
                    $(Self::$kind(source) => source),*
                }
            }
        }
    };
}

/// The list of kinds, also for tests. The first kind that recognizes the files is used.
macro_rules! sources_with {
    ($($of_tests:tt)*) => {
        sources! {
            Video(VideoSource) of Video,
            Music(MusicSource) of Music,
            Image(ImageSource) of Image,
            Hearing(HearingSource) of Transcription,
            Speech(SpeechSource) of Speech,
            $($of_tests)*
        }
    };
}

#[cfg(not(feature = "tone"))]
sources_with! {}
#[cfg(feature = "tone")]
sources_with! { Tone(tone::ToneSource), }

/// Does the job of a model that makes media or transcribes; returns the last word.
pub async fn run(mut work: Work, desk: MediaDesk<'_>) -> Said {
    match std::mem::replace(&mut work.payload, Payload::Unreadable) {
        Payload::Neutral(Body::Speech(speech)) => speech::run(&work.model, *speech, desk).await,
        Payload::Neutral(body) if body.brings_values() => {
            transcription::run(&work.model, body, desk).await
        }
        payload => file::run(work, payload, desk).await,
    }
}

/// The request for a file as the maker takes it, with its source files.
async fn read(model: &str, body: Body, desk: &MediaDesk<'_>) -> Result<MakeRequest, Said> {
    Ok(match body {
        Body::Image(request) => image::read(model, *request, desk).await?.into(),
        Body::Music(request) => music::read(&request).into(),
        Body::Video(request) => video::read(*request, desk.transfers).await?.into(),
        #[cfg(feature = "tone")]
        Body::Tone(request) => tone::read(&request).into(),
        _ => return Err(Said::Failed(no_text())),
    })
}

fn no_text() -> Failure {
    let message = "the model makes media, and the job is for a text";
    Failure::new(FailureKind::UnsupportedValue, message)
}
