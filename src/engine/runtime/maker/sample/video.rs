//! A moving square.

use super::{DEFAULT_SIZE, SampleRequest, check_size};
use crate::runtime::maker::{Output, Pixels, Refusal, in_range};
use crate::runtime::video::VideoRequest;

const MOST_FRAMES: u32 = 1000;
const DEFAULT_FRAMES: u32 = 8;
const FRAME_RATE: f32 = 8.0;

impl SampleRequest for VideoRequest {
    fn check(&self) -> Result<(), Refusal> {
        check_size(self.width, self.height)?;
        in_range("frames", self.frames.unwrap_or(1), 1, MOST_FRAMES)
    }

    fn steps(&self) -> Option<u32> {
        self.steps
    }

    fn output(&self) -> Output {
        Output::Frames {
            frames: film(self),
            rate: self.rate.unwrap_or(FRAME_RATE),
        }
    }

    fn preview(&self, _: u32, _: u32) -> Option<Pixels> {
        self.wants_previews.then(|| square(self, 0, 1))
    }
}

fn film(video: &VideoRequest) -> Vec<Pixels> {
    let count = video.frames.unwrap_or(DEFAULT_FRAMES);
    (0..count).map(|at| square(video, at, count)).collect()
}

/// A white square that moves from the left edge to the right.
fn square(video: &VideoRequest, at: u32, of: u32) -> Pixels {
    let width = video.width.unwrap_or(DEFAULT_SIZE);
    let height = video.height.unwrap_or(DEFAULT_SIZE);
    let side = (width.min(height) / 4).max(1);
    let left = (width - side) * at / (of - 1).max(1);
    let top = (height - side) / 2;
    Pixels::rgb(width, height, |x, y| {
        let is_inside = (left..left + side).contains(&x) && (top..top + side).contains(&y);
        [if is_inside { 255 } else { 0 }; 3]
    })
}
