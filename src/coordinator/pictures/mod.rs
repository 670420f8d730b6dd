//! Untrusted images: decoded within limits, and encoded again as WebP.
//!
//! | file | contents |
//! | --- | --- |
//! | `text` | base64 in and out |
//! | `document` | files in chats: PDF files, read by a separate process, and texts |
//! | `sound` | audio files of requests, read by a separate process |
//! | `budget` | samples of audio that a sender may have decoded |
//! | `results` | images that workers upload: checked before the job is paid |
//! | `source` | source images of requests: from text or URL to an object of the media store |
//!
//! Bytes of users and workers are never passed on: a stored image was decoded and encoded here, so it is a valid image
//! of the stated size without hidden data. All of this runs off the async threads, a few images at a time: one or two
//! per user, and workers' results under permits of their own.

mod budget;
mod document;
mod results;
mod sound;
mod source;
mod text;

#[cfg(test)]
pub mod tests;

pub use document::{ChatFile, ChatFileError};
pub use results::{Results, Unfit, UploadCheck, VideoCheck, sound_bytes, video_bytes};
pub use sound::{
    SourceSound, SourceSoundError, SpokenFile, endless_wav, least_seconds, to_sound_file,
};
pub use source::{Role, Source, SourceError, Sources, is_address};
pub use text::{from_base64, to_base64};

use std::io::{self, Read, Seek};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use muster_media::MediaType;
use muster_media::image::{
    Bounds, Channels, ImageError, PREVIEW_SIDE, Pixels, Size, WebpQuality, decode,
    decode_first_frame, decode_photo, description, encode, encode_described, inspect,
    preview_within, to_webp,
};
pub use muster_media::video::VideoStill;
use muster_media::video::{SHEET_SIDE, still};

/// Decodes and encodes images. Clones share the limits.
#[derive(Debug, Clone)]
pub struct Pictures {
    places: Arc<Semaphore>,
    /// Limit of pixels decoded at the same time, in millions.
    room: Arc<Semaphore>,
    most_room: u32,
}

/// A stored image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    pub webp: Bytes,
    pub width: u32,
    pub height: u32,
    /// Has transparency, so it can be inpainted without a mask.
    pub is_transparent: bool,
}

/// How an image is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// The first frame of an animation.
    FirstFrame,
    /// Animations are refused, large photos are scaled down.
    Still,
    /// The same for a mask in workers' form: white where the image is painted.
    Mask,
    /// The same for a mask of the AI Horde API: the first frame, and any colours.
    PolledMask,
}

/// Why an image is refused, for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    #[error("the image is not valid base64")]
    NotBase64,
    #[error("the image is larger than {most} bytes")]
    TooLarge { most: usize },
    #[error(
        "the mask has colours: it must be transparent or white where the image is drawn anew, and black elsewhere"
    )]
    ColouredMask,
    #[error("the mask has no transparent and no white pixel, so that nothing would be drawn anew")]
    EmptyMask,
    #[error(transparent)]
    Image(#[from] ImageError),
}

const AT_ONCE: usize = 4;
/// In millions of pixels, each of which takes some 16 bytes for a moment: one of the largest results, or many small
/// ones.
const ROOM_OF_DRAWN: u32 = 160;
/// And one of the largest source images.
const ROOM_OF_SENT: u32 = 80;
/// F-27 of the AI Horde API; larger photos of OpenAI's API are scaled down.
const SOURCE: Bounds = Bounds::Pixels(SOURCE_PIXELS);
const SOURCE_PIXELS: u64 = 3072 * 3072;
/// A scaled-down photo takes as much memory as an image of this size.
const DECODED_PHOTO: Size = Size {
    width: 3072,
    height: 3072,
};
/// The size limit of an image for interrogation.
const INTERROGATED: Bounds = Bounds::Tiles(255);

impl Pictures {
    /// For workers' results, with permits separate from those of users' images.
    pub fn drawn() -> Self {
        Self::with_room_for(ROOM_OF_DRAWN)
    }

    /// For users' images.
    pub fn sent() -> Self {
        Self::with_room_for(ROOM_OF_SENT)
    }

    fn with_room_for(megapixels: u32) -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            room: Arc::new(Semaphore::new(megapixels as usize)),
            most_room: megapixels,
        }
    }

    /// The size in an image's header.
    pub fn measure(&self, bytes: &[u8], bounds: Bounds) -> Result<Size, PictureError> {
        Ok(inspect(bytes, bounds)?)
    }

    /// Converts an image of a client to its stored form.
    pub async fn prepare(
        &self,
        bytes: Bytes,
        bounds: Bounds,
        use_as: Preparation,
    ) -> Result<Prepared, PictureError> {
        let (size, bytes) = self.inspect(bytes, bounds).await?;
        let size = match use_as {
            Preparation::Still | Preparation::Mask if size.pixels() > SOURCE_PIXELS => {
                DECODED_PHOTO
            }
            _ => size,
        };
        self.with_room(size, move || prepare(&bytes, bounds, use_as))
            .await
    }

    /// Decodes an image, and encodes it with its metadata if its type is not the stored one.
    async fn convert(
        &self,
        bytes: Bytes,
        bounds: Bounds,
        media_type: MediaType,
    ) -> Result<(Size, Option<Bytes>), PictureError> {
        let (size, bytes) = self.inspect(bytes, bounds).await?;
        self.with_room(size, move || {
            let pixels = decode(&bytes, bounds)?;
            let size = pixels.size();
            match MediaType::sniff(&bytes) == Some(media_type) {
                true => Ok((size, None)),
                false => {
                    let about = description(&bytes);
                    let encoded = encode_described(&pixels, media_type, about.as_deref())?;
                    Ok((size, Some(encoded.into())))
                }
            }
        })
        .await
    }

    /// A uniform gray image.
    async fn gray(&self, size: Size, media_type: MediaType) -> Result<Bytes, PictureError> {
        self.with_room(size, move || {
            let bytes = vec![128; size.pixels() as usize * Channels::Rgb.count()];
            let pixels = Pixels::new(size, Channels::Rgb, bytes)?;
            Ok(encode(&pixels, media_type)?.into())
        })
        .await
    }

    /// The same for a base64 image.
    pub async fn prepare_text(
        &self,
        text: String,
        most: usize,
        bounds: Bounds,
        use_as: Preparation,
    ) -> Result<Prepared, PictureError> {
        let read = move || from_base64(&text, most).map(Bytes::from);
        let bytes = self.working(read).await?;
        self.prepare(bytes, bounds, use_as).await
    }

    async fn inspect(&self, bytes: Bytes, bounds: Bounds) -> Result<(Size, Bytes), PictureError> {
        let look = move || Ok((inspect(&bytes, bounds)?, bytes));
        self.working(look).await
    }

    /// Limits by pixels, since few bytes can decode to a large image.
    async fn with_room<T: Send + 'static>(
        &self,
        size: Size,
        work: impl FnOnce() -> Result<T, PictureError> + Send + 'static,
    ) -> Result<T, PictureError> {
        let pixels = megapixels(size, self.most_room);
        let room = self.room.clone().acquire_many_owned(pixels).await;
        self.working(move || {
            let _room = room;
            work()
        })
        .await
    }

    async fn working<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, PictureError> + Send + 'static,
    ) -> Result<T, PictureError> {
        let place = self.places.clone().acquire_owned().await;
        // The permit is held until the work is done, even if the caller stops waiting.
        let work = move || {
            let _place = place;
            work()
        };
        let done = spawn_blocking(work).await;
        // A panic of the decoder means an invalid image.
        done.unwrap_or(Err(ImageError::Unreadable.into()))
    }
}

/// Limit of an image in the file of a video.
const MOST_STILL_BYTES: usize = 128 << 10;

/// A still image of a video, encoded again; `None` if it has none.
pub fn video_still(video: impl Read + Seek, wanted: VideoStill) -> io::Result<Option<Vec<u8>>> {
    let image = still(video, wanted)?;
    let side = match wanted {
        VideoStill::Poster => PREVIEW_SIDE,
        VideoStill::Sheet => SHEET_SIDE,
    };
    let bounds = Bounds::Pixels(u64::from(side).pow(2));
    let pixels = image.and_then(|image| decode_first_frame(&image, bounds).ok());
    Ok(pixels.and_then(|pixels| preview_within(&pixels, side, MOST_STILL_BYTES).ok()))
}

fn megapixels(size: Size, most: u32) -> u32 {
    let millions = u32::try_from(size.pixels().div_ceil(1_000_000)).unwrap_or(most);
    millions.clamp(1, most)
}

fn prepare(bytes: &[u8], bounds: Bounds, use_as: Preparation) -> Result<Prepared, PictureError> {
    let (pixels, encoded) = match use_as {
        Preparation::FirstFrame => as_webp(decode_first_frame(bytes, bounds)?)?,
        Preparation::Still => as_webp(decode_photo(bytes, SOURCE_PIXELS)?)?,
        Preparation::Mask => {
            let mask = decode_photo(bytes, SOURCE_PIXELS)?;
            as_mask(repainted(&mask).unwrap_or_else(|| black_and_white(&mask))?)?
        }
        Preparation::PolledMask => {
            let mask = decode_first_frame(bytes, bounds)?;
            as_mask(repainted(&mask).unwrap_or(Ok(mask))?)?
        }
    };
    Ok(Prepared {
        webp: encoded.into(),
        width: pixels.width(),
        height: pixels.height(),
        is_transparent: pixels.is_transparent(),
    })
}

fn as_webp(pixels: Pixels) -> Result<(Pixels, Vec<u8>), PictureError> {
    let encoded = encode(&pixels, MediaType::Webp)?;
    Ok((pixels, encoded))
}

/// Lossless, so that edges stay exact.
fn as_mask(pixels: Pixels) -> Result<(Pixels, Vec<u8>), PictureError> {
    let encoded = to_webp(&pixels, WebpQuality::Lossless)?;
    Ok((pixels, encoded))
}

/// A transparent mask in workers' form; `None` if no pixel is transparent.
fn repainted(mask: &Pixels) -> Option<Result<Pixels, PictureError>> {
    if !mask.is_transparent() {
        return None;
    }
    let shares = mask.bytes().chunks_exact(Channels::Rgba.count());
    let white = shares.flat_map(|pixel| [u8::MAX - pixel[3]; 3]);
    let pixels = Pixels::new(mask.size(), Channels::Rgb, white.collect());
    Some(pixels.map_err(PictureError::Image))
}

/// Tolerated colour of a gray pixel, for lossy files.
const MOST_TINT: u8 = 48;

/// An opaque mask, white where the image is painted.
fn black_and_white(mask: &Pixels) -> Result<Pixels, PictureError> {
    let mut gray = Vec::with_capacity(mask.size().pixels() as usize * Channels::Rgb.count());
    for pixel in mask.bytes().chunks_exact(mask.channels().count()) {
        let colours = [pixel[0], pixel[1], pixel[2]];
        let (least, most) = (colours.iter().min(), colours.iter().max());
        if most
            .zip(least)
            .is_some_and(|(most, least)| most - least > MOST_TINT)
        {
            return Err(PictureError::ColouredMask);
        }
        gray.extend([pixel[1]; 3]);
    }
    match gray.iter().any(|share| *share > u8::MAX / 2) {
        true => Ok(Pixels::new(mask.size(), Channels::Rgb, gray)?),
        false => Err(PictureError::EmptyMask),
    }
}
