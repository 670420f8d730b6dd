//! Video as MP4 with H.264 or as animated WebP, encoded frame by frame.
//!
//! | file | contents |
//! | --- | --- |
//! | `planes` | colors as H.264 has them: BT.709, one pair of color values for four pixels |
//! | `color` | the color space in the stream |
//! | `stills` | small images in the file |
//! | `sheet` | frames side by side as one of them |
//! | `animation` | animated WebP |
//! | `track` | the track of an untrusted MP4 |
//! | `key_frame` | checks that a key frame has content |
//!
//! The encoder is Rust alone: it needs no C++ compiler and no library at run time.

mod animation;
mod color;
mod key_frame;
mod planes;
mod sheet;
mod stills;
mod track;

#[cfg(test)]
mod tests;

pub use animation::WebpWriter;
pub use sheet::SHEET_SIDE;
pub use stills::{VideoStill, still};
pub use track::{TrackError, VideoTrack, track};

use std::time::Duration;

use muxide::api::{Muxer, MuxerBuilder, VideoCodec};
use rusty_h264_encoder::{Encoder, EncoderConfig, Preset};

use self::sheet::Sheet;
use self::stills::boxed;
use crate::image::{Pixels, Size, preview};

/// Writes a file: the table of its frames comes first, so that players begin before all of it is loaded.
pub struct Mp4Writer {
    encoder: Encoder,
    muxer: Muxer<Vec<u8>>,
    size: Size,
    rate: f64,
    frames: u32,
    /// Frames between two that need no other.
    key_frames_apart: u32,
    /// The first frame as an image.
    poster: Vec<u8>,
    sheet: Sheet,
}

/// Why frames make no file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum VideoError {
    #[error(
        "a video of {width} x {height} cannot be encoded: both sides must be even, from {LEAST_SIDE} to {MOST_SIDE}"
    )]
    Size { width: u32, height: u32 },
    #[error(
        "an animated WebP of {width} x {height} cannot be encoded: a side has 1 to 16383 pixels"
    )]
    WebpSize { width: u32, height: u32 },
    #[error(
        "{0} frames a second cannot be encoded: there must be more than 0 and at most {MOST_RATE}"
    )]
    Rate(f64),
    #[error("a frame of {width} x {height} does not belong to the video")]
    OtherSize { width: u32, height: u32 },
    #[error("the video has no frames")]
    Empty,
    #[error("encoding the video failed: {0}")]
    Encoder(String),
}

const LEAST_SIDE: u32 = 16;
const MOST_SIDE: u32 = 4096;
const MOST_RATE: f64 = 240.0;
/// From 0, lossless, to 51: at this number differences are hardly visible.
const QUANTIZER: u8 = 20;
/// A player seeks to these.
const KEY_FRAMES_APART: Duration = Duration::from_secs(2);

impl Mp4Writer {
    /// `rate` is in frames a second.
    pub fn new(size: Size, rate: f64) -> Result<Self, VideoError> {
        let Size { width, height } = size;
        let fits = |side: u32| side.is_multiple_of(2) && (LEAST_SIDE..=MOST_SIDE).contains(&side);
        if !fits(width) || !fits(height) {
            return Err(VideoError::Size { width, height });
        }
        if !(rate > 0.0 && rate <= MOST_RATE) {
            return Err(VideoError::Rate(rate));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the rate has a bound"
        )]
        let key_frames_apart = (rate * KEY_FRAMES_APART.as_secs_f64()).ceil().max(1.0) as u32;
        let mut config = EncoderConfig::new(width as usize, height as usize);
        config.preset = Preset::Balanced;
        config.qp = QUANTIZER;
        config.bitrate = 0;
        #[expect(clippy::cast_possible_truncation, reason = "a rate has few digits")]
        {
            config.framerate = rate as f32;
        }
        config.gop_size = key_frames_apart;
        // Each frame leaves at once, at its regular place.
        config.scenecut = 0;
        config.lookahead = 0;
        config.bframes = 0;
        config.mbtree = false;
        let encoder = Encoder::new(config).map_err(failed)?;
        let muxer = MuxerBuilder::new(Vec::new())
            .video(VideoCodec::H264, width, height, rate)
            .with_fast_start(true)
            .build()
            .map_err(failed)?;
        Ok(Self {
            encoder,
            muxer,
            size,
            rate,
            frames: 0,
            key_frames_apart,
            poster: Vec::new(),
            sheet: Sheet::new(),
        })
    }

    pub fn push(&mut self, frame: &Pixels) -> Result<(), VideoError> {
        let Size { width, height } = frame.size();
        if frame.size() != self.size {
            return Err(VideoError::OtherSize { width, height });
        }
        if self.frames == 0 {
            // A video is complete without.
            self.poster = preview(frame).unwrap_or_default();
        }
        self.sheet.push(self.frames, frame);
        let planes = planes::of(frame);
        let encoded = self.encoder.try_encode(&planes).map_err(failed)?;
        let is_key = self.frames.is_multiple_of(self.key_frames_apart);
        let encoded = match is_key {
            true => color::noted(&encoded),
            false => encoded,
        };
        let at = f64::from(self.frames) / self.rate;
        self.muxer
            .write_video(at, &encoded, is_key)
            .map_err(failed)?;
        self.frames += 1;
        Ok(())
    }

    /// The file.
    pub fn finish(mut self) -> Result<Vec<u8>, VideoError> {
        if self.frames == 0 {
            return Err(VideoError::Empty);
        }
        self.muxer.finish_in_place().map_err(failed)?;
        let mut file = self.muxer.into_writer();
        file.extend(boxed(VideoStill::Poster, &self.poster));
        let sheet = self.sheet.image().unwrap_or_default();
        file.extend(boxed(VideoStill::Sheet, &sheet));
        Ok(file)
    }
}

fn failed(error: impl std::fmt::Debug) -> VideoError {
    VideoError::Encoder(format!("{error:?}"))
}
