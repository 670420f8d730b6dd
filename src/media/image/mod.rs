//! Images from untrusted bytes, and back.
//!
//! | file | contents |
//! | --- | --- |
//! | `header` | format and size from bytes, without a decoder; the file without its metadata |
//! | `decode` | pixels from bytes, after a check of the header |
//! | `photo` | pixels of large images, downscaled during decoding |
//! | `area` | downscaling row by row |
//! | `encode` | pixels as WebP, PNG or JPEG |
//! | `description` | the text about an image inside its file |
//! | `preview` | a small WebP of an image |

mod area;
mod decode;
mod description;
mod encode;
mod header;
mod photo;
mod preview;

#[cfg(test)]
mod tests;

pub use decode::{decode, decode_first_frame, inspect};
pub use description::{DESCRIPTION_KEYWORD, description};
pub use encode::{PngText, WebpQuality, encode, encode_described, to_jpeg, to_png, to_webp};
pub use photo::{PHOTO, PHOTO_BYTES, decode_photo};
pub use preview::{PREVIEW_BYTES, PREVIEW_SIDE, preview, preview_within, reduced};

use crate::MediaType;

/// The largest image to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// This many pixels, and no side longer than WebP allows.
    Pixels(u64),
    /// This many squares of 512 pixels.
    Tiles(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

/// Rows of pixels, top first, without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    size: Size,
    channels: Channels,
    bytes: Vec<u8>,
}

/// The bytes of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    Rgb,
    /// The last byte is the opacity.
    Rgba,
}

/// Why bytes are not decoded, or pixels not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("the image has {found} pixels, at most {most} are allowed")]
    TooManyPixels { found: u64, most: u64 },
    #[error("the image has {found} tiles of 512x512, at most {most} are allowed")]
    TooManyTiles { found: u64, most: u64 },
    #[error("the longer side of the image has {found} pixels, at most {LONGEST_SIDE} are allowed")]
    TooLong { found: u32 },
    #[error(
        "decoding {found} pixels of {format} takes {bytes} bytes, at most {PHOTO_BYTES} are allowed; send a JPEG \
         that is not progressive, or a smaller image"
    )]
    TooMuchMemory {
        format: &'static str,
        found: u64,
        bytes: u64,
    },
    #[error("the image is a GIF, expected a PNG, JPEG or WebP")]
    Gif,
    #[error("the image is animated, expected a single frame")]
    Animated,
    #[error("the image is truncated")]
    Truncated,
    #[error("the image cannot be decoded: not a PNG, JPEG, WebP or GIF, or damaged")]
    Unreadable,
    #[error("{width}x{height} pixels take {expected} bytes, found {found}")]
    WrongLength {
        width: u32,
        height: u32,
        expected: u64,
        found: u64,
    },
    #[error("{0} is not an image type")]
    NotAnImageType(MediaType),
    #[error("encoding {width}x{height} pixels failed")]
    Encoder { width: u32, height: u32 },
}

/// The longest side of a WebP.
const LONGEST_SIDE: u32 = 16_383;
const TILE: u32 = 512;

impl Bounds {
    fn check(self, size: Size) -> Result<(), ImageError> {
        let Size { width, height } = size;
        let pixels = size.pixels();
        let tiles = u64::from(width.div_ceil(TILE)) * u64::from(height.div_ceil(TILE));
        match self {
            _ if pixels == 0 => Err(ImageError::Unreadable),
            Self::Pixels(most) if pixels > most => Err(ImageError::TooManyPixels {
                found: pixels,
                most,
            }),
            Self::Tiles(most) if tiles > most => {
                Err(ImageError::TooManyTiles { found: tiles, most })
            }
            _ if width.max(height) > LONGEST_SIDE => Err(ImageError::TooLong {
                found: width.max(height),
            }),
            _ => Ok(()),
        }
    }
}

impl Size {
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }
}

impl Channels {
    /// Bytes per pixel.
    pub const fn count(self) -> usize {
        match self {
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

impl Pixels {
    /// Fails unless the bytes match an image of this size.
    pub fn new(size: Size, channels: Channels, bytes: Vec<u8>) -> Result<Self, ImageError> {
        let expected = size.pixels().saturating_mul(channels.count() as u64);
        if size.pixels() == 0 || bytes.len() as u64 != expected {
            return Err(ImageError::WrongLength {
                width: size.width,
                height: size.height,
                expected,
                found: bytes.len() as u64,
            });
        }
        Ok(Self {
            size,
            channels,
            bytes,
        })
    }

    pub const fn size(&self) -> Size {
        self.size
    }

    pub const fn width(&self) -> u32 {
        self.size.width
    }

    pub const fn height(&self) -> u32 {
        self.size.height
    }

    pub const fn channels(&self) -> Channels {
        self.channels
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether a pixel is not opaque. WebP drops an alpha channel that is opaque throughout.
    pub fn is_transparent(&self) -> bool {
        let mut pixels = self.bytes.chunks_exact(4);
        self.channels == Channels::Rgba && pixels.any(|pixel| pixel[3] != u8::MAX)
    }
}
