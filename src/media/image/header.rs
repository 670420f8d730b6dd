//! Reads the format and size of an image without a decoder: nothing is decompressed, and allocations never exceed the
//! file. Also removes metadata that decoders would read.
//!
//! Decoders read colour profiles, texts and EXIF data before they report a size, whatever the limits for pixels: a PNG
//! of 400 KB with a profile of a gigabyte after decompression took that gigabyte.

use std::borrow::Cow;

use image::ImageFormat;

use super::Size;

/// An image as its decoder gets it.
#[derive(Debug)]
pub struct Essence<'a> {
    pub format: ImageFormat,
    pub size: Size,
    /// Only pixels, palette, transparency and orientation.
    pub bytes: Cow<'a, [u8]>,
    /// More than one frame. Always false for a GIF, whose frames are not counted.
    pub is_animated: bool,
    /// Without its end.
    pub is_truncated: bool,
    /// Zero in other formats than JPEG.
    pub components: Components,
    /// Stored in passes over the whole image: a progressive JPEG, an interlaced PNG.
    pub is_progressive: bool,
}

/// The components of a JPEG: brightness, and colours of as many samples or fewer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Components {
    pub count: u64,
    /// Samples of all components, with the edges that fill up the last blocks.
    pub samples: u64,
}

/// The orientation is in the first entries of EXIF data. JPEG cannot hold more, and PNG need not.
const MOST_EXIF: usize = 64 << 10;

/// `None` for anything but a PNG, JPEG, WebP or GIF with a size.
pub fn read(bytes: &[u8]) -> Option<Essence<'_>> {
    read_into(Excerpt::of(bytes))
}

fn read_into(mut kept: Excerpt<'_>) -> Option<Essence<'_>> {
    let format = image::guess_format(kept.whole).ok()?;
    let size = match format {
        ImageFormat::Png => png(&mut kept)?,
        ImageFormat::Jpeg => jpeg(&mut kept)?,
        ImageFormat::WebP => webp(&mut kept)?,
        ImageFormat::Gif => gif(kept.whole)?,
        _ => return None,
    };
    Some(Essence {
        format,
        size,
        is_animated: kept.is_animated,
        is_truncated: kept.is_truncated,
        components: kept.components,
        is_progressive: kept.is_progressive,
        bytes: kept.finish(),
    })
}

/// The size alone. Allocates nothing.
pub fn size(bytes: &[u8]) -> Option<Size> {
    read_into(Excerpt::nothing(bytes)).map(|essence| essence.size)
}

/// The parts of a file that are kept: borrowed as long as that is everything.
struct Excerpt<'a> {
    whole: &'a [u8],
    kept: Option<Vec<u8>>,
    copies: bool,
    is_animated: bool,
    is_truncated: bool,
    components: Components,
    is_progressive: bool,
}

impl<'a> Excerpt<'a> {
    fn of(whole: &'a [u8]) -> Self {
        Self {
            whole,
            kept: None,
            copies: true,
            is_animated: false,
            is_truncated: false,
            components: Components::default(),
            is_progressive: false,
        }
    }

    /// For the size alone.
    fn nothing(whole: &'a [u8]) -> Self {
        Self {
            copies: false,
            ..Self::of(whole)
        }
    }

    /// Drops the part that begins here.
    fn skip(&mut self, start: usize) {
        if self.copies && self.kept.is_none() {
            self.kept = Some(self.whole[..start].to_vec());
        }
    }

    fn keep(&mut self, start: usize, end: usize) {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(&self.whole[start..end]);
        }
    }

    fn finish(self) -> Cow<'a, [u8]> {
        self.kept.map_or(Cow::Borrowed(self.whole), Cow::Owned)
    }
}

/// Chunks of length, name, data and checksum. The animation of an APNG is dropped: its first image represents it.
fn png(kept: &mut Excerpt<'_>) -> Option<Size> {
    const SIGNATURE: usize = 8;
    /// Bytes of a chunk besides its data.
    const AROUND: usize = 12;
    let bytes = kept.whole;
    if bytes.get(SIGNATURE + 4..SIGNATURE + 8)? != b"IHDR" {
        return None;
    }
    let header = Size {
        width: big32(bytes, 16)?,
        height: big32(bytes, 20)?,
    };
    let (mut at, mut has_exif) = (SIGNATURE, false);
    kept.is_progressive = *bytes.get(28)? != 0;
    kept.is_truncated = true;
    while let Some(length) = big32(bytes, at) {
        let length = usize::try_from(length).ok()?;
        let end = at
            .saturating_add(AROUND)
            .saturating_add(length)
            .min(bytes.len());
        let keeps = match bytes.get(at + 4..at + 8) {
            Some(b"IHDR" | b"PLTE" | b"tRNS" | b"IDAT" | b"IEND") => true,
            Some(b"eXIf") => length <= MOST_EXIF && !std::mem::replace(&mut has_exif, true),
            Some(b"acTL") => {
                kept.is_animated = true;
                false
            }
            _ => false,
        };
        match keeps {
            true => kept.keep(at, end),
            false => kept.skip(at),
        }
        if bytes.get(at + 4..at + 8) == Some(b"IEND") {
            kept.is_truncated = bytes.len() - at < AROUND;
            break;
        }
        at = end;
    }
    Some(header)
}

/// Marked segments up to the first scan. Three application segments are kept because they change the image: JFIF and
/// Adobe for the colour space, EXIF for the orientation.
fn jpeg(kept: &mut Excerpt<'_>) -> Option<Size> {
    const EXIF: &[u8] = b"Exif\0\0";
    let bytes = kept.whole;
    let (mut at, mut has_exif, mut header) = (2, false, None);
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        let marker = *bytes.get(at + 1)?;
        match marker {
            // Padding before a marker, and markers without a length.
            0xff => {
                kept.keep(at, at + 1);
                at += 1;
                continue;
            }
            0x01 | 0xd0..=0xd7 => {
                kept.keep(at, at + 2);
                at += 2;
                continue;
            }
            // Two images, or one without a scan.
            0xd8 | 0xd9 => return None,
            _ => {}
        }
        let length = usize::from(big16(bytes, at + 2)?);
        let end = at + 2 + length.max(2);
        let data = bytes.get(at + 4..end)?;
        let keeps = match marker {
            0xe0 | 0xee => true,
            0xe1 => data.starts_with(EXIF) && !std::mem::replace(&mut has_exif, true),
            0xe2..=0xef | 0xfe => false,
            // Frames of all kinds; among them are tables (C4, CC) and an extension (C8).
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let height = u32::from(big16(data, 1)?);
                let width = u32::from(big16(data, 3)?);
                kept.components = components(data, Size { width, height })?;
                kept.is_progressive = matches!(marker, 0xc2 | 0xc6 | 0xca | 0xce);
                // A decoder may go by the first or the last of several.
                if header.replace(Size { width, height }).is_some() {
                    return None;
                }
                true
            }
            _ => true,
        };
        match keeps {
            true => kept.keep(at, end),
            false => kept.skip(at),
        }
        at = end;
        if marker == 0xda {
            kept.keep(at, bytes.len());
            // Some programs append their own data after the end.
            kept.is_truncated = !bytes[at..].windows(2).any(|pair| pair == [0xff, 0xd9]);
            return header;
        }
    }
}

/// Reads the data of a frame. Samples come in units of 8x8, of each component as many as it has in its two directions.
fn components(frame: &[u8], size: Size) -> Option<Components> {
    let count = usize::from(*frame.get(5)?);
    let factors = frame.get(6..6 + 3 * count)?.chunks_exact(3);
    let factors = factors.map(|component| [component[1] >> 4, component[1] & 15].map(u32::from));
    let most = |index: usize| {
        factors
            .clone()
            .map(|it| it[index])
            .max()
            .unwrap_or(1)
            .max(1)
    };
    let units =
        u64::from(size.width.div_ceil(8 * most(0))) * u64::from(size.height.div_ceil(8 * most(1)));
    let blocks = factors
        .map(|[across, down]| u64::from(across * down))
        .sum::<u64>();
    Some(Components {
        count: count as u64,
        samples: 64 * blocks * units,
    })
}

/// RIFF chunks. An inner image may claim another size than its canvas, and a decoder allocates memory before it
/// compares them.
fn webp(kept: &mut Excerpt<'_>) -> Option<Size> {
    let bytes = kept.whole;
    let claimed = usize::try_from(little32(bytes, 4)?).ok()?;
    kept.is_truncated = bytes.len() < claimed.saturating_add(8);
    let first = Chunk::at(bytes, 12)?;
    let canvas = match first.name {
        b"VP8X" => Size {
            width: little24(first.data, 4)? + 1,
            height: little24(first.data, 7)? + 1,
        },
        _ => first.frame()?,
    };
    let fits = |frame: Size| frame.width <= canvas.width && frame.height <= canvas.height;
    let mut at = 12;
    while let Some(chunk) = Chunk::at(bytes, at) {
        let frame = match chunk.name {
            b"VP8 " | b"VP8L" => Some(chunk.frame()?),
            b"ANMF" => {
                kept.is_animated = true;
                let size = Size {
                    width: little24(chunk.data, 6)? + 1,
                    height: little24(chunk.data, 9)? + 1,
                };
                let mut inside = 16;
                while let Some(part) = Chunk::at(chunk.data, inside) {
                    if matches!(part.name, b"VP8 " | b"VP8L") && !fits(part.frame()?) {
                        return None;
                    }
                    inside = part.end;
                }
                Some(size)
            }
            _ => None,
        };
        if frame.is_some_and(|frame| !fits(frame)) {
            return None;
        }
        at = chunk.end;
    }
    Some(canvas)
}

/// A chunk of a RIFF file, possibly truncated.
pub struct Chunk<'a> {
    pub name: &'a [u8; 4],
    pub data: &'a [u8],
    /// Offset of the next chunk.
    pub end: usize,
}

impl<'a> Chunk<'a> {
    pub fn at(bytes: &'a [u8], at: usize) -> Option<Self> {
        let name = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        let length = usize::try_from(little32(bytes, at + 4)?).ok()?;
        let start = at + 8;
        let end = start.saturating_add(length).min(bytes.len());
        Some(Self {
            name,
            data: bytes.get(start..end)?,
            end: start.saturating_add(length).saturating_add(length % 2),
        })
    }

    /// The size that an image's data begin with.
    fn frame(&self) -> Option<Size> {
        match self.name {
            b"VP8 " if self.data.get(3..6)? == [0x9d, 0x01, 0x2a] => {
                let side = |at| Some(u32::from(little16(self.data, at)?) & 0x3fff);
                Some(Size {
                    width: side(6)?,
                    height: side(8)?,
                })
            }
            b"VP8L" if *self.data.first()? == 0x2f => {
                let sizes = little32(self.data, 1)?;
                Some(Size {
                    width: (sizes & 0x3fff) + 1,
                    height: (sizes >> 14 & 0x3fff) + 1,
                })
            }
            _ => None,
        }
    }
}

fn gif(bytes: &[u8]) -> Option<Size> {
    Some(Size {
        width: u32::from(little16(bytes, 6)?),
        height: u32::from(little16(bytes, 8)?),
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub fn big16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

pub fn big32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

pub fn little16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn little24(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = array(bytes, at)?;
    Some(u32::from_le_bytes([a, b, c, 0]))
}

pub fn little32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}
