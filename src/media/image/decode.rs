//! Pixels from untrusted bytes. The header is read first, and nothing of the size it claims is allocated before that size
//! is within the bounds.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::header::{self, Essence};
use super::{Bounds, Channels, ImageError, Pixels, Size};

/// Memory besides the pixels: deep colours and the decoder's own buffers.
const BYTES_A_PIXEL: u64 = 16;
const SLACK_BYTES: u64 = 8 << 20;

/// The size that an image claims, if it is within the bounds. Allocates nothing.
pub fn inspect(bytes: &[u8], bounds: Bounds) -> Result<Size, ImageError> {
    let size = header::size(bytes).ok_or(ImageError::Unreadable)?;
    bounds.check(size)?;
    Ok(size)
}

/// A still image, complete and the right way up: PNG, JPEG or WebP.
pub fn decode(bytes: &[u8], bounds: Bounds) -> Result<Pixels, ImageError> {
    let essence = header::read(bytes).ok_or(ImageError::Unreadable)?;
    bounds.check(essence.size)?;
    pixels(still(essence)?)
}

/// Refuses incomplete images and images of several frames.
pub fn still(essence: Essence<'_>) -> Result<Essence<'_>, ImageError> {
    match essence {
        Essence {
            format: ImageFormat::Gif,
            ..
        } => Err(ImageError::Gif),
        Essence {
            is_animated: true, ..
        } => Err(ImageError::Animated),
        Essence {
            is_truncated: true, ..
        } => Err(ImageError::Truncated),
        essence => Ok(essence),
    }
}

/// The first frame, also of a GIF or another animation, and as much of a truncated image as its decoder accepts.
pub fn decode_first_frame(bytes: &[u8], bounds: Bounds) -> Result<Pixels, ImageError> {
    let essence = header::read(bytes).ok_or(ImageError::Unreadable)?;
    bounds.check(essence.size)?;
    pixels(essence)
}

/// Decodes an image whose size was checked.
pub fn pixels(essence: Essence<'_>) -> Result<Pixels, ImageError> {
    let mut decoder = decoder(&essence)?;
    let read = || {
        let orientation = decoder.orientation()?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        image::ImageResult::Ok(image)
    };
    upright(read().map_err(|_| ImageError::Unreadable)?)
}

/// Positioned at the first pixel, after the header.
pub fn decoder<'a>(essence: &'a Essence<'_>) -> Result<impl ImageDecoder + 'a, ImageError> {
    let mut reader = ImageReader::with_format(Cursor::new(&*essence.bytes), essence.format);
    reader.limits(limits(essence.size));
    reader.into_decoder().map_err(|_| ImageError::Unreadable)
}

/// Pixels of an image that is the right way up.
pub fn upright(image: DynamicImage) -> Result<Pixels, ImageError> {
    let image = image.into_rgba8();
    let size = Size {
        width: image.width(),
        height: image.height(),
    };
    Pixels::new(size, Channels::Rgba, image.into_raw())
}

fn limits(size: Size) -> Limits {
    let mut limits = Limits::default();
    limits.max_image_width = Some(size.width);
    limits.max_image_height = Some(size.height);
    limits.max_alloc = Some(size.pixels() * BYTES_A_PIXEL + SLACK_BYTES);
    limits
}
