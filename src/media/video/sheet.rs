//! A contact sheet of a video: frames side by side, evenly spaced, although their number is unknown before the end.

use crate::image::{Channels, Pixels, Size, preview_within, reduced};

/// The longest side of a frame on the sheet.
const FRAME_SIDE: u32 = 160;
const COLUMNS: usize = 4;
/// Frames of a sheet.
const MOST_FRAMES: usize = 16;
const SHEET_BYTES: usize = 128 << 10;
/// The longest side of a sheet.
pub const SHEET_SIDE: u32 = FRAME_SIDE * COLUMNS as u32;

/// Gathers the frames.
#[derive(Debug)]
pub struct Sheet {
    /// Interval of the kept frames.
    every: u32,
    frames: Vec<Pixels>,
}

impl Sheet {
    pub fn new() -> Self {
        Self {
            every: 1,
            frames: Vec::new(),
        }
    }

    /// Takes the frame with this number, counted from 0.
    pub fn push(&mut self, number: u32, frame: &Pixels) {
        if !number.is_multiple_of(self.every) {
            return;
        }
        // The sheet of a video that has frames without size is left out.
        let Ok(small) = reduced(frame, FRAME_SIDE) else {
            return;
        };
        self.frames.push(small.unwrap_or_else(|| frame.clone()));
        if self.frames.len() == 2 * MOST_FRAMES {
            let mut nth = 0;
            self.frames.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// A WebP; none without frames.
    pub fn image(&self) -> Option<Vec<u8>> {
        let count = self.frames.len().min(MOST_FRAMES);
        let Size { width, height } = self.frames.first()?.size();
        let (wide, high) = (width as usize, height as usize);
        let (columns, rows) = (count.min(COLUMNS), count.div_ceil(COLUMNS));
        let line = 3 * wide;
        let mut sheet = vec![0; rows * high * columns * line];
        for place in 0..count {
            let frame = &self.frames[spread(place, count, self.frames.len())];
            let colors = frame.channels().count();
            let lines = frame.bytes().chunks_exact(colors * wide);
            let top = place / columns * high;
            for (at, pixels) in lines.enumerate().take(high) {
                let start = ((top + at) * columns + place % columns) * line;
                let pixels = pixels.chunks_exact(colors).flat_map(|pixel| &pixel[..3]);
                for (to, from) in sheet[start..start + line].iter_mut().zip(pixels) {
                    *to = *from;
                }
            }
        }
        let size = Size {
            width: width * columns as u32,
            height: height * rows as u32,
        };
        let sheet = Pixels::new(size, Channels::Rgb, sheet).ok()?;
        preview_within(&sheet, size.width.max(size.height), SHEET_BYTES).ok()
    }
}

/// The frame for a place, so that the first and the last are shown.
fn spread(place: usize, places: usize, frames: usize) -> usize {
    let gaps = places.saturating_sub(1).max(1);
    (place * frames.saturating_sub(1) + gaps / 2) / gaps
}

#[cfg(test)]
mod tests {
    use super::{SHEET_SIDE, Sheet, spread};
    use crate::image::{Bounds, Channels, Pixels, Size, decode};

    /// A frame whose brightness encodes its number.
    fn frame(number: u32) -> Pixels {
        let size = Size {
            width: 320,
            height: 180,
        };
        let bytes = vec![number as u8; 320 * 180 * 3];
        Pixels::new(size, Channels::Rgb, bytes).unwrap()
    }

    #[test]
    fn a_sheet_shows_the_video_from_begin_to_end() {
        for (count, columns, rows) in [(1, 1, 1), (3, 3, 1), (6, 4, 2), (17, 4, 4), (250, 4, 4)] {
            let mut sheet = Sheet::new();
            for number in 0..count {
                sheet.push(number, &frame(number));
            }
            let image = decode(&sheet.image().unwrap(), Bounds::Pixels(1 << 20)).unwrap();
            assert_eq!(
                image.size(),
                Size {
                    width: 160 * columns,
                    height: 90 * rows
                },
                "{count}"
            );
            assert!(image.width() <= SHEET_SIDE);
            let colors = image.bytes().len() / (image.width() * image.height()) as usize;
            let middle = |place: u32| {
                let (x, y) = (place % columns * 160 + 80, place / columns * 90 + 45);
                i64::from(image.bytes()[(y * image.width() + x) as usize * colors])
            };
            let shown: Vec<i64> = (0..count.min(16)).map(middle).collect();
            // Within the loss of the format, and of frames that are not kept.
            let last = i64::from(count - 1);
            assert!(shown[0] <= 6, "{shown:?}");
            assert!(
                shown.iter().max().unwrap() >= &(last - last / 12 - 6),
                "{shown:?}"
            );
            assert!(shown.is_sorted_by(|a, b| a <= &(b + 6)), "{shown:?}");
        }
        assert_eq!(Sheet::new().image(), None);
    }

    #[test]
    fn places_are_spread_from_the_first_frame_to_the_last() {
        let places = |count: usize, frames: usize| -> Vec<usize> {
            (0..count)
                .map(|place| spread(place, count, frames))
                .collect()
        };
        assert_eq!(places(1, 1), [0]);
        assert_eq!(places(3, 3), [0, 1, 2]);
        let many = places(16, 31);
        assert_eq!((many[0], many[15]), (0, 30));
        assert!(many.is_sorted_by(|a, b| a < b), "{many:?}");
    }
}
