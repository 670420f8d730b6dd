//! Encodes a small WebP of an image, for progress and lists: few bytes, whatever the content.

use image::imageops::thumbnail;
use image::{ImageBuffer, Rgb, Rgba};

use super::{Channels, ImageError, Pixels, Size, WebpQuality, to_webp};

/// The most bytes of a preview.
pub const PREVIEW_BYTES: usize = 16 << 10;
/// The longest side of a preview.
pub const PREVIEW_SIDE: u32 = 512;

/// Halved until the preview fits; then its side is.
const QUALITY: f32 = 60.0;
const LEAST_QUALITY: f32 = 15.0;

/// At most [`PREVIEW_BYTES`] and [`PREVIEW_SIDE`]. Small images are not enlarged.
pub fn preview(pixels: &Pixels) -> Result<Vec<u8>, ImageError> {
    preview_within(pixels, PREVIEW_SIDE, PREVIEW_BYTES)
}

/// The same with other limits.
pub fn preview_within(
    pixels: &Pixels,
    mut side: u32,
    most_bytes: usize,
) -> Result<Vec<u8>, ImageError> {
    loop {
        let small = reduced(pixels, side)?;
        let small = small.as_ref().unwrap_or(pixels);
        let mut quality = QUALITY;
        while quality >= LEAST_QUALITY {
            let webp = to_webp(small, WebpQuality::Lossy(quality))?;
            // One pixel fits in any case.
            if webp.len() <= most_bytes || side == 1 {
                return Ok(webp);
            }
            quality /= 2.0;
        }
        side /= 2;
    }
}

/// The image with this longest side; `None` where it is no longer than that.
pub fn reduced(pixels: &Pixels, side: u32) -> Result<Option<Pixels>, ImageError> {
    let Size { width, height } = pixels.size();
    let longest = width.max(height);
    if longest <= side {
        return Ok(None);
    }
    let scaled = |length: u32| {
        let length = u64::from(length) * u64::from(side) / u64::from(longest);
        u32::try_from(length).map_or(side, |length| length.max(1))
    };
    let size = Size {
        width: scaled(width),
        height: scaled(height),
    };
    let bytes = match pixels.channels() {
        Channels::Rgb => {
            let image = ImageBuffer::<Rgb<u8>, _>::from_raw(width, height, pixels.bytes());
            image.map(|image| thumbnail(&image, size.width, size.height).into_raw())
        }
        Channels::Rgba => {
            let image = ImageBuffer::<Rgba<u8>, _>::from_raw(width, height, pixels.bytes());
            image.map(|image| thumbnail(&image, size.width, size.height).into_raw())
        }
    };
    Pixels::new(size, pixels.channels(), bytes.unwrap_or_default()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::{PREVIEW_BYTES, PREVIEW_SIDE, preview};
    use crate::image::{Bounds, Channels, Pixels, Size, decode};

    /// Noise compresses worse than any image.
    fn noise(width: u32, height: u32, channels: Channels) -> Pixels {
        let mut state = 1_u32;
        let size = Size { width, height };
        let bytes = (0..size.pixels() * channels.count() as u64)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        Pixels::new(size, channels, bytes).unwrap()
    }

    #[test]
    fn a_preview_is_small_whatever_the_image_shows() {
        for (width, height, channels) in [
            (1, 1, Channels::Rgb),
            (512, 512, Channels::Rgba),
            (1024, 768, Channels::Rgb),
            (2000, 3, Channels::Rgba),
        ] {
            let webp = preview(&noise(width, height, channels)).unwrap();
            assert!(webp.len() <= PREVIEW_BYTES, "{} bytes", webp.len());
            let small = decode(&webp, Bounds::Pixels(1 << 20)).unwrap();
            let longest = small.width().max(small.height());
            assert!(longest <= PREVIEW_SIDE.min(width.max(height)));
        }
    }

    #[test]
    fn a_plain_image_keeps_its_shape() {
        let size = Size {
            width: 1024,
            height: 512,
        };
        let grey = vec![128; usize::try_from(size.pixels() * 3).unwrap()];
        let pixels = Pixels::new(size, Channels::Rgb, grey).unwrap();
        let small = decode(&preview(&pixels).unwrap(), Bounds::Pixels(1 << 20)).unwrap();
        assert_eq!((small.width(), small.height()), (512, 256));
    }
}
