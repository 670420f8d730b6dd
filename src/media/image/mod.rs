//! Images from untrusted bytes, and back.
//!
//! | file | contents |
//! | --- | --- |
//! | `header` | format and size from bytes, without a decoder; the file without its metadata |
//! | `decode` | pixels from bytes, after a look at the header |
//! | `encode` | pixels as WebP, PNG or JPEG |

mod decode;
mod encode;
mod header;

#[cfg(test)]
mod tests;

pub use decode::{Header, Picture, decode, inspect};
pub use encode::encode;

/// The largest image to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// So many pixels, and no side longer than WebP allows.
    Pixels(u64),
    /// So many squares of 512 pixels.
    Tiles(u64),
}

/// Why bytes are not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("the image has {found} pixels, at most {most} are allowed")]
    TooManyPixels { found: u64, most: u64 },
    #[error("the image has {found} tiles of 512x512, at most {most} are allowed")]
    TooManyTiles { found: u64, most: u64 },
    #[error("the longer side of the image has {found} pixels, at most {LONGEST_SIDE} are allowed")]
    TooLong { found: u32 },
    #[error("the image cannot be decoded: not a PNG, JPEG, WebP or GIF, or damaged")]
    Unreadable,
}

/// The longest side of a WebP.
const LONGEST_SIDE: u32 = 16_383;
const TILE: u32 = 512;

impl Bounds {
    fn check(self, header: Header) -> Result<(), ImageError> {
        let Header { width, height } = header;
        let pixels = u64::from(width) * u64::from(height);
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
