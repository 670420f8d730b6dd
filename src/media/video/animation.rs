//! Animated WebP: a sequence of independent images in a loop. Larger than an MP4, and displayed wherever images are.

use super::{MOST_RATE, VideoError};
use crate::image::{Pixels, Size, WebpQuality, to_webp};

/// Writes a file incrementally from frames.
#[derive(Debug)]
pub struct WebpWriter {
    size: Size,
    rate: f64,
    frames: u32,
    /// The chunks of all frames.
    chunks: Vec<u8>,
}

const QUALITY: WebpQuality = WebpQuality::Lossy(80.0);
/// The format has 24 bits for a side, and libwebp 14.
const MOST_SIDE: u32 = 16_383;
const IS_ANIMATED: u8 = 0b10;
/// A frame replaces the one before.
const REPLACES: u8 = 0b10;
/// The header of the file, before its first chunk.
const RIFF_HEADER: usize = 12;
/// A file counts its bytes in 32 bits.
const MOST_BYTES: usize = u32::MAX as usize - (1 << 10);

impl WebpWriter {
    /// `rate` is in frames a second.
    pub fn new(size: Size, rate: f64) -> Result<Self, VideoError> {
        let Size { width, height } = size;
        let fits = |side: u32| (1..=MOST_SIDE).contains(&side);
        if !fits(width) || !fits(height) {
            return Err(VideoError::WebpSize { width, height });
        }
        if !(rate > 0.0 && rate <= MOST_RATE) {
            return Err(VideoError::Rate(rate));
        }
        Ok(Self {
            size,
            rate,
            frames: 0,
            chunks: Vec::new(),
        })
    }

    pub fn push(&mut self, frame: &Pixels) -> Result<(), VideoError> {
        let Size { width, height } = frame.size();
        if frame.size() != self.size {
            return Err(VideoError::OtherSize { width, height });
        }
        let failed = |error: String| VideoError::Encoder(error);
        let file = to_webp(frame, QUALITY).map_err(|error| failed(error.to_string()))?;
        let image = file.get(RIFF_HEADER..).unwrap_or_default();
        let duration = self.millis(self.frames + 1) - self.millis(self.frames);
        let mut payload = Vec::with_capacity(16 + image.len());
        for number in [0, 0, width - 1, height - 1, duration] {
            payload.extend(small(number));
        }
        payload.push(REPLACES);
        payload.extend(image);
        if self.chunks.len() + payload.len() > MOST_BYTES {
            return Err(failed("the file has more than 4 GB".to_owned()));
        }
        put(&mut self.chunks, *b"ANMF", &payload);
        self.frames += 1;
        Ok(())
    }

    /// When a frame begins.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast saturates"
    )]
    fn millis(&self, frame: u32) -> u32 {
        (f64::from(frame) * 1000.0 / self.rate).round() as u32
    }

    /// The file.
    pub fn finish(self) -> Result<Vec<u8>, VideoError> {
        if self.frames == 0 {
            return Err(VideoError::Empty);
        }
        let mut body = b"WEBP".to_vec();
        let [width, height] = [self.size.width, self.size.height].map(|side| small(side - 1));
        let mut canvas = vec![IS_ANIMATED, 0, 0, 0];
        canvas.extend(width);
        canvas.extend(height);
        put(&mut body, *b"VP8X", &canvas);
        // A black background, and no end.
        put(&mut body, *b"ANIM", &[0, 0, 0, 0xff, 0, 0]);
        body.extend(self.chunks);
        let mut file = Vec::with_capacity(body.len() + 8);
        put(&mut file, *b"RIFF", &body);
        Ok(file)
    }
}

/// In 24 bits.
fn small(number: u32) -> [u8; 3] {
    let [one, two, three, _] = number.to_le_bytes();
    [one, two, three]
}

fn put(file: &mut Vec<u8>, name: [u8; 4], payload: &[u8]) {
    #[expect(clippy::cast_possible_truncation, reason = "frames have a bound")]
    let length = payload.len() as u32;
    file.extend(name);
    file.extend(length.to_le_bytes());
    file.extend(payload);
    if !payload.len().is_multiple_of(2) {
        file.push(0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::time::Duration;

    use image::AnimationDecoder;
    use image::codecs::webp::WebPDecoder;

    use super::WebpWriter;
    use crate::MediaType;
    use crate::image::{Channels, Pixels, Size};
    use crate::video::VideoError;

    const SIZE: Size = Size {
        width: 33,
        height: 16,
    };

    fn frame(level: u8) -> Pixels {
        Pixels::new(SIZE, Channels::Rgb, vec![level; 33 * 16 * 3]).unwrap()
    }

    #[test]
    fn an_independent_decoder_shows_each_frame_for_its_time() {
        let mut writer = WebpWriter::new(SIZE, 24.0).unwrap();
        for level in [0, 100, 200] {
            writer.push(&frame(level)).unwrap();
        }
        let file = writer.finish().unwrap();
        assert_eq!(MediaType::sniff(&file), Some(MediaType::Webp));
        let decoder = WebPDecoder::new(Cursor::new(&file)).unwrap();
        assert!(decoder.has_animation());
        let frames = decoder.into_frames().collect_frames().unwrap();
        let shown: Vec<_> = frames
            .iter()
            .map(|frame| Duration::from(frame.delay()))
            .collect();
        assert_eq!(shown, [42, 41, 42].map(Duration::from_millis));
        for (frame, level) in frames.iter().zip([0_i32, 100, 200]) {
            let pixels = frame.buffer();
            assert_eq!(pixels.dimensions(), (33, 16));
            let is_near = |byte: &u8| (i32::from(*byte) - level).abs() <= 3;
            assert!(
                pixels
                    .pixels()
                    .all(|pixel| pixel.0[..3].iter().all(is_near))
            );
        }
    }

    #[test]
    fn frames_that_make_no_file_are_refused() {
        assert_eq!(
            WebpWriter::new(SIZE, 0.0).unwrap_err(),
            VideoError::Rate(0.0)
        );
        let wide = Size {
            width: 20_000,
            height: 16,
        };
        let (width, height) = (20_000, 16);
        let refused = WebpWriter::new(wide, 24.0).unwrap_err();
        assert_eq!(refused, VideoError::WebpSize { width, height });
        let writer = || WebpWriter::new(SIZE, 24.0).unwrap();
        assert_eq!(writer().finish().unwrap_err(), VideoError::Empty);
        let size = Size {
            width: 16,
            height: 16,
        };
        let other = Pixels::new(size, Channels::Rgb, vec![0; 16 * 16 * 3]).unwrap();
        let (width, height) = (16, 16);
        let refused = writer().push(&other).unwrap_err();
        assert_eq!(refused, VideoError::OtherSize { width, height });
    }
}
