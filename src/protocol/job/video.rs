//! A job for a video: one file. A setting that the client left unset is `None`.

use serde::{Deserialize, Serialize};

use super::image::SourceImage;
use super::media::{MediaFile, MediaRequest};
use super::needs::{Needs, VideoNeeds};
use super::{Formats, Kind, Limits};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VideoRequest {
    pub prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub negative_prompt: Option<String>,
    pub width: u32,
    pub height: u32,
    pub seconds: f64,
    /// Frames a second.
    pub fps: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfg_scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The first frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceImage>,
}

/// A video of a model whose request leaves these unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsualVideo {
    pub size: (u32, u32),
    pub fps: u32,
    pub frames: u32,
}

impl Default for UsualVideo {
    fn default() -> Self {
        Self {
            size: (768, 512),
            fps: 24,
            frames: 96,
        }
    }
}

impl VideoRequest {
    pub fn frames(&self) -> u32 {
        // A cast saturates.
        (self.seconds * f64::from(self.fps)).round() as u32
    }

    pub fn needs(&self) -> Needs {
        Needs::Video(VideoNeeds {
            pixels: self.width.saturating_mul(self.height),
            frames: self.frames(),
        })
    }

    pub fn millis(&self) -> u64 {
        (self.seconds.max(0.0) * 1000.0).ceil() as u64
    }
}

impl MediaRequest for VideoRequest {
    fn kind(&self) -> Kind {
        Kind::Video
    }

    fn seed(&self) -> Option<u64> {
        self.seed
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    fn file(&self) -> MediaFile {
        MediaFile::Video {
            seconds: self.seconds,
        }
    }

    fn size(&self) -> u64 {
        let pixels = u64::from(self.width) * u64::from(self.height);
        pixels.saturating_mul(self.frames().into())
    }

    fn limits(&self) -> Limits {
        Limits {
            formats: Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
            needs: self.needs(),
            ..Limits::default()
        }
    }

    fn steps(&self) -> Option<u32> {
        self.steps
    }

    fn texts(&self) -> Vec<&str> {
        let unseen = self.negative_prompt.as_deref();
        std::iter::once(&*self.prompt).chain(unseen).collect()
    }

    fn sources(&self) -> Vec<&str> {
        self.source
            .as_ref()
            .map(SourceImage::keys)
            .unwrap_or_default()
    }

    fn sources_mut(&mut self) -> Vec<&mut String> {
        let source = self.source.as_mut();
        source.map(SourceImage::keys_mut).unwrap_or_default()
    }

    fn paid_millis(&self) -> u64 {
        self.millis()
    }
}
