use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};
use muster_testing::peak::growth;
use proptest::prelude::*;

use super::description::describe;
use super::{
    Bounds, Channels, ImageError, Pixels, PngText, Size, WebpQuality, decode, decode_first_frame,
    decode_photo, description, encode, encode_described, inspect, to_jpeg, to_png, to_webp,
};
use crate::MediaType;

const FORMATS: [ImageFormat; 4] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::WebP,
    ImageFormat::Gif,
];
const BOUNDS: Bounds = Bounds::Pixels(3072 * 3072);
const TILES: Bounds = Bounds::Tiles(255);

fn written(format: ImageFormat, width: u32, height: u32, alpha: u8) -> Vec<u8> {
    let image = RgbaImage::from_pixel(width, height, Rgba([200, 20, 20, alpha]));
    let image = match format {
        ImageFormat::Jpeg => DynamicImage::from(image).into_rgb8().into(),
        _ => DynamicImage::from(image),
    };
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A PNG that claims this size, with almost no content.
fn boast(width: u32, height: u32) -> Vec<u8> {
    let mut png = written(ImageFormat::Png, 8, 8, 255);
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&png[12..29]);
    png[29..33].copy_from_slice(&sum.to_be_bytes());
    png
}

/// The checksum of a PNG's chunk.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[test]
fn a_header_that_boasts_is_refused_before_anything_is_made() {
    for (width, height) in [(3073, 3072), (100_000, 100_000), (1_000_000, 10)] {
        let refused = decode(&boast(width, height), BOUNDS);
        assert!(
            matches!(refused, Err(ImageError::TooManyPixels { .. })),
            "{width}x{height}: {refused:?}"
        );
    }
    let long = decode(&boast(16_384, 4), BOUNDS).unwrap_err();
    assert_eq!(long, ImageError::TooLong { found: 16_384 });
    let header = inspect(&boast(3072, 3072), BOUNDS).unwrap();
    assert_eq!((header.width, header.height), (3072, 3072));
    let empty = decode(&boast(3072, 3072), BOUNDS);
    assert_eq!(empty.unwrap_err(), ImageError::Unreadable);
    let none = decode(&boast(0, 5), BOUNDS);
    assert_eq!(none.unwrap_err(), ImageError::Unreadable);
}

/// A chunk of a PNG.
fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    let named = [name, data].concat();
    [&length[..], &named, &crc(&named).to_be_bytes()].concat()
}

/// An image with further chunks after its header.
fn with_chunks(png: &[u8], chunks: &[u8]) -> Vec<u8> {
    const HEADER: usize = 8 + 25;
    [&png[..HEADER], chunks, &png[HEADER..]].concat()
}

/// A zlib stream that decompresses to this many runs of 258 zeros.
fn zeros(runs: u32) -> Vec<u8> {
    let (mut out, mut bits, mut count) = (vec![0x78, 0x01], 0_u32, 0);
    let mut write = |value: u32, width: u32| {
        bits |= value << count;
        count += width;
        while count >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            count -= 8;
        }
    };
    // The last block, with fixed codes: a zero, then 258 repetitions of the previous byte.
    write(0b011, 3);
    write(0b0000_1100, 8);
    for _ in 0..runs {
        write(0b1010_0011, 8);
        write(0, 5);
    }
    write(0, 7);
    write(0, 8);
    let length = u64::from(runs) * 258 + 1;
    let sum = u32::try_from(length % 65_521).unwrap() << 16 | 1;
    out.extend(sum.to_be_bytes());
    out
}

#[test]
fn metadata_that_inflates_takes_no_memory() {
    let name = "image::tests::metadata_that_inflates_takes_no_memory";
    let grown = growth(name, || {
        let inflating = zeros(2_500_000);
        let profile = [b"icc\0\0", &*inflating].concat();
        let text = [b"Raw profile type iptc\0\0", &*inflating].concat();
        let chunks = [chunk(b"iCCP", &profile), chunk(b"zTXt", &text)].concat();
        let png = with_chunks(&written(ImageFormat::Png, 8, 8, 255), &chunks);
        assert!(inspect(&png, BOUNDS).is_ok());
        let picture = decode(&png, BOUNDS).unwrap();
        assert_eq!((picture.width(), picture.height()), (8, 8));
    });
    // The file has four megabytes of each, which inflate to 645.
    if let Some(grown) = grown {
        assert!(grown < 100 << 20, "{grown} bytes");
    }
}

#[test]
fn an_image_without_its_metadata_is_the_same_image() {
    let png = written(ImageFormat::Png, 20, 10, 128);
    let texts = [
        chunk(b"tEXt", b"a\0b"),
        chunk(b"eXIf", b"nonsense"),
        chunk(b"acTL", &[0; 8]),
        chunk(b"zzZz", b"unknown"),
    ];
    let full = with_chunks(&png, &texts.concat());
    let [plain, full] = [png, full].map(|png| decode_first_frame(&png, BOUNDS).unwrap());
    assert_eq!(plain.bytes(), full.bytes());
    let jpeg = written(ImageFormat::Jpeg, 20, 10, 255);
    let segment = |marker: u8, data: &[u8]| {
        let length = u16::try_from(data.len() + 2).unwrap().to_be_bytes();
        [&[0xff, marker], &length[..], data].concat()
    };
    let more = [
        segment(0xe2, &[7; 60_000]).repeat(9),
        segment(0xfe, b"a comment"),
    ]
    .concat();
    let full = [&jpeg[..2], &more, &jpeg[2..]].concat();
    let plain = decode(&jpeg, BOUNDS).unwrap();
    assert_eq!(plain.bytes(), decode(&full, BOUNDS).unwrap().bytes());
    // The orientation is part of the metadata, too, and is kept.
    let quarter_turn = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let turned = [&jpeg[..2], &segment(0xe1, quarter_turn), &jpeg[2..]].concat();
    let turned = decode(&turned, BOUNDS).unwrap();
    assert_eq!((turned.width(), turned.height()), (10, 20));
}

#[test]
fn an_image_inside_a_webp_is_no_larger_than_its_canvas() {
    let image = |width, height| written(ImageFormat::WebP, width, height, 255)[12..].to_vec();
    let around = |image: &[u8]| {
        // A canvas of 64 x 64.
        let canvas = b"VP8X\x0a\0\0\0\0\0\0\0\x3f\0\0\x3f\0\0";
        let length = u32::try_from(4 + canvas.len() + image.len()).unwrap();
        [b"RIFF", &length.to_le_bytes()[..], b"WEBP", canvas, image].concat()
    };
    let fits = decode(&around(&image(64, 64)), BOUNDS).unwrap();
    assert_eq!((fits.width(), fits.height()), (64, 64));
    let larger = decode(&around(&image(2048, 2048)), BOUNDS);
    assert_eq!(larger.unwrap_err(), ImageError::Unreadable);
    assert!(inspect(&around(&image(64, 65)), BOUNDS).is_err());
}

#[test]
fn an_image_to_be_looked_at_has_255_tiles() {
    let tiles = |width, height| inspect(&boast(width, height), TILES);
    assert!(tiles(512 * 15, 512 * 17).is_ok());
    let refused = tiles(512 * 16, 512 * 15 + 1).unwrap_err();
    let (found, most) = (256, 255);
    assert_eq!(refused, ImageError::TooManyTiles { found, most });
}

#[test]
fn what_is_no_image_is_refused() {
    let png = written(ImageFormat::Png, 64, 64, 255);
    let whole = png.len();
    for bytes in [
        &b""[..],
        b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>",
        b"<?xml version='1.0'?><svg/>",
        b"%PDF-1.7",
        b"BM\0\0\0\0",
        b"II*\0\x08\0\0\0",
        b"\0\0\0\x20ftypavif",
        b"P6 1000000 1000000 255",
        b"#?RADIANCE",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\xff\xff\xff\xffWEBPVP8 ",
        b"GIF89a\xff\xff\xff\xff\0\0\0",
        b"\xff\xd8\xff\xe0",
        &png[..whole / 2],
    ] {
        let refused = decode(bytes, BOUNDS).unwrap_err();
        let what = String::from_utf8_lossy(bytes);
        let expected = matches!(
            refused,
            ImageError::Unreadable | ImageError::TooManyPixels { .. } | ImageError::Truncated
        );
        assert!(expected, "{what}: {refused}");
    }
}

fn photograph(channels: Channels) -> Pixels {
    let size = Size {
        width: 96,
        height: 64,
    };
    let channel = |x: u32, y: u32, channel: usize| match channel {
        0 => x * 2,
        1 => y * 3,
        2 => x + y,
        _ => 255 - x,
    };
    let pixel = |at: u32| {
        let (x, y) = (at % size.width, at / size.width);
        (0..channels.count()).map(move |number| u8::try_from(channel(x, y, number)).unwrap())
    };
    let bytes = (0..size.width * size.height).flat_map(pixel).collect();
    Pixels::new(size, channels, bytes).unwrap()
}

/// The largest difference in a colour.
fn difference(one: &Pixels, other: &Pixels) -> u8 {
    assert_eq!(one.size(), other.size());
    let colours = |pixels: &Pixels| -> Vec<u8> {
        let pixels = pixels.bytes().chunks_exact(pixels.channels().count());
        pixels
            .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])
            .collect()
    };
    let pairs = colours(one).into_iter().zip(colours(other));
    pairs.map(|(one, other)| one.abs_diff(other)).max().unwrap()
}

#[test]
fn pixels_come_back() {
    for channels in [Channels::Rgb, Channels::Rgba] {
        let pixels = photograph(channels);
        let lossless = WebpQuality::Lossless;
        let png = to_png(&pixels, &[]).unwrap();
        let read = |bytes: &[u8]| decode(bytes, BOUNDS).unwrap();
        assert_eq!(difference(&read(&png), &pixels), 0);
        assert_eq!(
            difference(&read(&to_webp(&pixels, lossless).unwrap()), &pixels),
            0
        );
        assert_eq!(read(&png).is_transparent(), channels == Channels::Rgba);
        let fine = to_webp(&pixels, WebpQuality::Lossy(100.0)).unwrap();
        let coarse = to_webp(&pixels, WebpQuality::Lossy(10.0)).unwrap();
        assert!(coarse.len() < fine.len() && fine.len() < pixels.bytes().len());
        assert!(difference(&read(&fine), &pixels) < 32);
        assert!(difference(&read(&to_jpeg(&pixels, 95).unwrap()), &pixels) < 32);
    }
}

#[test]
fn pixels_fill_their_size() {
    let size = Size {
        width: 2,
        height: 2,
    };
    let refused = Pixels::new(size, Channels::Rgb, vec![0; 16]).unwrap_err();
    assert_eq!(refused.to_string(), "2x2 pixels take 12 bytes, found 16");
    let none = Size {
        width: 0,
        height: 2,
    };
    assert!(Pixels::new(none, Channels::Rgb, Vec::new()).is_err());
}

#[test]
fn texts_are_in_a_png() {
    let text = PngText {
        keyword: "parameters",
        text: "ein Fuß, 足, seed 7",
    };
    let png = to_png(&photograph(Channels::Rgb), &[text]).unwrap();
    let read = png::Decoder::new(Cursor::new(&png)).read_info().unwrap();
    let found = &read.info().utf8_text[0];
    assert_eq!(found.keyword, text.keyword);
    assert_eq!(found.get_text().unwrap(), text.text);
    let keyword = &"long".repeat(20);
    let refused = to_png(&photograph(Channels::Rgb), &[PngText { keyword, text: "" }]);
    assert!(matches!(refused, Err(ImageError::Encoder { .. })));
}

#[test]
fn a_description_is_in_files_of_every_kind() {
    let text = "ein Fuß, 足 🦊\nSteps: 20, Seed: 7";
    for channels in [Channels::Rgb, Channels::Rgba] {
        let pixels = photograph(channels);
        for kind in [MediaType::Png, MediaType::Jpeg, MediaType::Webp] {
            let plain = encode(&pixels, kind).unwrap();
            assert_eq!(description(&plain), None);
            let described = encode_described(&pixels, kind, Some(text)).unwrap();
            assert_eq!(description(&described).as_deref(), Some(text), "{kind}");
            let read = |bytes: &[u8]| decode(bytes, BOUNDS).unwrap();
            assert_eq!(read(&plain), read(&described), "{kind}");
            let libraries = image::load_from_memory(&described).unwrap();
            assert_eq!(libraries.width(), pixels.width());
            for end in 0..described.len() {
                description(&described[..end]);
            }
            let long = "a".repeat(40_000);
            let long_file = encode_described(&pixels, kind, Some(&long)).unwrap();
            let found = description(&long_file);
            assert_eq!(found.is_some(), kind == MediaType::Png, "{kind}");
            read(&long_file);
        }
    }
    let lossless = to_webp(&photograph(Channels::Rgba), WebpQuality::Lossless).unwrap();
    let described = describe(
        lossless.clone(),
        MediaType::Webp,
        &photograph(Channels::Rgba),
        text,
    );
    assert_eq!(description(&described).as_deref(), Some(text));
    assert_eq!(decode(&described, BOUNDS), decode(&lossless, BOUNDS));
}

proptest! {
    #[test]
    fn any_bytes_have_a_description_or_none(at in 0_usize..400, byte: u8, kind in 0_usize..3) {
        let kind = [MediaType::Png, MediaType::Jpeg, MediaType::Webp][kind];
        let size = Size { width: 2, height: 2 };
        let pixels = Pixels::new(size, Channels::Rgb, vec![9; 12]).unwrap();
        let mut file = encode_described(&pixels, kind, Some("a fox")).unwrap();
        if let Some(place) = file.get_mut(at) {
            *place = byte;
        }
        description(&file);
    }
}

#[test]
fn animations_and_truncated_images_are_refused_by_name() {
    let gif = written(ImageFormat::Gif, 16, 16, 255);
    assert_eq!(decode(&gif, BOUNDS).unwrap_err(), ImageError::Gif);
    let png = written(ImageFormat::Png, 16, 16, 255);
    let apng = with_chunks(&png, &chunk(b"acTL", b"\0\0\0\x01\0\0\0\0"));
    assert_eq!(decode(&apng, BOUNDS).unwrap_err(), ImageError::Animated);
    for animation in [gif, apng] {
        let first = decode_first_frame(&animation, BOUNDS).unwrap();
        assert_eq!((first.width(), first.height()), (16, 16));
    }
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
        let whole = written(format, 64, 64, 255);
        assert!(decode(&whole, BOUNDS).is_ok(), "{format:?}");
        for length in [whole.len() - 9, whole.len() - 2] {
            let refused = decode(&whole[..length], BOUNDS).unwrap_err();
            assert_eq!(refused, ImageError::Truncated, "{format:?}");
        }
    }
    let jpeg = [&written(ImageFormat::Jpeg, 64, 64, 255)[..], b"appended"].concat();
    assert!(decode(&jpeg, BOUNDS).is_ok());
}

#[test]
fn an_animated_webp_is_refused_by_name() {
    let frame = &written(ImageFormat::WebP, 16, 16, 255)[12..];
    let animation = {
        let place = [&[0; 6][..], &[15, 0, 0, 15, 0, 0], &[100, 0, 0, 0]].concat();
        let riff_chunk = |name: &[u8], data: &[u8]| {
            let length = u32::try_from(data.len()).unwrap().to_le_bytes();
            [name, &length[..], data].concat()
        };
        let canvas = riff_chunk(b"VP8X", b"\x02\0\0\0\x0f\0\0\x0f\0\0");
        let loops = riff_chunk(b"ANIM", &[0; 6]);
        let frames = riff_chunk(b"ANMF", &[&place[..], frame].concat()).repeat(2);
        let body = [&b"WEBP"[..], &canvas, &loops, &frames].concat();
        riff_chunk(b"RIFF", &body)
    };
    assert_eq!(
        decode(&animation, BOUNDS).unwrap_err(),
        ImageError::Animated
    );
}

#[test]
fn a_jpeg_that_claims_thirty_thousand_pixels_a_side_is_refused() {
    let mut jpeg = written(ImageFormat::Jpeg, 8, 8, 255);
    let frame = jpeg
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    jpeg[frame + 5..frame + 7].copy_from_slice(&30_000_u16.to_be_bytes());
    jpeg[frame + 7..frame + 9].copy_from_slice(&30_000_u16.to_be_bytes());
    let (found, most) = (900_000_000, 3072 * 3072);
    for read in [decode, decode_first_frame] {
        let refused = read(&jpeg, BOUNDS).unwrap_err();
        assert_eq!(refused, ImageError::TooManyPixels { found, most });
    }
}

/// Images in every kind, and bytes of them turned.
fn broken() -> impl Strategy<Value = Vec<u8>> {
    let turned = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12);
    let cut = any::<prop::sample::Index>();
    (prop::sample::select(FORMATS.to_vec()), turned, cut).prop_map(|(format, turned, cut)| {
        let mut bytes = written(format, 24, 24, 128);
        for (at, byte) in turned {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() * 2).max(1));
        bytes
    })
}

proptest! {
    #[test]
    fn fuzz_decoding_ends_within_bounds(bytes in broken()) {
        for read in [decode, decode_first_frame] {
            if let Ok(picture) = read(&bytes, Bounds::Pixels(10_000)) {
                let pixels = usize::try_from(picture.size().pixels()).unwrap();
                prop_assert!(pixels <= 10_000);
                prop_assert_eq!(picture.bytes().len(), pixels * 4);
            }
        }
    }

    #[test]
    fn fuzz_reducing_a_photo_ends_within_bounds(bytes in broken(), most in 1..600_u64) {
        if let Ok(photo) = decode_photo(&bytes, most) {
            let pixels = photo.size().pixels();
            prop_assert!(pixels <= most, "{pixels} of {most}");
        }
    }

    #[test]
    fn fuzz_any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes, Bounds::Pixels(10_000));
    }
}
