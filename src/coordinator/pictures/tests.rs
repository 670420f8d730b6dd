use std::io::Cursor;

use bytes::Bytes;
use futures_util::FutureExt;
use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};
use proptest::prelude::*;
use uuid::Uuid;

use super::{
    Bounds, PictureError, Pictures, Role, Sender, SourceError, Sources, decode, inspect, to_base64,
};
use crate::accounts::ANONYMOUS;
use crate::egress::Egress;
use crate::egress::tests::Server;
use crate::media::{Area, Key, Kind, Links, Media, MediaSettings};
use crate::peak::growth;
use muster_process::tasks::Tasks;
use muster_protocol::job::AccountId;
use muster_protocol::legacy::error::Code;

const FORMATS: [ImageFormat; 4] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::WebP,
    ImageFormat::Gif,
];

pub fn written(format: ImageFormat, width: u32, height: u32, alpha: u8) -> Vec<u8> {
    let image = RgbaImage::from_pixel(width, height, Rgba([200, 20, 20, alpha]));
    let image = match format {
        ImageFormat::Jpeg => DynamicImage::from(image).into_rgb8().into(),
        _ => DynamicImage::from(image),
    };
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A PNG that says it is of this size, and has next to nothing in it.
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

async fn prepare(bytes: Vec<u8>) -> Result<super::Prepared, PictureError> {
    let pictures = Pictures::sent();
    pictures.prepare(bytes.into(), Bounds::SOURCE).await
}

#[tokio::test]
async fn every_kind_of_image_becomes_webp() {
    for format in FORMATS {
        let prepared = prepare(written(format, 70, 40, 255)).await.unwrap();
        assert!(Kind::Webp.begins(&prepared.webp), "{format:?}");
        assert_eq!((prepared.width, prepared.height), (70, 40));
        assert!(!prepared.is_transparent, "{format:?}");
        let again = decode(&prepared.webp, Bounds::SOURCE).unwrap();
        assert_eq!((again.width, again.height), (70, 40));
        let red = &again.pixels[..3];
        assert!(red[0] > 150 && red[1] < 80 && red[2] < 80, "{red:?}");
    }
}

#[tokio::test]
async fn what_is_transparent_stays_so() {
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif] {
        let prepared = prepare(written(format, 16, 16, 0)).await.unwrap();
        assert!(prepared.is_transparent, "{format:?}");
        let again = decode(&prepared.webp, Bounds::SOURCE).unwrap();
        assert!(again.is_transparent(), "{format:?}");
    }
}

#[test]
fn a_header_that_boasts_is_refused_before_anything_is_made() {
    for (width, height) in [(3073, 3072), (100_000, 100_000), (1_000_000, 10)] {
        let refused = decode(&boast(width, height), Bounds::SOURCE);
        assert!(
            matches!(refused, Err(PictureError::TooManyPixels { .. })),
            "{width}x{height}: {refused:?}"
        );
    }
    let long = decode(&boast(16_384, 4), Bounds::SOURCE).unwrap_err();
    assert_eq!(long, PictureError::TooLong { found: 16_384 });
    let header = inspect(&boast(3072, 3072), Bounds::SOURCE).unwrap();
    assert_eq!((header.width, header.height), (3072, 3072));
    let empty = decode(&boast(3072, 3072), Bounds::SOURCE);
    assert_eq!(empty.unwrap_err(), PictureError::Unreadable);
    let none = decode(&boast(0, 5), Bounds::SOURCE);
    assert_eq!(none.unwrap_err(), PictureError::Unreadable);
}

/// A chunk of a PNG.
fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    let named = [name, data].concat();
    [&length[..], &named, &crc(&named).to_be_bytes()].concat()
}

/// An image with more in it right behind its header.
fn with_chunks(png: &[u8], chunks: &[u8]) -> Vec<u8> {
    const HEADER: usize = 8 + 25;
    [&png[..HEADER], chunks, &png[HEADER..]].concat()
}

/// A zlib stream that inflates to so many runs of 258 zeros.
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
    // The last block, with fixed codes: a zero, and then what came before once more, 258 times.
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
    let name = "pictures::tests::metadata_that_inflates_takes_no_memory";
    let grown = growth(name, || {
        let inflating = zeros(2_500_000);
        let profile = [b"icc\0\0", &*inflating].concat();
        let text = [b"Raw profile type iptc\0\0", &*inflating].concat();
        let chunks = [chunk(b"iCCP", &profile), chunk(b"zTXt", &text)].concat();
        let png = with_chunks(&written(ImageFormat::Png, 8, 8, 255), &chunks);
        assert!(inspect(&png, Bounds::SOURCE).is_ok());
        let picture = decode(&png, Bounds::SOURCE).unwrap();
        assert_eq!((picture.width, picture.height), (8, 8));
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
    let [plain, full] = [png, full].map(|png| decode(&png, Bounds::SOURCE).unwrap());
    assert_eq!(plain.pixels, full.pixels);
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
    let plain = decode(&jpeg, Bounds::SOURCE).unwrap();
    assert_eq!(plain.pixels, decode(&full, Bounds::SOURCE).unwrap().pixels);
    // Which side is up is said there, too, and counts.
    let quarter_turn = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let turned = [&jpeg[..2], &segment(0xe1, quarter_turn), &jpeg[2..]].concat();
    let turned = decode(&turned, Bounds::SOURCE).unwrap();
    assert_eq!((turned.width, turned.height), (10, 20));
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
    let fits = decode(&around(&image(64, 64)), Bounds::SOURCE).unwrap();
    assert_eq!((fits.width, fits.height), (64, 64));
    let larger = decode(&around(&image(2048, 2048)), Bounds::SOURCE);
    assert_eq!(larger.unwrap_err(), PictureError::Unreadable);
    assert!(inspect(&around(&image(64, 65)), Bounds::SOURCE).is_err());
}

#[test]
fn an_image_to_be_looked_at_has_255_tiles() {
    let tiles = |width, height| inspect(&boast(width, height), Bounds::INTERROGATED);
    assert!(tiles(512 * 15, 512 * 17).is_ok());
    let refused = tiles(512 * 16, 512 * 15 + 1).unwrap_err();
    let (found, most) = (256, 255);
    assert_eq!(refused, PictureError::TooManyTiles { found, most });
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
        let refused = decode(bytes, Bounds::SOURCE).unwrap_err();
        let what = String::from_utf8_lossy(bytes);
        let unreadable = refused == PictureError::Unreadable;
        let boasts = matches!(refused, PictureError::TooManyPixels { .. });
        assert!(unreadable || boasts, "{what}: {refused}");
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
        if let Ok(picture) = decode(&bytes, Bounds::Pixels(10_000)) {
            let pixels = usize::try_from(picture.width * picture.height).unwrap();
            prop_assert!(pixels <= 10_000);
            prop_assert_eq!(picture.pixels.len(), pixels * 4);
        }
    }

    #[test]
    fn fuzz_any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes, Bounds::Pixels(10_000));
    }
}

struct Place {
    sources: Sources,
    media: Media,
    _folder: tempfile::TempDir,
    _tasks: Tasks,
}

async fn place() -> Place {
    reaching(Egress::new()).await
}

async fn reaching(egress: Egress) -> Place {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
    let links = Links {
        secret: [1; 32],
        base: String::new(),
    };
    let settings = MediaSettings::in_folder(folder.path().to_owned());
    let media = Media::open(&settings, &links, &tasks).await.unwrap();
    Place {
        sources: Sources::new(egress, media.clone()),
        media,
        _folder: folder,
        _tasks: tasks,
    }
}

const KEY: Key = Key::new(Area::Sources, Uuid::nil(), 0, Kind::Webp);
const ALICE: Sender = Sender::Account(AccountId(1));
const BOB: Sender = Sender::Account(AccountId(2));

#[tokio::test]
async fn a_source_image_is_kept_as_webp() {
    let place = place().await;
    let text = to_base64(&written(ImageFormat::Png, 64, 32, 255));
    let data = format!("data:image/png;base64,{text}");
    for text in [text, data] {
        let source = place.sources.take_in(ALICE, &text, Role::Source, KEY).await;
        let source = source.unwrap();
        assert_eq!((source.width, source.height), (64, 32));
        let kept = place.media.get(source.key).await.unwrap().unwrap();
        assert!(Kind::Webp.begins(&kept));
        place.media.delete(KEY).await.unwrap();
    }
}

#[tokio::test]
async fn each_fault_of_a_source_image_has_its_code() {
    let place = place().await;
    let opaque = to_base64(&written(ImageFormat::Png, 64, 64, 255));
    let clear = to_base64(&written(ImageFormat::Png, 64, 64, 0));
    let cases = [
        ("???", Role::Source, Code::ImageValidationFailed),
        ("", Role::Source, Code::ImageValidationFailed),
        (
            &to_base64(b"<svg/>"),
            Role::Source,
            Code::SourceImageUnreadable,
        ),
        (
            &to_base64(&boast(4000, 4000)),
            Role::Source,
            Code::SourceImageResolutionExceeded,
        ),
        (
            &to_base64(&boast(9000, 9000)),
            Role::Interrogated,
            Code::SourceImageResolutionExceeded,
        ),
        (
            &"A".repeat(50 << 20),
            Role::Source,
            Code::SourceImageSizeExceeded,
        ),
        (
            "http://127.0.0.1/x.png",
            Role::Source,
            Code::SourceImageUrlInvalid,
        ),
        (
            "HTTPS://me:you@example.org/x.png",
            Role::Source,
            Code::SourceImageUrlInvalid,
        ),
        (
            &opaque,
            Role::UnmaskedInpainting,
            Code::InpaintingMissingMask,
        ),
    ];
    for (text, role, code) in cases {
        let taken = place.sources.take_in(ALICE, text, role, KEY).await;
        let refused = taken.unwrap_err();
        assert_eq!(refused.code(), Some(code), "{refused}");
        assert_eq!(refused.refusal().code(), Some(code));
    }
    let role = Role::UnmaskedInpainting;
    let taken = place.sources.read(ALICE, &clear, role).await;
    assert!(taken.unwrap().is_transparent);
    assert_eq!(place.media.get(KEY).await.unwrap(), None::<Bytes>);
    let large: SourceError = super::PictureError::TooLarge { most: 1 }.into();
    assert_eq!(large.code(), Some(Code::SourceImageSizeExceeded));
}

#[test]
fn an_image_takes_room_by_its_pixels_and_the_largest_takes_all() {
    let room = |width, height| super::megapixels(super::Header { width, height }, 160);
    assert_eq!(room(1, 1), 1);
    assert_eq!(room(1024, 1024), 2);
    assert_eq!(room(3072, 3072), 10);
    assert_eq!(room(12_288, 12_288), 151);
    assert_eq!(room(u32::MAX, u32::MAX), 160);
    // The largest that is to be looked at leaves room for others.
    assert!(room(512 * 15, 512 * 17) < super::ROOM_OF_SENT);
}

#[tokio::test]
async fn who_sends_many_images_waits_for_them_and_nobody_else_does() {
    let place = place().await;
    let image = to_base64(&written(ImageFormat::Png, 16, 16, 255));
    let turns = (0..ALICE.at_once()).map(|_| place.sources.turns.turn_now(ALICE).unwrap());
    let mine: Vec<_> = turns.collect();
    // However many places there are, hers wait for those that are worked at.
    let mut waiting = Box::pin(place.sources.read(ALICE, &image, Role::Source));
    assert!(waiting.as_mut().now_or_never().is_none());
    let read = place.sources.read(BOB, &image, Role::Source).await;
    assert_eq!(read.unwrap().width, 16);
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(mine);
    assert_eq!(waiting.await.unwrap().width, 16);
}

#[tokio::test]
async fn an_account_has_more_places_than_a_household_and_not_all() {
    let place = place().await;
    let at_once = |sender| {
        let turns = std::iter::from_fn(|| place.sources.turns.turn_now(sender));
        turns.take(super::AT_ONCE).collect::<Vec<_>>().len()
    };
    let household = Sender::of(ANONYMOUS, "192.0.2.1".parse().unwrap());
    assert_eq!(at_once(household), 1);
    assert_eq!(at_once(ALICE), super::AT_ONCE / 2);
}

#[test]
fn without_a_key_a_household_is_one_sender() {
    let sender = |account, address: &str| Sender::of(account, address.parse().unwrap());
    let keyless = |address| sender(ANONYMOUS, address);
    assert_eq!(keyless("2001:db8::1"), keyless("2001:db8::2"));
    assert_ne!(keyless("192.0.2.1"), keyless("192.0.2.2"));
    let keyed = |address| sender(AccountId(1), address);
    assert_eq!(keyed("192.0.2.1"), keyed("192.0.2.2"));
    assert_eq!(keyed("192.0.2.1"), ALICE);
}

#[tokio::test]
async fn of_an_image_that_stays_at_its_address_the_header_is_read_and_no_more() {
    // Nobody could open it.
    let answer = |image: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", image.len());
        [head.as_bytes(), image].concat()
    };
    let measured = async |image: &[u8]| {
        let server = Server::start(answer(image)).await;
        let place = reaching(Egress::permitting_own_ports([server.port])).await;
        let role = Role::Interrogated;
        let measured = place.sources.measure(&server.url(), role).await;
        measured.map(|header| (header.width, header.height))
    };
    let large = measured(&boast(512 * 15, 512 * 17)).await;
    assert_eq!(large.unwrap(), (512 * 15, 512 * 17));
    let refused = async |image: &[u8]| measured(image).await.unwrap_err().code();
    let (none, too_large) = (b"<svg/>", boast(9000, 9000));
    let code = Code::SourceImageResolutionExceeded;
    assert_eq!(refused(&too_large).await, Some(code));
    assert_eq!(refused(none).await, Some(Code::SourceImageUrlInvalid));
}
