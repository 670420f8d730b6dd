//! Pixels from untrusted bytes. The header is read first, and nothing of the size it claims is allocated before that size
//! is within the bounds.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageReader, Limits};

use super::header::{self, Essence};
use super::{Bounds, ImageError};

/// The size that a header claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub width: u32,
    pub height: u32,
}

/// Pixels, turned the right way up.
#[derive(Debug, Clone)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    /// Four bytes a pixel: red, green, blue and how opaque it is.
    pub pixels: Vec<u8>,
}

/// Beside the pixels themselves: what a decoder may need for deep colours and for its own work.
const BYTES_A_PIXEL: u64 = 16;
const SLACK_BYTES: u64 = 8 << 20;

/// The size that an image claims, if it is within the bounds. Allocates nothing.
pub fn inspect(bytes: &[u8], bounds: Bounds) -> Result<Header, ImageError> {
    let header = header::size(bytes).ok_or(ImageError::Unreadable)?;
    bounds.check(header)?;
    Ok(header)
}

/// The image; of several in one file, the first.
pub fn decode(bytes: &[u8], bounds: Bounds) -> Result<Picture, ImageError> {
    let Essence {
        format,
        header,
        bytes,
    } = header::read(bytes).ok_or(ImageError::Unreadable)?;
    bounds.check(header)?;
    let mut reader = ImageReader::with_format(Cursor::new(&*bytes), format);
    reader.limits(limits(header));
    let read = || {
        let mut decoder = reader.into_decoder()?;
        let orientation = decoder.orientation()?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        image::ImageResult::Ok(image)
    };
    let image = read().map_err(|_| ImageError::Unreadable)?.into_rgba8();
    Ok(Picture {
        width: image.width(),
        height: image.height(),
        pixels: image.into_raw(),
    })
}

impl Picture {
    /// Whether a pixel is not opaque. WebP drops an alpha channel that is opaque throughout.
    pub fn is_transparent(&self) -> bool {
        self.pixels.chunks_exact(4).any(|pixel| pixel[3] != u8::MAX)
    }
}

fn limits(header: Header) -> Limits {
    let mut limits = Limits::default();
    limits.max_image_width = Some(header.width);
    limits.max_image_height = Some(header.height);
    let pixels = u64::from(header.width) * u64::from(header.height);
    limits.max_alloc = Some(pixels * BYTES_A_PIXEL + SLACK_BYTES);
    limits
}
