//! The text about an image inside its file, as image programs write and read it: `parameters` of a PNG, the user comment
//! of the EXIF data of a JPEG or WebP.

use super::header::{Chunk, big16, big32, little16, little32};
use super::{Channels, Pixels};
use crate::MediaType;

/// The keyword of the text in a PNG.
pub const DESCRIPTION_KEYWORD: &str = "parameters";

/// A longer text is left out: EXIF data of a JPEG cannot hold more.
const MOST_EXIF_BYTES: usize = 65_500;
const EXIF_IN_JPEG: &[u8] = b"Exif\0\0";
/// Before a comment in UTF-16.
const UNICODE: &[u8] = b"UNICODE\0";
const ASCII: &[u8] = b"ASCII\0\0\0";
/// Tags of EXIF data: where the entries about a photograph begin, and the comment among them.
const EXIF_ENTRIES: u16 = 0x8769;
const USER_COMMENT: u16 = 0x9286;
/// Flags of an extended WebP.
const HAS_EXIF: u8 = 0x08;
const HAS_ALPHA: u8 = 0x10;
const RIFF_HEADER: usize = 12;

/// A JPEG or WebP of these pixels with a text; any other file stays as it is.
pub fn describe(file: Vec<u8>, kind: MediaType, pixels: &Pixels, text: &str) -> Vec<u8> {
    let exif = exif_of(text);
    if exif.len() > MOST_EXIF_BYTES {
        return file;
    }
    let described = match kind {
        MediaType::Jpeg => in_jpeg(&file, &exif),
        MediaType::Webp => in_webp(&file, &exif, pixels),
        _ => None,
    };
    described.unwrap_or(file)
}

/// The text about an image in its file.
pub fn description(file: &[u8]) -> Option<String> {
    match MediaType::sniff(file)? {
        MediaType::Png => of_png(file),
        MediaType::Jpeg => of_exif(jpeg_exif(file)?),
        MediaType::Webp => {
            let mut at = RIFF_HEADER;
            while let Some(chunk) = Chunk::at(file, at) {
                if chunk.name == b"EXIF" {
                    let data = chunk.data;
                    return of_exif(data.strip_prefix(EXIF_IN_JPEG).unwrap_or(data));
                }
                at = chunk.end;
            }
            None
        }
        _ => None,
    }
}

/// Big-endian, with one entry in each of the two lists.
fn exif_of(text: &str) -> Vec<u8> {
    let comment = text.encode_utf16().flat_map(u16::to_be_bytes);
    let comment: Vec<u8> = UNICODE.iter().copied().chain(comment).collect();
    let entry = |tag: u16, kind: u16, count: u32, value: u32| {
        let mut entry = vec![0, 1];
        entry.extend(tag.to_be_bytes());
        entry.extend(kind.to_be_bytes());
        entry.extend(count.to_be_bytes());
        entry.extend(value.to_be_bytes());
        // No further list.
        entry.extend([0; 4]);
        entry
    };
    let mut exif = b"MM\0\x2a\0\0\0\x08".to_vec();
    exif.extend(entry(EXIF_ENTRIES, 4, 1, 26));
    // A longer comment is left out with all of the data.
    let count = u32::try_from(comment.len()).unwrap_or(u32::MAX);
    exif.extend(entry(USER_COMMENT, 7, count, 44));
    exif.extend(comment);
    exif
}

fn of_exif(tiff: &[u8]) -> Option<String> {
    let is_big = match tiff.get(..2)? {
        b"MM" => true,
        b"II" => false,
        _ => return None,
    };
    let short = |at| match is_big {
        true => big16(tiff, at),
        false => little16(tiff, at),
    };
    let long = |at| {
        let found = match is_big {
            true => big32(tiff, at),
            false => little32(tiff, at),
        };
        usize::try_from(found?).ok()
    };
    let entry = |list: usize, tag: u16| {
        let count = usize::from(short(list)?);
        let mut entries = (0..count).map(|index| list + 2 + 12 * index);
        entries.find(|at| short(*at) == Some(tag))
    };
    let photograph = long(entry(long(4)?, EXIF_ENTRIES)? + 8)?;
    let comment = entry(photograph, USER_COMMENT)?;
    let (length, start) = (long(comment + 4)?, long(comment + 8)?);
    let comment = tiff.get(start..start.checked_add(length)?)?;
    if let Some(units) = comment.strip_prefix(UNICODE) {
        let units = units.chunks_exact(2).map(|pair| match is_big {
            true => u16::from_be_bytes([pair[0], pair[1]]),
            false => u16::from_le_bytes([pair[0], pair[1]]),
        });
        return String::from_utf16(&units.collect::<Vec<_>>()).ok();
    }
    let text = comment.strip_prefix(ASCII)?;
    String::from_utf8(text.to_vec()).ok()
}

/// Length, name, data and checksum, one chunk after the other.
fn of_png(file: &[u8]) -> Option<String> {
    let mut at: usize = 8;
    loop {
        let length = usize::try_from(big32(file, at)?).ok()?;
        let data = file.get(at + 8..(at + 8).checked_add(length)?)?;
        let rest = data.strip_prefix(DESCRIPTION_KEYWORD.as_bytes());
        let rest = rest.and_then(|rest| rest.strip_prefix(b"\0"));
        match (file.get(at + 4..at + 8)?, rest) {
            (b"tEXt", Some(latin)) if latin.len() <= MOST_EXIF_BYTES => {
                return Some(latin.iter().copied().map(char::from).collect());
            }
            (b"iTXt", Some([0, 0, rest @ ..])) if rest.len() <= MOST_EXIF_BYTES => {
                // Behind the language and the translated keyword.
                let mut parts = rest.splitn(3, |byte| *byte == 0);
                let text = parts.nth(2)?;
                return String::from_utf8(text.to_vec()).ok();
            }
            (b"IEND", _) => return None,
            _ => {}
        }
        at = at.checked_add(length)?.checked_add(12)?;
    }
}

/// The segments of a JPEG before its pixels, each with its marker, data and start.
fn segments(file: &[u8]) -> impl Iterator<Item = (u8, &[u8], usize)> {
    let mut at: usize = 2;
    std::iter::from_fn(move || {
        let &[0xff, marker] = file.get(at..at + 2)? else {
            return None;
        };
        let length = usize::from(big16(file, at + 2)?);
        let data = file.get(at + 4..at + 2 + length)?;
        let start = at;
        at += 2 + length;
        (marker != 0xda).then_some((marker, data, start))
    })
}

fn jpeg_exif(file: &[u8]) -> Option<&[u8]> {
    let mut found = segments(file).filter(|(marker, ..)| *marker == 0xe1);
    found.find_map(|(_, data, _)| data.strip_prefix(EXIF_IN_JPEG))
}

/// Inserted after the first segment, which marks the file as JPEG.
fn in_jpeg(file: &[u8], exif: &[u8]) -> Option<Vec<u8>> {
    let (_, _, at) = segments(file).find(|(marker, ..)| *marker != 0xe0)?;
    let length = u16::try_from(2 + EXIF_IN_JPEG.len() + exif.len()).ok()?;
    let mut described = file[..at].to_vec();
    described.extend([0xff, 0xe1]);
    described.extend(length.to_be_bytes());
    described.extend(EXIF_IN_JPEG);
    described.extend(exif);
    described.extend(&file[at..]);
    Some(described)
}

/// Converts a simple file to an extended one, whose header lists the further parts.
fn in_webp(file: &[u8], exif: &[u8], pixels: &Pixels) -> Option<Vec<u8>> {
    let first = Chunk::at(file, RIFF_HEADER)?;
    let mut described = b"RIFF\0\0\0\0WEBP".to_vec();
    if first.name == b"VP8X" {
        described.extend(&file[RIFF_HEADER..]);
        *described.get_mut(RIFF_HEADER + 8)? |= HAS_EXIF;
    } else {
        let alpha = match pixels.channels() {
            Channels::Rgba => HAS_ALPHA,
            Channels::Rgb => 0,
        };
        let side = |side: u32| side.saturating_sub(1).to_le_bytes();
        let [width, height] = [side(pixels.width()), side(pixels.height())];
        described.extend(b"VP8X\x0a\0\0\0");
        described.extend([HAS_EXIF | alpha, 0, 0, 0]);
        described.extend(&width[..3]);
        described.extend(&height[..3]);
        described.extend(&file[RIFF_HEADER..]);
    }
    described.extend(b"EXIF");
    described.extend(u32::try_from(exif.len()).ok()?.to_le_bytes());
    described.extend(exif);
    if exif.len() % 2 == 1 {
        described.push(0);
    }
    let length = u32::try_from(described.len() - 8).ok()?;
    described[4..8].copy_from_slice(&length.to_le_bytes());
    Some(described)
}
