//! Pixels as planes of brightness and color.

use rusty_h264_common::YuvFrame;

use crate::image::{Channels, Pixels};

/// Shares of red, green and blue in the brightness, of BT.709.
const RED: f32 = 0.2126;
const BLUE: f32 = 0.0722;
const GREEN: f32 = 1.0 - RED - BLUE;

/// Both sides are even. Colors of transparent pixels count, too.
pub fn of(frame: &Pixels) -> YuvFrame {
    let (width, height) = (frame.width() as usize, frame.height() as usize);
    let channels = frame.channels().count();
    let bytes = frame.bytes();
    let color = |x: usize, y: usize| {
        let at = (y * width + x) * channels;
        [0, 1, 2].map(|channel| f32::from(bytes[at + channel]))
    };
    let places = |step: usize| {
        let rows = (0..height).step_by(step);
        rows.flat_map(move |y| (0..width).step_by(step).map(move |x| (x, y)))
    };
    let y = places(1).map(|(x, y)| level(16.0 + brightness(color(x, y)) * 219.0 / 255.0));
    let mut planes = YuvFrame {
        width,
        height,
        y: y.collect(),
        u: Vec::with_capacity(width * height / 4),
        v: Vec::with_capacity(width * height / 4),
    };
    for (x, y) in places(2) {
        let four = [
            color(x, y),
            color(x + 1, y),
            color(x, y + 1),
            color(x + 1, y + 1),
        ];
        let mean = [0, 1, 2].map(|channel| four.iter().map(|one| one[channel]).sum::<f32>() / 4.0);
        let bright = brightness(mean);
        let difference =
            |of: f32, share: f32| (of - bright) / (2.0 * (1.0 - share)) * 224.0 / 255.0;
        planes.u.push(level(128.0 + difference(mean[2], BLUE)));
        planes.v.push(level(128.0 + difference(mean[0], RED)));
    }
    planes
}

fn brightness([red, green, blue]: [f32; 3]) -> f32 {
    RED * red + GREEN * green + BLUE * blue
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast saturates"
)]
fn level(value: f32) -> u8 {
    value.round() as u8
}

const _: () = assert!(Channels::Rgb.count() == 3 && Channels::Rgba.count() == 4);
