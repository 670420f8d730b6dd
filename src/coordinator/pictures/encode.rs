//! Pixels as lossy webp, by libwebp: what Rust has so far is lossless, ten times the size for a photograph.

use webp::Encoder;

use super::PictureError;
use super::decode::Picture;

/// Few pixels are kept as they are; many lose what nobody sees at that size (F-27 of the poll API).
const FINE: f64 = 512.0 * 512.0;
const COARSE: f64 = 3072.0 * 3072.0;
const BEST: f64 = 100.0;
const LEAST: f64 = 50.0;

pub fn to_webp(picture: &Picture) -> Result<Vec<u8>, PictureError> {
    let quality = quality(picture.width, picture.height);
    let encoder = Encoder::from_rgba(&picture.pixels, picture.width, picture.height);
    let written = encoder.encode_simple(false, quality);
    let written = written.map_err(|_| PictureError::Unreadable)?;
    Ok(written.to_vec())
}

/// Falls from 100 to 50 as the image gets larger.
fn quality(width: u32, height: u32) -> f32 {
    let pixels = f64::from(width) * f64::from(height);
    let share = ((pixels - FINE) / (COARSE - FINE)).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "between 50 and 100")]
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
