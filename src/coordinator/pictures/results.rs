//! Images that workers report as uploaded. Each is fetched from the media store, decoded within limits and compared
//! with its request before its job counts as done: a missing, broken or too small image is neither paid nor charged.
//!
//! Workers upload PNG and JPEG as well, whatever the upload link was for. Images of another type than their key are
//! encoded again; others stay unchanged.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tracing::warn;

use super::{AT_ONCE, PictureError, Pictures, Preparation};
use crate::media::{Key, Media, MediaError, Unaccepted};
use muster_media::MediaType;
use muster_media::image::{Bounds, Size};
use muster_media::sound::{self, SoundBounds, SoundError};
use muster_media::video::VideoTrack;
use muster_protocol::job::drawn::{Drawn, bytes_of};
use muster_reader::{ReadError, Reader, SoundLimits};

/// Checks results. Clones share the limits.
#[derive(Debug, Clone)]
pub struct Results {
    pictures: Pictures,
    media: Media,
    reader: Reader,
    /// Limit of uploads in memory, encoded or decoded.
    turns: Arc<Semaphore>,
}

/// Why an image is refused: the worker's fault, except for [`Unfit::Store`].
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    #[error("nothing was uploaded for this job")]
    Missing,
    #[error("the upload for this job is unusable: {0}")]
    Refused(Unaccepted),
    #[error("the upload for this job is unusable: {0}")]
    Picture(#[from] PictureError),
    #[error("the upload for this job is unusable: {0}")]
    Sound(#[from] SoundError),
    #[error("the upload for this job is unusable: {0}")]
    Unreadable(String),
    #[error("the sound has {found} Hz, at least {LEAST_RATE} are required")]
    LowRate { found: u32 },
    #[error("the sound is silent from begin to end")]
    Silent,
    #[error("the video has {found:.1} s, about {wanted:.1} s are required")]
    OtherLength { found: f64, wanted: f64 },
    #[error("the video has {found} frames, at least {least} are required")]
    TooFewFrames { found: u32, least: u32 },
    /// The reader process did not start: not the worker's fault.
    #[error("reading the upload failed: {0}")]
    Reader(String),
    #[error("the sound has {found:.1} s, at least {least:.1} s are required")]
    TooShort { found: f64, least: f64 },
    #[error("the upload has {}x{} pixels, at least {}x{} are required", .found.0, .found.1, .least.0, .least.1)]
    TooSmall {
        found: (u32, u32),
        least: (u32, u32),
    },
    /// The media store is unavailable; not the worker's fault.
    #[error("reading or storing the image failed: {0}")]
    Store(#[from] MediaError),
}

/// The check of an upload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UploadCheck {
    Image(Drawn),
    /// Audio of about these lengths.
    Sound {
        least: f64,
        seconds: f64,
    },
    Video(VideoCheck),
}

/// Minimum properties of a video. Zero where the request leaves a value to the model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct VideoCheck {
    pub seconds: f64,
    pub width: u32,
    pub height: u32,
    pub frames: u32,
}

/// Models round the sides of a video and its number of frames to multiples of these.
const PATCH: u32 = 16;
const GROUP: u32 = 8;
/// The lowest sample rate, in Hz.
const LEAST_RATE: u32 = 16_000;
/// The loudest sample that counts as silence: the least 16-bit step.
const SILENCE: f32 = 1.0 / 32_767.0;
/// Limit of decoded samples in a check: more than ten minutes at 48 kHz in stereo.
const CHECKED_SAMPLES: u64 = 700 * 48_000 * 2;
/// Tolerance of a length, as a part of it; at least a second.
const TOLERANCE: f64 = 0.1;
const CHANNELS: u16 = 2;
/// At 48 kHz, in 32 bits.
const BYTES_A_SECOND: u64 = 48_000 * 4 * CHANNELS as u64;
const SOUND_ASIDE: u64 = 1 << 20;
/// Bytes of large, hardly compressed frames.
const VIDEO_BYTES_A_SECOND: u64 = 8 << 20;
const VIDEO_ASIDE: u64 = 4 << 20;

/// Limit of an audio file of about this length, in bytes.
pub fn sound_bytes(seconds: f64) -> u64 {
    (longest(seconds).ceil() as u64).saturating_mul(BYTES_A_SECOND) + SOUND_ASIDE
}

/// Limit of a video file of about this length, in bytes.
pub fn video_bytes(seconds: f64) -> u64 {
    (longest(seconds).ceil() as u64).saturating_mul(VIDEO_BYTES_A_SECOND) + VIDEO_ASIDE
}

fn longest(seconds: f64) -> f64 {
    seconds + (seconds * TOLERANCE).max(1.0)
}

impl Results {
    pub fn new(pictures: Pictures, media: Media, reader: Reader) -> Self {
        Self {
            pictures,
            media,
            reader,
            turns: Arc::new(Semaphore::new(2 * AT_ONCE)),
        }
    }

    /// Checks the upload of this object. May be repeated.
    pub async fn take_in(&self, key: Key, drawn: Drawn) -> Result<(), Unfit> {
        let _turn = self.turns.acquire().await;
        let bytes = self.uploaded(key, bytes_of(drawn.pixels)).await?;
        let bounds = Bounds::Pixels(drawn.pixels);
        let (size, converted) = self.pictures.convert(bytes, bounds, key.kind()).await?;
        check_size(size, drawn)?;
        if let Some(converted) = converted {
            self.media.put(key, converted).await?;
        }
        Ok(())
    }

    /// Accepts an upload of any kind.
    pub async fn take_upload(&self, key: Key, check: UploadCheck) -> Result<(), Unfit> {
        match check {
            UploadCheck::Image(drawn) => self.take_in(key, drawn).await,
            UploadCheck::Sound { seconds, least } => self.take_sound(key, seconds, least).await,
            UploadCheck::Video(check) => self.take_video(key, check).await,
        }
    }

    async fn take_sound(&self, key: Key, seconds: f64, least: f64) -> Result<(), Unfit> {
        let _turn = self.turns.acquire().await;
        let bytes = self.uploaded(key, sound_bytes(seconds)).await?;
        let header = sound::inspect(&bytes, key.kind())?;
        let bounds = SoundBounds {
            seconds: longest(seconds),
            channels: CHANNELS,
        };
        bounds.check(header)?;
        let limits = SoundLimits {
            seconds: longest(seconds),
            samples: CHECKED_SAMPLES,
        };
        // The header may claim more, so the decoded samples give the length.
        let found = self.reader.measure_sound(bytes, limits).await?;
        if found.rate < LEAST_RATE {
            return Err(Unfit::LowRate { found: found.rate });
        }
        if found.peak <= SILENCE {
            return Err(Unfit::Silent);
        }
        let least = least - (least * TOLERANCE).max(1.0);
        match found.seconds() >= least {
            true => Ok(()),
            false => Err(Unfit::TooShort {
                found: found.seconds(),
                least,
            }),
        }
    }

    /// Checks a video without decoding it: its tables hold its properties, and a key frame must contain a picture.
    async fn take_video(&self, key: Key, check: VideoCheck) -> Result<(), Unfit> {
        let _turn = self.turns.acquire().await;
        let bytes = self.uploaded(key, video_bytes(check.seconds)).await?;
        let track = self.reader.measure_video(bytes).await?;
        check_video(track, check)
    }

    async fn uploaded(&self, key: Key, most: u64) -> Result<Bytes, Unfit> {
        let taken = self.media.take_in_up_to(most, key).await;
        let there = taken.map_err(|unaccepted| match unaccepted {
            Unaccepted::Store(error) => Unfit::Store(error),
            unaccepted => Unfit::Refused(unaccepted),
        })?;
        if there.is_none() {
            return Err(Unfit::Missing);
        }
        self.media.get(key).await?.ok_or(Unfit::Missing)
    }

    /// Stores a gray image of the smallest size for a missing upload.
    pub async fn fill_in(&self, key: Key, drawn: Drawn) -> Result<(), Unfit> {
        let (width, height) = drawn.least;
        let gray = self.pictures.gray(Size { width, height }, key.kind());
        Ok(self.media.put(key, gray.await?).await?)
    }

    /// A stored image in this file type, converted if needed.
    pub async fn encoded(&self, key: Key, drawn: Drawn, kind: MediaType) -> Result<Bytes, Unfit> {
        let _turn = self.turns.acquire().await;
        let bytes = self.media.get(key).await?.ok_or(Unfit::Missing)?;
        if key.kind() == kind {
            return Ok(bytes);
        }
        let bounds = Bounds::Pixels(drawn.pixels);
        let (_, encoded) = self.pictures.convert(bytes.clone(), bounds, kind).await?;
        Ok(encoded.unwrap_or(bytes))
    }

    /// Accepts a base64 image.
    pub async fn take_text(
        &self,
        text: &str,
        most_bytes: usize,
        key: Key,
        drawn: Drawn,
    ) -> Result<(), Unfit> {
        let bounds = Bounds::Pixels(drawn.pixels);
        let text = text.to_owned();
        let prepared = self
            .pictures
            .prepare_text(text, most_bytes, bounds, Preparation::FirstFrame)
            .await?;
        let size = Size {
            width: prepared.width,
            height: prepared.height,
        };
        check_size(size, drawn)?;
        self.media.put(key, prepared.webp).await?;
        Ok(())
    }
}

impl Unfit {
    /// Whether the worker is at fault, so that another one gets the job. Warns if the store is unavailable.
    pub fn is_workers_fault(&self) -> bool {
        match self {
            Self::Store(_) | Self::Reader(_) => {
                warn!("checking an upload failed: {self}");
                false
            }
            _ => true,
        }
    }
}

fn check_video(track: VideoTrack, check: VideoCheck) -> Result<(), Unfit> {
    let least = (check.width / PATCH * PATCH, check.height / PATCH * PATCH);
    if track.width < least.0 || track.height < least.1 {
        return Err(Unfit::TooSmall {
            found: (track.width, track.height),
            least,
        });
    }
    // Models generate frames in groups.
    let spare = (check.frames / 10).max(GROUP);
    let least = check.frames.saturating_sub(spare).max(1);
    if track.frames < least {
        return Err(Unfit::TooFewFrames {
            found: track.frames,
            least,
        });
    }
    let is_near = |wanted: f64| (track.seconds - wanted).abs() <= longest(wanted) - wanted;
    match check.seconds <= 0.0 || is_near(check.seconds) {
        true => Ok(()),
        false => Err(Unfit::OtherLength {
            found: track.seconds,
            wanted: check.seconds,
        }),
    }
}

impl From<ReadError> for Unfit {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Start(_) => Self::Reader(error.to_string()),
            ReadError::Refused(_) | ReadError::Ended(_) => Self::Unreadable(error.to_string()),
        }
    }
}

/// An image may be rotated by its orientation field, which some programs ignore.
fn check_size(found: Size, drawn: Drawn) -> Result<(), Unfit> {
    let (width, height) = drawn.least;
    let fits = |width, height| found.width >= width && found.height >= height;
    match fits(width, height) || drawn.may_be_turned && fits(height, width) {
        true => Ok(()),
        false => Err(Unfit::TooSmall {
            found: (found.width, found.height),
            least: drawn.least,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Drawn, Size, check_size};

    #[test]
    fn an_image_is_as_large_as_was_asked_for_or_larger() {
        let check = |found: (u32, u32), may_be_turned, expected| {
            let drawn = Drawn {
                pixels: u64::MAX,
                least: (512, 768),
                may_be_turned,
            };
            let (width, height) = found;
            let found = Size { width, height };
            assert_eq!(check_size(found, drawn).is_ok(), expected, "{found:?}");
        };
        check((512, 768), false, true);
        check((2048, 3072), false, true);
        check((1, 1), false, false);
        check((511, 768), false, false);
        check((768, 512), false, false);
        check((768, 512), true, true);
    }
}
