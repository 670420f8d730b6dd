//! Pixels as lossy WebP, by libwebp: encoders in Rust are lossless so far, ten times the size for a photograph. Also as
//! PNG and JPEG.

use std::io::Cursor;

use bytes::Bytes;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use webp::Encoder;

use super::ImageError;
use super::decode::Picture;
use crate::MediaType;

/// Small images keep their details; large ones lose those that are invisible at their size.
const FINE: f64 = 512.0 * 512.0;
const COARSE: f64 = 3072.0 * 3072.0;
const BEST: f64 = 100.0;
const LEAST: f64 = 50.0;

const JPEG_QUALITY: u8 = 90;

pub fn encode(picture: &Picture, media_type: MediaType) -> Result<Bytes, ImageError> {
    match media_type {
        MediaType::Webp => to_webp(picture).map(Bytes::from),
        MediaType::Png => with(|out| {
            let rgba = ExtendedColorType::Rgba8;
            PngEncoder::new(out).write_image(&picture.pixels, picture.width, picture.height, rgba)
        }),
        // JPEG has no transparency.
        MediaType::Jpeg => with(|out| {
            let opaque = picture.pixels.chunks_exact(4);
            let opaque: Vec<u8> = opaque
                .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])
                .collect();
            let encoder = JpegEncoder::new_with_quality(out, JPEG_QUALITY);
            encoder.write_image(
                &opaque,
                picture.width,
                picture.height,
                ExtendedColorType::Rgb8,
            )
        }),
        _ => Err(ImageError::Unreadable),
    }
}

fn with(
    write: impl FnOnce(&mut Cursor<Vec<u8>>) -> image::ImageResult<()>,
) -> Result<Bytes, ImageError> {
    let mut out = Cursor::new(Vec::new());
    write(&mut out).map_err(|_| ImageError::Unreadable)?;
    Ok(out.into_inner().into())
}

fn to_webp(picture: &Picture) -> Result<Vec<u8>, ImageError> {
    let quality = quality(picture.width, picture.height);
    let encoder = Encoder::from_rgba(&picture.pixels, picture.width, picture.height);
    let written = encoder.encode_simple(false, quality);
    let written = written.map_err(|_| ImageError::Unreadable)?;
    Ok(written.to_vec())
}

/// Falls from 100 to 50 as the image gets larger.
fn quality(width: u32, height: u32) -> f32 {
    let pixels = f64::from(width) * f64::from(height);
    let share = ((pixels - FINE) / (COARSE - FINE)).clamp(0.0, 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the quality is between 50 and 100"
    )]
    let quality = (BEST - share * (BEST - LEAST)) as f32;
    quality
}

#[cfg(test)]
mod tests {
    use super::quality;

    #[test]
    fn the_larger_the_coarser() {
        assert_eq!(quality(64, 64), 100.0);
        assert_eq!(quality(512, 512), 100.0);
        assert!((90.0..100.0).contains(&quality(1024, 1024)));
        assert_eq!(quality(3072, 3072), 50.0);
        assert_eq!(quality(u32::MAX, u32::MAX), 50.0);
    }
}
