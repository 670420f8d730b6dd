//! Requests for media, in the engine's own terms. Each kind is a type, which the pipelines of its models read.

use std::any::Any;
use std::fmt;

use super::Refusal;

/// A request of one kind.
pub trait MediaRequest: Any + Clone + fmt::Debug + Send + Sync {
    /// The output, for messages.
    const MAKES: &'static str;
}

/// A request of any kind.
pub struct MakeRequest {
    request: Box<dyn AnyRequest>,
    makes: &'static str,
}

trait AnyRequest: Any + Send + Sync {
    fn copy(&self) -> Box<dyn AnyRequest>;
}

impl<R: MediaRequest> AnyRequest for R {
    fn copy(&self) -> Box<dyn AnyRequest> {
        Box::new(self.clone())
    }
}

impl<R: MediaRequest> From<R> for MakeRequest {
    fn from(request: R) -> Self {
        Self {
            request: Box::new(request),
            makes: R::MAKES,
        }
    }
}

impl Clone for MakeRequest {
    fn clone(&self) -> Self {
        Self {
            request: (*self.request).copy(),
            makes: self.makes,
        }
    }
}

impl MakeRequest {
    /// The output, for messages.
    pub fn makes(&self) -> &'static str {
        self.makes
    }

    /// The request, if its kind is this one.
    pub fn of<R: MediaRequest>(&self) -> Result<&R, Refusal> {
        let request: &dyn Any = &*self.request;
        request.downcast_ref().ok_or(Refusal::Kind {
            wanted: self.makes,
            makes: R::MAKES,
        })
    }

    pub fn take<R: MediaRequest>(self) -> Result<R, Refusal> {
        let request: Box<dyn Any> = self.request;
        let request = request.downcast();
        request.map(|request| *request).map_err(|_| Refusal::Kind {
            wanted: self.makes,
            makes: R::MAKES,
        })
    }
}

impl fmt::Debug for MakeRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "request for {}", self.makes)
    }
}

/// Music, speech or noises.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SoundRequest {
    pub prompt: String,
    pub negative_prompt: Option<String>,
    pub lyrics: Option<String>,
    /// Beats per minute.
    pub bpm: Option<u32>,
    /// A note and a mode, such as `C# minor`.
    pub key_scale: Option<String>,
    /// Beats of a bar.
    pub time_signature: Option<String>,
    /// Two-letter language code of the lyrics.
    pub vocal_language: Option<String>,
    pub voice: Option<String>,
    pub speed: Option<f32>,
    pub seconds: Option<f32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub seed: Option<u64>,
    /// Which sound of a series with one seed.
    pub index: u32,
    /// Times of spoken words, which come before each part of the sound; only of models that speak.
    pub wants_words: bool,
}

impl SoundRequest {
    /// Names a setting of music that is set, for models that have none of them.
    pub fn setting_of_music(&self) -> Option<&'static str> {
        let set = [
            ("bpm", self.bpm.is_some()),
            ("key_scale", self.key_scale.is_some()),
            ("time_signature", self.time_signature.is_some()),
            ("vocal_language", self.vocal_language.is_some()),
            ("lyrics", self.lyrics.is_some()),
        ];
        let found = set.into_iter().find(|(_, is_set)| *is_set);
        found.map(|(name, _)| name)
    }
}

impl MediaRequest for SoundRequest {
    const MAKES: &'static str = "sound";
}
