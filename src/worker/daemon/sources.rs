//! Models that make or hear media, and what a device asks of the files of each.
//!
//! A new kind is a source with [`MediaFiles`] and a variant of [`MediaSource`].

use std::ops::{Deref, DerefMut};
use std::path::Path;

use super::MediaModel;
use super::fit::Needs;
use muster_engine::runtime::hearing::{HearingSource, MOST_JOBS};
use muster_engine::runtime::image::{self, ImageDefaults, ImageFootprint, ImageSource};
use muster_engine::runtime::maker::{MediaKind, Pipeline};
use muster_engine::runtime::music::{self, MusicFootprint, MusicSource};
use muster_engine::runtime::speech::SpeechSource;
use muster_engine::runtime::text::Isolation;
use muster_engine::runtime::video::{self, VideoFootprint, VideoSource};
use muster_engine::runtime::{DeviceChoice, LoadError, SharedWeights};
use muster_protocol::link::ModelLimits;

/// Characters of a text to speak.
pub const SPOKEN_CHARACTERS: u32 = 16_384;
/// Beside the weights and the memory of a job of a model that hears, for its sound: an hour.
const HEARD_BYTES: u64 = 230 << 20;
/// Beside the weights, for the longest sentence.
const SPEECH_BYTES: u64 = 512 << 20;

#[derive(Debug, Clone, PartialEq)]
pub enum MediaSource {
    Image(ImageSource),
    Hearing(HearingSource),
    Video(VideoSource),
    Speech(SpeechSource),
    Music(MusicSource),
}

/// The files of a model that the maker loads.
pub trait MediaFiles {
    fn path(&self) -> &Path;

    /// From the headers of the files.
    fn needs(&self) -> Result<Needs, LoadError>;

    /// As coordinators are told of it. `room_bytes` are left for its jobs beside its weights.
    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError>;

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError>;

    /// Weights that other models in memory may hold, too: they take memory once.
    fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Ok(Vec::new())
    }

    /// Settings of a model that draws for requests that leave them open.
    fn drawing(&self) -> Option<ImageDefaults> {
        None
    }
}

impl MediaSource {
    /// The folder or file of a model that draws, makes videos or makes sounds says so itself; none of other models.
    pub fn at(path: &Path) -> Option<Self> {
        Some(if VideoSource::is_at(path) {
            Self::Video(VideoSource::new(path))
        } else if MusicSource::is_at(path) {
            Self::Music(MusicSource::new(path))
        } else if ImageSource::is_at(path) {
            Self::Image(ImageSource::new(path))
        } else if HearingSource::is_at(path) {
            Self::Hearing(HearingSource::new(path))
        } else if SpeechSource::is_at(path) {
            Self::Speech(SpeechSource::new(path))
        } else {
            return None;
        })
    }

    /// Read tokenizers in a process of their own. CLIP's, whose parts are the program's own, is bounded by its sizes.
    pub fn isolate(&mut self, isolation: Isolation) {
        match self {
            Self::Hearing(source) => source.isolation = Some(Box::new(isolation)),
            Self::Video(source) => source.isolation = Some(Box::new(isolation)),
            Self::Music(source) => source.isolation = Some(Box::new(isolation)),
            Self::Image(_) | Self::Speech(_) => {}
        }
    }
}

impl Deref for MediaSource {
    type Target = dyn MediaFiles;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Image(source) => source,
            Self::Hearing(source) => source,
            Self::Video(source) => source,
            Self::Speech(source) => source,
            Self::Music(source) => source,
        }
    }
}

impl DerefMut for MediaSource {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Image(source) => source,
            Self::Hearing(source) => source,
            Self::Video(source) => source,
            Self::Speech(source) => source,
            Self::Music(source) => source,
        }
    }
}

impl MediaFiles for ImageSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let footprint = self.footprint()?;
        Ok(Needs::beside(
            footprint.weight_bytes,
            footprint.drawing_bytes,
        ))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        let footprint = self.footprint()?;
        let [width, height] = footprint.size;
        self.memory_bytes = Some(room_bytes);
        Ok(MediaModel {
            size: Some((width, height)),
            limits: ModelLimits {
                pixels: Some(most_pixels(&footprint, room_bytes)),
                steps: Some(image::MOST_STEPS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Image)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }

    fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Self::shared(self)
    }

    fn drawing(&self) -> Option<ImageDefaults> {
        Some(self.defaults)
    }
}

impl MediaFiles for HearingSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let footprint = self.footprint()?;
        let job_bytes = footprint.job_bytes + HEARD_BYTES;
        Ok(Needs::beside(footprint.weight_bytes, job_bytes))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        self.memory_bytes = Some(room_bytes);
        let jobs = room_bytes / (self.footprint()?.job_bytes + HEARD_BYTES);
        Ok(MediaModel {
            jobs: jobs.clamp(1, MOST_JOBS as u64) as u32,
            ..MediaModel::new(name, MediaKind::Transcript)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }
}

impl MediaFiles for VideoSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let VideoFootprint {
            weight_bytes,
            video_bytes,
            ..
        } = self.footprint()?;
        Ok(Needs::beside(weight_bytes, video_bytes))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        let footprint = self.footprint()?;
        self.memory_bytes = Some(room_bytes);
        Ok(MediaModel {
            size: Some(footprint.size.into()),
            clip: Some((footprint.rate.round() as u32, footprint.frames)),
            limits: ModelLimits {
                pixels: Some(video::MOST_PIXELS),
                frames: Some(video::MOST_FRAMES),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Video)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }

    fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Self::shared(self)
    }
}

impl MediaFiles for SpeechSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        Ok(Needs::beside(self.weight_bytes()?, SPEECH_BYTES))
    }

    fn describe(&mut self, name: &str, _: u64) -> Result<MediaModel, LoadError> {
        Ok(MediaModel {
            voices: self.voices()?,
            limits: ModelLimits {
                characters: Some(SPOKEN_CHARACTERS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Sound)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }
}

impl MediaFiles for MusicSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let MusicFootprint {
            weight_bytes,
            song_bytes,
            ..
        } = self.footprint()?;
        Ok(Needs::beside(weight_bytes, song_bytes))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        self.memory_bytes = Some(room_bytes);
        Ok(MediaModel {
            limits: ModelLimits {
                seconds: Some(music::MOST_SECONDS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Sound)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }
}

/// The largest image that fits beside the weights: its memory grows with its pixels. Where nothing is guided it is half.
fn most_pixels(footprint: &ImageFootprint, room_bytes: u64) -> u32 {
    let [width, height] = footprint.size.map(u64::from);
    let pixels = 2 * u128::from(room_bytes) * u128::from(width * height);
    let fitting = pixels.checked_div(u128::from(footprint.drawing_bytes));
    let fitting = fitting.and_then(|pixels| u32::try_from(pixels).ok());
    fitting.map_or(image::MOST_PIXELS, |pixels| pixels.min(image::MOST_PIXELS))
}
