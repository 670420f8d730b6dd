//! Media to be made: one variant a kind of request, and the questions that are put to each of them.
//!
//! A new kind is a request with [`MediaRequest`] and a variant of [`MediaBody`]. The coordinator carries, weighs, prices,
//! judges and checks it by its answers.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use super::{
    Body, Formats, ImageRequest, Job, Kind, Limits, MusicRequest, Reach, SoundFormat, UsualVideo,
    VideoRequest,
};

/// On the link to a worker and on disk, tagged by kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MediaBody {
    Image(Box<ImageRequest>),
    Music(MusicRequest),
    Video(VideoRequest),
}

/// The file that a worker uploads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MediaFile {
    Image,
    Sound {
        format: SoundFormat,
        /// In seconds.
        shortest: f64,
        longest: f64,
    },
    Video {
        seconds: f64,
    },
}

/// What a worker says of the model that it was handed a job for: it makes so what the request leaves unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelDefaults {
    /// Width and height of an image.
    pub size: Option<(u32, u32)>,
    pub video: Option<UsualVideo>,
    /// Whether the model has voices.
    pub speaks: bool,
    /// The limits of the model, which no default exceeds.
    pub reach: Reach,
}

impl Default for ModelDefaults {
    fn default() -> Self {
        Self {
            size: None,
            video: None,
            speaks: false,
            reach: Reach::ENDLESS,
        }
    }
}

/// A request for one output.
pub trait MediaRequest {
    fn kind(&self) -> Kind;

    /// Whether the coordinator has to know a setting that the client left unset. The model of the worker that the job is
    /// handed to decides it, see [`Self::bind`].
    fn is_unbound(&self) -> bool;

    /// Fills in what [`Self::is_unbound`] is about.
    fn bind(&mut self, model: &ModelDefaults);

    fn seed(&self) -> Option<u64>;

    fn set_seed(&mut self, seed: u64);

    fn file(&self) -> MediaFile;

    /// How much work it is as people count it: pixelsteps, seconds. An unbound request counts as a usual one.
    fn size(&self) -> u64;

    /// The demands on a worker, and the formats that can say all of it. An image has those of its form for workers that
    /// poll, which says more.
    fn limits(&self) -> Limits {
        Limits {
            formats: Formats::NEUTRAL,
            ..Limits::default()
        }
    }

    /// The words of the client: a worker may refuse some.
    fn texts(&self) -> Vec<&str>;

    /// The files it begins with, by their keys in the media store; on the link to a worker, by signed links.
    fn sources(&self) -> Vec<&str> {
        Vec::new()
    }

    fn sources_mut(&mut self) -> Vec<&mut String> {
        Vec::new()
    }

    /// Passes of its model, where they are named.
    fn steps(&self) -> Option<u32> {
        None
    }

    /// Previews that the client wants at most.
    fn previews(&self) -> u32 {
        0
    }

    /// The length of a sound or a video that is paid; of an unbound request, the longest that it may become.
    fn paid_millis(&self) -> u64 {
        0
    }

    /// The characters of a spoken text, which have a price.
    fn spoken_characters(&self) -> Option<u64> {
        None
    }

    /// The same of a text that the model may speak, or play as music.
    fn characters_of_possible_speech(&self) -> Option<u64> {
        None
    }
}

impl MediaBody {
    pub fn image(&self) -> Option<&ImageRequest> {
        match self {
            Self::Image(image) => Some(image),
            _ => None,
        }
    }
}

impl Deref for MediaBody {
    type Target = dyn MediaRequest;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Image(image) => &**image,
            Self::Music(music) => music,
            Self::Video(video) => video,
        }
    }
}

impl DerefMut for MediaBody {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Image(image) => &mut **image,
            Self::Music(music) => music,
            Self::Video(video) => video,
        }
    }
}

impl From<ImageRequest> for MediaBody {
    fn from(image: ImageRequest) -> Self {
        Self::Image(Box::new(image))
    }
}

impl From<MusicRequest> for MediaBody {
    fn from(music: MusicRequest) -> Self {
        Self::Music(music)
    }
}

impl From<VideoRequest> for MediaBody {
    fn from(video: VideoRequest) -> Self {
        Self::Video(video)
    }
}

impl Job {
    /// The job as a worker of this model gets it, if its request leaves to the model what the coordinator has to know. The
    /// price is that of the output as it is made, and the hold stays.
    pub fn bound(&self, model: &ModelDefaults) -> Option<Self> {
        let unbound = match &self.body {
            Body::Media(media) if media.is_unbound() => media,
            _ => return None,
        };
        let mut media = unbound.clone();
        media.bind(model);
        let (paid, longest) = (media.paid_millis(), unbound.paid_millis());
        let price = self.price.map(|price| match longest {
            0 => price,
            longest => price.for_part(paid.min(longest), longest),
        });
        Some(Self {
            body: Body::Media(media),
            price,
            ..self.clone()
        })
    }
}

impl<T: Into<MediaBody>> From<T> for Body {
    fn from(request: T) -> Self {
        Self::Media(Box::new(request.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::MediaBody;
    use crate::job::{ImageRequest, MusicRequest, SourceImage, VideoRequest};

    #[test]
    fn each_kind_has_its_seed_its_words_and_its_sources() {
        let source = || {
            Some(SourceImage {
                image: "a".to_owned(),
                mask: Some("b".to_owned()),
                extra: vec![("c".to_owned(), 1.0)],
            })
        };
        let (prompt, negative_prompt) = ("seen".to_owned(), Some("unseen".to_owned()));
        let image: MediaBody = ImageRequest {
            prompt: prompt.clone(),
            negative_prompt: negative_prompt.clone(),
            source: source(),
            ..ImageRequest::default()
        }
        .into();
        let music: MediaBody = MusicRequest {
            prompt: prompt.clone(),
            lyrics: Some("sung".to_owned()),
            ..MusicRequest::default()
        }
        .into();
        let video: MediaBody = VideoRequest {
            prompt,
            negative_prompt,
            source: source(),
            ..VideoRequest::default()
        }
        .into();
        let check = |mut body: MediaBody, texts: &[&str], sources: &[&str]| {
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
        check(image, &["seen", "unseen"], &["a", "b", "c"]);
        check(music, &["seen", "sung"], &[]);
        check(video, &["seen", "unseen"], &["a", "b", "c"]);
    }
}
