//! Media as plain values: pixels, samples, frames. No codecs.

use crate::runtime::hearing::TranscriptSegment;

/// An image without padding, rows from top to bottom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    pub width: u32,
    pub height: u32,
    pub format: PixelFormat,
    /// `width * height * format.channels()` bytes.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelFormat {
    Gray,
    Rgb,
    /// Alpha is not multiplied into the colors.
    Rgba,
}

/// Sound as samples from -1 to 1, channels interleaved.
#[derive(Debug, Clone, PartialEq)]
pub struct Pcm {
    /// Samples of one channel per second.
    pub rate: u32,
    pub channels: u16,
    pub samples: Vec<f32>,
}

impl Pcm {
    /// The first sample that is no number: broken weights make them, and no file can hold one.
    pub fn flaw(&self) -> Option<usize> {
        self.samples.iter().position(|sample| !sample.is_finite())
    }
}

/// A result of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Image(Pixels),
    Sound(Pcm),
    /// The next of them.
    Frames {
        frames: Vec<Pixels>,
        /// Frames per second.
        rate: f32,
    },
    Transcript(TranscriptPart),
    /// Words of the next sound, where they were asked for.
    SpokenWords(Vec<SpokenWord>),
}

/// A word of a speech. Times are seconds from the beginning of the whole speech.
#[derive(Debug, Clone, PartialEq)]
pub struct SpokenWord {
    /// As it is spoken: `five` for `5`.
    pub word: String,
    pub from: f64,
    pub to: f64,
}

/// Further segments of a transcript. The first part has the language and may have no segments.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptPart {
    /// Two or three letters.
    pub language: String,
    pub segments: Vec<TranscriptSegment>,
}

impl Pixels {
    /// Calls `color` with x and y of every pixel.
    pub fn rgb(width: u32, height: u32, color: impl Fn(u32, u32) -> [u8; 3]) -> Self {
        let rows = 0..height;
        let places = rows.flat_map(|y| (0..width).map(move |x| (x, y)));
        Self {
            width,
            height,
            format: PixelFormat::Rgb,
            bytes: places.flat_map(|(x, y)| color(x, y)).collect(),
        }
    }

    /// Whether the number of bytes matches the size and the format.
    pub fn is_whole(&self) -> bool {
        let pixels = u64::from(self.width) * u64::from(self.height);
        pixels.checked_mul(self.format.channels() as u64) == u64::try_from(self.bytes.len()).ok()
    }
}

impl PixelFormat {
    pub fn channels(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}
