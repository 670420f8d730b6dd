//! Encodes pixels as WebP by libwebp, because Rust encoders are lossless only: ten times the size for a photograph.
//! Also as PNG with texts, and JPEG.

use std::borrow::Cow;

use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageEncoder};
use webp::Encoder;

use super::description::{DESCRIPTION_KEYWORD, describe};
use super::{Channels, ImageError, Pixels, Size};
use crate::MediaType;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WebpQuality {
    Lossless,
    /// From 0 to 100.
    Lossy(f32),
}

/// A text inside a PNG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PngText<'a> {
    /// At most 79 characters of Latin-1, such as `parameters`.
    pub keyword: &'a str,
    pub text: &'a str,
}

/// Small images keep their details; large ones lose details that are invisible at their size.
const FINE: f64 = 512.0 * 512.0;
const COARSE: f64 = 3072.0 * 3072.0;
const BEST: f64 = 100.0;
const LEAST: f64 = 50.0;

const JPEG_QUALITY: u8 = 90;
/// For a lossless image libwebp takes an effort in place of a quality.
const LOSSLESS_EFFORT: f32 = 75.0;

impl WebpQuality {
    /// Falls from 100 to 50 as the image gets larger.
    pub fn for_size(size: Size) -> Self {
        let pixels = f64::from(size.width) * f64::from(size.height);
        let share = ((pixels - FINE) / (COARSE - FINE)).clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the quality is between 50 and 100"
        )]
        let quality = (BEST - share * (BEST - LEAST)) as f32;
        Self::Lossy(quality)
    }
}

/// With the quality that suits the size.
pub fn encode(pixels: &Pixels, media_type: MediaType) -> Result<Vec<u8>, ImageError> {
    match media_type {
        MediaType::Webp => to_webp(pixels, WebpQuality::for_size(pixels.size())),
        MediaType::Png => to_png(pixels, &[]),
        MediaType::Jpeg => to_jpeg(pixels, JPEG_QUALITY),
        other => Err(ImageError::NotAnImageType(other)),
    }
}

/// The same with an optional text about the image.
pub fn encode_described(
    pixels: &Pixels,
    media_type: MediaType,
    about: Option<&str>,
) -> Result<Vec<u8>, ImageError> {
    match (about, media_type) {
        (None, _) => encode(pixels, media_type),
        (Some(text), MediaType::Png) => {
            let keyword = DESCRIPTION_KEYWORD;
            to_png(pixels, &[PngText { keyword, text }])
        }
        (Some(text), _) => {
            let file = encode(pixels, media_type)?;
            Ok(describe(file, media_type, pixels, text))
        }
    }
}

pub fn to_webp(pixels: &Pixels, quality: WebpQuality) -> Result<Vec<u8>, ImageError> {
    let (width, height) = (pixels.width(), pixels.height());
    let encoder = match pixels.channels() {
        Channels::Rgb => Encoder::from_rgb(pixels.bytes(), width, height),
        Channels::Rgba => Encoder::from_rgba(pixels.bytes(), width, height),
    };
    let written = match quality {
        WebpQuality::Lossless => encoder.encode_simple(true, LOSSLESS_EFFORT),
        WebpQuality::Lossy(quality) if quality.is_nan() => return Err(failure(pixels)),
        WebpQuality::Lossy(quality) => encoder.encode_simple(false, quality.clamp(0.0, 100.0)),
    };
    let written = written.map_err(|_| failure(pixels))?;
    Ok(written.to_vec())
}

pub fn to_png(pixels: &Pixels, texts: &[PngText<'_>]) -> Result<Vec<u8>, ImageError> {
    let mut out = Vec::new();
    let mut write = || -> Result<(), png::EncodingError> {
        let mut encoder = png::Encoder::new(&mut out, pixels.width(), pixels.height());
        encoder.set_color(match pixels.channels() {
            Channels::Rgb => png::ColorType::Rgb,
            Channels::Rgba => png::ColorType::Rgba,
        });
        encoder.set_depth(png::BitDepth::Eight);
        for PngText { keyword, text } in texts {
            encoder.add_itxt_chunk((*keyword).to_owned(), (*text).to_owned())?;
        }
        let mut writer = encoder.write_header()?;
        writer.write_image_data(pixels.bytes())?;
        writer.finish()
    };
    write().map_err(|_| failure(pixels))?;
    Ok(out)
}

/// `quality` is from 1 to 100. JPEG has no transparency: the colours below it show.
pub fn to_jpeg(pixels: &Pixels, quality: u8) -> Result<Vec<u8>, ImageError> {
    let opaque = match pixels.channels() {
        Channels::Rgb => Cow::Borrowed(pixels.bytes()),
        Channels::Rgba => {
            let pixels = pixels.bytes().chunks_exact(4);
            Cow::Owned(
                pixels
                    .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])
                    .collect(),
            )
        }
    };
    let mut out = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut out, quality.clamp(1, 100));
    let (width, height) = (pixels.width(), pixels.height());
    let written = encoder.write_image(&opaque, width, height, ExtendedColorType::Rgb8);
    written.map_err(|_| failure(pixels))?;
    Ok(out)
}

fn failure(pixels: &Pixels) -> ImageError {
    ImageError::Encoder {
        width: pixels.width(),
        height: pixels.height(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, WebpQuality};

    #[test]
    fn quality_falls_with_size() {
        let quality = |width, height| match WebpQuality::for_size(Size { width, height }) {
            WebpQuality::Lossy(quality) => quality,
            WebpQuality::Lossless => panic!("sizes ask for lossy images"),
        };
        assert_eq!(quality(64, 64), 100.0);
        assert_eq!(quality(512, 512), 100.0);
        assert!((90.0..100.0).contains(&quality(1024, 1024)));
        assert_eq!(quality(3072, 3072), 50.0);
        assert_eq!(quality(u32::MAX, u32::MAX), 50.0);
    }
}
