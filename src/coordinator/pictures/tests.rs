use std::io::Cursor;

use bytes::Bytes;
use futures_util::FutureExt;
use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};
use uuid::Uuid;

use super::source::at_once;
use super::{
    PictureError, Pictures, Preparation, Results, Role, SOURCE, SourceError, Sources, Unfit,
    UploadCheck, decode, to_base64,
};
use crate::accounts::ANONYMOUS;
use crate::egress::Egress;
use crate::egress::tests::Server;
use crate::media::{Area, Key, Links, Media, MediaSettings, MediaType};
use crate::sender::Sender;
use muster_media::sound::{Sound, WavFormat, to_wav};
use muster_process::tasks::Tasks;
use muster_protocol::job::AccountId;
use muster_protocol::legacy::error::Code;
use muster_reader::Reader;

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

/// A PNG with this size in its header and almost no data.
fn boast(width: u32, height: u32) -> Vec<u8> {
    let mut png = written(ImageFormat::Png, 8, 8, 255);
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&png[12..29]);
    png[29..33].copy_from_slice(&sum.to_be_bytes());
    png
}

/// The checksum of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

fn is_webp(bytes: &[u8]) -> bool {
    MediaType::sniff(bytes) == Some(MediaType::Webp)
}

async fn prepare(bytes: Vec<u8>) -> Result<super::Prepared, PictureError> {
    let pictures = Pictures::sent();
    let prepared = pictures.prepare(bytes.into(), SOURCE, Preparation::FirstFrame);
    prepared.await
}

#[tokio::test]
async fn every_kind_of_image_becomes_webp() {
    for format in FORMATS {
        let prepared = prepare(written(format, 70, 40, 255)).await.unwrap();
        assert!(is_webp(&prepared.webp), "{format:?}");
        assert_eq!((prepared.width, prepared.height), (70, 40));
        assert!(!prepared.is_transparent, "{format:?}");
        let again = decode(&prepared.webp, SOURCE).unwrap();
        assert_eq!((again.width(), again.height()), (70, 40));
        let red = &again.bytes()[..3];
        assert!(red[0] > 150 && red[1] < 80 && red[2] < 80, "{red:?}");
    }
}

#[tokio::test]
async fn a_photo_is_reduced_for_an_edit_and_refused_by_the_poll_api() {
    let place = place().await;
    let photo = to_base64(&written(ImageFormat::Jpeg, 4096, 2560, 255));
    let read = place.sources.read(ALICE, &photo, Role::Edited).await;
    let read = read.unwrap();
    assert_eq!((read.width, read.height), (3885, 2428));
    let kept = decode(&read.webp, SOURCE).unwrap();
    assert_eq!((kept.width(), kept.height()), (3885, 2428));
    let red = &kept.bytes()[..3];
    assert!(red[0] > 150 && red[1] < 80 && red[2] < 80, "{red:?}");
    let refused = place.sources.read(ALICE, &photo, Role::Source).await;
    assert!(
        matches!(refused, Err(SourceError::Resolution(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn what_is_transparent_stays_so() {
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif] {
        let prepared = prepare(written(format, 16, 16, 0)).await.unwrap();
        assert!(prepared.is_transparent, "{format:?}");
        let again = decode(&prepared.webp, SOURCE).unwrap();
        assert!(again.is_transparent(), "{format:?}");
    }
}

/// The converted mask of an image with one pixel value on the left, another on the right.
async fn mask(halves: [[u8; 4]; 2], use_as: Preparation) -> Result<[u8; 2], PictureError> {
    let image = RgbaImage::from_fn(16, 8, |x, _| Rgba(halves[usize::from(x >= 8)]));
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, ImageFormat::Png).unwrap();
    let pictures = Pictures::sent();
    let prepared = pictures.prepare(png.into_inner().into(), SOURCE, use_as);
    let pixels = decode(&prepared.await?.webp, SOURCE).unwrap();
    assert!(!pixels.is_transparent());
    Ok([pixels.bytes()[0], pixels.bytes()[15 * 4]])
}

#[tokio::test]
async fn a_mask_is_transparent_or_white_where_the_image_is_drawn_anew() {
    const WHITE: [u8; 4] = [255; 4];
    const BLACK: [u8; 4] = [0, 0, 0, 255];
    const NOTHING: [u8; 4] = [0; 4];
    for use_as in [Preparation::Mask, Preparation::PolledMask] {
        for drawn in [WHITE, NOTHING] {
            assert_eq!(mask([drawn, BLACK], use_as).await, Ok([255, 0]));
        }
        // With any transparency, only transparency counts.
        assert_eq!(mask([WHITE, NOTHING], use_as).await, Ok([0, 255]));
    }
    let red = [200, 20, 20, 255];
    let refused = mask([red, WHITE], Preparation::Mask).await;
    assert_eq!(refused, Err(PictureError::ColouredMask));
    let refused = mask([BLACK, BLACK], Preparation::Mask).await;
    assert_eq!(refused, Err(PictureError::EmptyMask));
    assert!(mask([red, WHITE], Preparation::PolledMask).await.is_ok());
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
        sources: Sources::new(egress, media.clone(), Reader::here(), 256 << 20),
        media,
        _folder: folder,
        _tasks: tasks,
    }
}

const KEY: Key = Key::new(Area::Sources, Uuid::nil(), 0, MediaType::Webp);
const ALICE: Sender = Sender::Account(AccountId(1));
const BOB: Sender = Sender::Account(AccountId(2));

#[tokio::test]
async fn a_source_image_is_kept_as_webp() {
    let place = place().await;
    let text = to_base64(&written(ImageFormat::Png, 64, 32, 255));
    let data = format!("data:image/png;base64,{text}");
    for text in [text, data] {
        let mut holding = place.sources.holding();
        let kept = (KEY, &mut holding);
        let source = place
            .sources
            .take_in(ALICE, &text, Role::Source, kept)
            .await;
        holding.leave();
        let source = source.unwrap();
        assert_eq!((source.width, source.height), (64, 32));
        let kept = place.media.get(source.key).await.unwrap().unwrap();
        assert!(is_webp(&kept));
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
        let mut holding = place.sources.holding();
        let kept = (KEY, &mut holding);
        let taken = place.sources.take_in(ALICE, text, role, kept).await;
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
    let room = |width, height| super::megapixels(muster_media::image::Size { width, height }, 160);
    assert_eq!(room(1, 1), 1);
    assert_eq!(room(1024, 1024), 2);
    assert_eq!(room(3072, 3072), 10);
    assert_eq!(room(12_288, 12_288), 151);
    assert_eq!(room(u32::MAX, u32::MAX), 160);
    // The largest image for interrogation leaves memory for others.
    assert!(room(512 * 15, 512 * 17) < super::ROOM_OF_SENT);
}

#[tokio::test]
async fn who_sends_many_images_waits_for_them_and_nobody_else_does() {
    let place = place().await;
    let image = to_base64(&written(ImageFormat::Png, 16, 16, 255));
    let turns = (0..at_once(&ALICE)).map(|_| place.sources.turns.turn_now(ALICE).unwrap());
    let mine: Vec<_> = turns.collect();
    // Her images wait for her earlier ones, although other permits are free.
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
async fn an_image_for_forms_is_taken_in_from_its_address() {
    let answer = |image: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", image.len());
        [head.as_bytes(), image].concat()
    };
    let taken = async |image: &[u8]| {
        let server = Server::start(answer(image)).await;
        let place = reaching(Egress::permitting_own_ports([server.port])).await;
        let mut holding = place.sources.holding();
        let url = server.url();
        let taken = place
            .sources
            .take_in(ALICE, &url, Role::Interrogated, (KEY, &mut holding));
        taken.await.map(|source| (source.width, source.height))
    };
    let good = written(ImageFormat::Png, 40, 24, 255);
    assert_eq!(taken(&good).await.unwrap(), (40, 24));
    let refused = async |image: &[u8]| taken(image).await.unwrap_err().code();
    let (none, too_large) = (b"<svg/>", boast(9000, 9000));
    let code = Code::SourceImageResolutionExceeded;
    assert_eq!(refused(&too_large).await, Some(code));
    assert_eq!(refused(none).await, Some(Code::SourceImageUrlInvalid));
    let cut = &good[..good.len() / 2];
    assert_eq!(refused(cut).await, Some(Code::SourceImageUrlInvalid));
}

#[tokio::test]
async fn an_uploaded_sound_has_the_type_and_about_the_length_that_were_asked_for() {
    let (folder, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
    let links = Links {
        secret: [1; 32],
        base: "http://muster.test".to_owned(),
    };
    let settings = MediaSettings::in_folder(folder.path().join("media"));
    let media = Media::open(&settings, &links, &tasks).await.unwrap();
    let results = Results::new(Pictures::drawn(), media.clone(), Reader::here());
    let file = |rate: u32, seconds: f64, channels: u16, level: f32| {
        let samples = vec![level; (f64::from(rate) * seconds) as usize * usize::from(channels)];
        let sound = Sound::new(rate, channels, samples).unwrap();
        to_wav(&sound, WavFormat::Int16).unwrap()
    };
    let wav = |seconds: f64, channels: u16| file(16_000, seconds, channels, 0.5);
    let mut number = 0;
    let mut taken = async |bytes: Vec<u8>| {
        number += 1;
        let key = Key::new(Area::Results, Uuid::from_u128(number), 1, MediaType::Wav);
        media.put(key, Bytes::from(bytes)).await.unwrap();
        let check = UploadCheck::Sound {
            least: 20.0,
            seconds: 20.0,
        };
        results.take_upload(key, check).await
    };
    assert!(taken(wav(20.0, 1)).await.is_ok());
    assert!(taken(wav(18.5, 2)).await.is_ok());
    let short = taken(wav(15.0, 1)).await;
    assert!(matches!(short, Err(Unfit::TooShort { .. })), "{short:?}");
    for unfit in [
        wav(30.0, 1),
        wav(20.0, 3),
        written(ImageFormat::Png, 8, 8, 255),
        wav(20.0, 1)[..1000].to_vec(),
        file(8_000, 20.0, 1, 0.5),
        file(16_000, 20.0, 1, 0.0),
        Vec::new(),
    ] {
        let refused = taken(unfit).await;
        assert!(
            refused.as_ref().is_err_and(Unfit::is_workers_fault),
            "{refused:?}"
        );
    }
}
