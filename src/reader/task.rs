//! Tasks for a file, their limits, and the replies.

use std::time::Duration;

use muster_media::sound::{DecodeBounds, DecodedSound, SpeechSpans};
use muster_media::video::VideoTrack;
use serde::{Deserialize, Serialize};

/// Memory of a decoder, besides the file.
const DECODER_BYTES: u64 = 192 << 20;
/// Two hours of sound take a minute.
const DECODING_TIME: Duration = Duration::from_secs(300);
/// Twenty pages of scans take some seconds.
const PAGES_TIME: Duration = Duration::from_secs(20);
/// Memory of the largest page: its pixels, fonts and images.
const PAGE_BYTES: u64 = 384 << 20;
/// Tables of a video are read and no frames.
const TABLES_TIME: Duration = Duration::from_secs(20);

/// The largest sound to decode.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SoundLimits {
    pub seconds: f64,
    /// Over all channels.
    pub samples: u64,
}

/// The task of a reader for its file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Mixes a sound to one channel at this rate.
    Listen {
        rate: u32,
        form: SoundForm,
        limits: SoundLimits,
        /// Drops all parts without speech. The rate is that of the detector then.
        speech: Option<SpeechRule>,
    },
    /// Decodes a sound and keeps nothing of it.
    MeasureSound { limits: SoundLimits },
    /// Reads the tables of a video.
    MeasureVideo,
    /// Reads the pages of a PDF.
    ReadPages { form: PageForm, limits: PdfLimits },
}

/// [`SpeechRule`](muster_media::sound::SpeechRule) as it crosses the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeechRule {
    pub threshold: f32,
    pub silence_millis: u32,
    pub padding_millis: u32,
}

/// The form in which a page is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageForm {
    /// An image and its text.
    Image,
    Text,
}

/// The largest PDF to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PdfLimits {
    pub pages: u32,
    /// Pixels of the longer side of a page's image.
    pub side: u16,
    /// Limit for all pages.
    pub text_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SoundForm {
    /// Blocks of a FLAC file; its header comes with the report.
    Flac,
    /// Blocks of `f32` in little-endian bytes.
    Samples,
}

/// The final reply of a reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Sound {
        found: MeasuredSound,
        /// Header of a FLAC file.
        header: Vec<u8>,
        /// Where speech was looked for.
        speech: Option<Speech>,
    },
    Video(Track),
    /// How long the text and the image of each page are, which came as blocks.
    Pages(Vec<PageLengths>),
    /// The file is unusable, and why.
    Refused(String),
}

/// Properties of a sound file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSound {
    /// In Hz.
    pub rate: u32,
    pub channels: u16,
    /// Samples of each channel.
    pub frames: u64,
    /// The loudest sample, from 0 to 1.
    pub peak: f32,
}

/// The speech of a sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speech {
    /// From and to, in samples of the sound: the kept parts, in order. Empty without speech.
    pub spans: Vec<(u64, u64)>,
    /// Number of samples that were kept, some of them also without speech.
    pub kept: u64,
}

/// [`VideoTrack`] as it crosses the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Track {
    pub width: u32,
    pub height: u32,
    pub frames: u32,
    pub seconds: f64,
}

/// Bytes of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageLengths {
    pub text: usize,
    /// 0 without an image.
    pub image: usize,
}

/// A page of a PDF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PdfPage {
    pub text: String,
    /// A PNG or JPEG.
    pub image: Option<Vec<u8>>,
}

/// A sound of one channel as a FLAC file.
#[derive(Debug, Clone, PartialEq)]
pub struct FlacSound {
    pub bytes: Vec<u8>,
    /// The file, of which only speech may be left.
    pub found: MeasuredSound,
    pub speech: Option<Speech>,
}

/// A sound of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledSound {
    pub samples: Vec<f32>,
    /// The file, of which only speech may be left.
    pub found: MeasuredSound,
    pub speech: Option<Speech>,
}

impl SoundLimits {
    /// Limits only the length.
    pub const fn seconds(seconds: f64) -> Self {
        Self {
            seconds,
            samples: u64::MAX,
        }
    }
}

impl Task {
    pub fn time(&self) -> Duration {
        match self {
            Self::Listen { .. } | Self::MeasureSound { .. } => DECODING_TIME,
            Self::MeasureVideo => TABLES_TIME,
            Self::ReadPages { .. } => PAGES_TIME,
        }
    }

    /// On top of the process's memory after the file is read.
    pub fn memory(&self) -> u64 {
        match self {
            Self::Listen { .. } | Self::MeasureSound { .. } | Self::MeasureVideo => DECODER_BYTES,
            Self::ReadPages { .. } => PAGE_BYTES,
        }
    }

    /// The most bytes of all blocks.
    pub fn output(&self) -> u64 {
        const ASIDE: u64 = 1 << 20;
        match *self {
            Self::Listen {
                rate, form, limits, ..
            } => {
                let samples = limits.seconds.ceil() as u64 * u64::from(rate);
                // Noise takes a little more than its samples in FLAC.
                let bytes = match form {
                    SoundForm::Flac => 3,
                    SoundForm::Samples => 4,
                };
                samples.saturating_mul(bytes) + ASIDE
            }
            Self::ReadPages { limits, .. } => {
                // A JPEG of noise has a byte or two for each pixel.
                let page = u64::from(limits.side) * u64::from(limits.side) * 2;
                u64::from(limits.pages) * page + u64::from(limits.text_bytes) + ASIDE
            }
            Self::MeasureSound { .. } | Self::MeasureVideo => 0,
        }
    }
}

impl From<SpeechRule> for muster_media::sound::SpeechRule {
    fn from(rule: SpeechRule) -> Self {
        Self {
            threshold: rule.threshold,
            silence_millis: rule.silence_millis,
            padding_millis: rule.padding_millis,
        }
    }
}

impl Default for SpeechRule {
    fn default() -> Self {
        let usual = muster_media::sound::SpeechRule::default();
        Self {
            threshold: usual.threshold,
            silence_millis: usual.silence_millis,
            padding_millis: usual.padding_millis,
        }
    }
}

impl From<SpeechSpans> for Speech {
    fn from(found: SpeechSpans) -> Self {
        let spans = found.spans.into_iter();
        Self {
            spans: spans.map(|span| (span.start, span.end)).collect(),
            kept: found.kept,
        }
    }
}

impl From<SoundLimits> for DecodeBounds {
    fn from(limits: SoundLimits) -> Self {
        Self {
            seconds: limits.seconds,
            samples: limits.samples,
        }
    }
}

impl MeasuredSound {
    pub fn seconds(&self) -> f64 {
        self.frames as f64 / f64::from(self.rate.max(1))
    }

    /// Over all channels.
    pub fn samples(&self) -> u64 {
        self.frames.saturating_mul(u64::from(self.channels))
    }
}

impl From<DecodedSound> for MeasuredSound {
    fn from(found: DecodedSound) -> Self {
        Self {
            rate: found.rate,
            channels: found.channels,
            frames: found.frames,
            peak: found.peak,
        }
    }
}

impl From<VideoTrack> for Track {
    fn from(track: VideoTrack) -> Self {
        Self {
            width: track.width,
            height: track.height,
            frames: track.frames,
            seconds: track.seconds,
        }
    }
}

impl From<Track> for VideoTrack {
    fn from(track: Track) -> Self {
        Self {
            width: track.width,
            height: track.height,
            frames: track.frames,
            seconds: track.seconds,
        }
    }
}
