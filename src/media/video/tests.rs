use std::io::Cursor;

use proptest::prelude::*;
use rusty_h264_decoder::Decoder;

use super::{Mp4Writer, VideoError, VideoStill, color, planes, still};
use crate::MediaType;
use crate::image::{Bounds, Channels, Pixels, Size, decode};

fn frame(size: Size, at: u32) -> Pixels {
    let places = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
    let bytes = places.flat_map(|(x, y)| {
        match (at * 2..at * 2 + 12).contains(&x) && (8..20).contains(&y) {
            true => [230, 40, 20],
            false => [20, 60, 200],
        }
    });
    Pixels::new(size, Channels::Rgb, bytes.collect()).unwrap()
}

fn film(size: Size, frames: u32) -> Vec<u8> {
    let mut writer = Mp4Writer::new(size, 8.0).unwrap();
    for at in 0..frames {
        writer.push(&frame(size, at)).unwrap();
    }
    writer.finish().unwrap()
}

const SIZE: Size = Size {
    width: 72,
    height: 40,
};

/// Offset of a box's name.
fn place(file: &[u8], name: &[u8]) -> usize {
    file.windows(4).position(|four| four == name).unwrap()
}

#[test]
fn a_file_begins_with_the_table_of_its_frames() {
    let file = film(SIZE, 17);
    assert_eq!(MediaType::sniff(&file), Some(MediaType::Mp4));
    assert!(place(&file, b"moov") < place(&file, b"mdat"));
    assert!(file.len() < 20_000, "{}", file.len());
}

/// The frames as another program of H.264 sees them.
#[test]
fn frames_are_decoded_as_they_were() {
    let mut writer = Mp4Writer::new(SIZE, 8.0).unwrap();
    let mut decoder = Decoder::new();
    let mut stream = Vec::new();
    for at in 0..17 {
        let planes = planes::of(&frame(SIZE, at));
        let encoded = writer.encoder.try_encode(&planes).unwrap();
        stream.extend(color::noted(&encoded));
    }
    let shown = decoder.decode_stream(&stream).unwrap();
    assert_eq!(shown.len(), 17);
    for (at, decoded) in (0..17).zip(&shown) {
        let wanted = planes::of(&frame(SIZE, at));
        let difference = wanted.y.iter().zip(&decoded.y);
        let difference: u32 = difference.map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
        let mean = f64::from(difference) / wanted.y.len() as f64;
        assert!(mean < 2.0, "frame {at}: {mean}");
    }
}

#[test]
fn colors_are_those_of_the_standard() {
    let check = |rgb: [u8; 3], yuv: [u8; 3]| {
        let size = Size {
            width: 16,
            height: 16,
        };
        let bytes = rgb.repeat(256);
        let planes = planes::of(&Pixels::new(size, Channels::Rgb, bytes).unwrap());
        assert_eq!([planes.y[0], planes.u[0], planes.v[0]], yuv, "{rgb:?}");
    };
    // ffmpeg -f lavfi -i color=…, zscale to BT.709, limited range.
    check([0, 0, 0], [16, 128, 128]);
    check([255, 255, 255], [235, 128, 128]);
    check([255, 0, 0], [63, 102, 240]);
    check([0, 255, 0], [173, 42, 26]);
    check([0, 0, 255], [32, 240, 118]);
}

#[test]
fn the_colors_are_noted_where_the_parameters_are() {
    let planes = planes::of(&frame(SIZE, 0));
    let mut writer = Mp4Writer::new(SIZE, 8.0).unwrap();
    let encoded = writer.encoder.try_encode(&planes).unwrap();
    let noted = color::noted(&encoded);
    assert!(noted.len() > encoded.len());
    // A frame without sequence parameters stays as it is.
    let next = writer.encoder.try_encode(&planes).unwrap();
    assert_eq!(color::noted(&next), next);
}

#[test]
fn sizes_and_rates_without_a_file_are_refused() {
    let check = |width, height, rate| Mp4Writer::new(Size { width, height }, rate).err();
    for (width, height) in [(0, 64), (65, 64), (64, 63), (4098, 64), (8, 8)] {
        let refused = Some(VideoError::Size { width, height });
        assert_eq!(check(width, height, 8.0), refused);
    }
    for rate in [0.0, -1.0, 1000.0] {
        assert_eq!(check(64, 64, rate), Some(VideoError::Rate(rate)));
    }
    assert!(check(64, 64, f64::NAN).is_some());
    let mut writer = Mp4Writer::new(SIZE, 8.0).unwrap();
    let other = Size {
        width: 64,
        height: 64,
    };
    assert!(writer.push(&frame(other, 0)).is_err());
    assert_eq!(writer.finish(), Err(VideoError::Empty));
}

#[test]
fn the_first_frame_is_in_the_file() {
    let file = film(SIZE, 9);
    let image = still(Cursor::new(&file), VideoStill::Poster)
        .unwrap()
        .unwrap();
    let shown = decode(&image, Bounds::Pixels(1 << 20)).unwrap();
    assert_eq!(shown.size(), SIZE);
    let wanted = frame(SIZE, 0);
    // With or without an alpha channel.
    let channels = 3 * shown.bytes().len() / wanted.bytes().len();
    let colors = shown.bytes().chunks_exact(channels);
    let colors = colors.flat_map(|pixel| &pixel[..3]);
    let gaps = colors.zip(wanted.bytes());
    let gaps: u32 = gaps.map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
    assert!(gaps / (wanted.bytes().len() as u32) < 12, "{gaps}");
    let sheet = still(Cursor::new(&file), VideoStill::Sheet)
        .unwrap()
        .unwrap();
    let shown = decode(&sheet, Bounds::Pixels(1 << 20)).unwrap();
    let Size { width, height } = SIZE;
    // Nine frames in rows of four.
    let size = Size {
        width: 4 * width,
        height: 3 * height,
    };
    assert_eq!(shown.size(), size);
    let without_sheet = file.len() - sheet.len() - 24;
    for cut in [0, 7, 30, file.len() / 2, without_sheet - 1] {
        let found = still(Cursor::new(&file[..cut]), VideoStill::Poster).unwrap();
        assert_eq!(found, None, "{cut}");
    }
    let without = without_sheet - image.len() - 24;
    let found = |file: &[u8]| still(Cursor::new(file), VideoStill::Poster).unwrap();
    assert_eq!(found(&file[..without]), None);
    let mut other = file.clone();
    other[without + 24..without_sheet].fill(7);
    assert_eq!(found(&other), None, "no image");
}

proptest! {
    #[test]
    fn fuzz_any_boxes_are_passed_by(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = still(Cursor::new(&bytes), VideoStill::Poster).unwrap();
    }
}
