//! Whether a key frame of a video holds a picture, by the syntax of its codec. No frame is decoded.

/// Bytes of the smallest picture: a macroblock of one color takes some with its headers.
const LEAST_PICTURE_BYTES: usize = 8;

/// A codec, with the facts of its decoder settings that its frames are read by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    /// Bytes of the length before each unit.
    H264(usize),
    H265(usize),
    Av1,
    Vp9,
    Vp8,
    /// MPEG-4 part 2, or JPEG, which shares its sample entry.
    Mpeg4,
    Jpeg,
}

impl Codec {
    /// The codec of a sample entry, whose decoder settings `setup` finds by name.
    pub(super) fn of<'a>(
        entry: [u8; 4],
        setup: impl Fn([u8; 4]) -> Option<&'a [u8]>,
    ) -> Option<Self> {
        let length_bytes = |name, at: usize| {
            let byte = setup(name).and_then(|setup: &[u8]| setup.get(at));
            byte.map_or(4, |byte| usize::from(byte & 3) + 1)
        };
        Some(match &entry {
            b"avc1" | b"avc3" => Self::H264(length_bytes(*b"avcC", 4)),
            b"hvc1" | b"hev1" => Self::H265(length_bytes(*b"hvcC", 21)),
            b"av01" => Self::Av1,
            b"vp09" => Self::Vp9,
            b"vp08" => Self::Vp8,
            b"mp4v" => Self::Mpeg4,
            b"jpeg" | b"mjpa" | b"mjpb" => Self::Jpeg,
            _ => return None,
        })
    }

    /// Whether a frame is a key frame with content.
    pub(super) fn holds_picture(self, frame: &[u8]) -> bool {
        match self {
            Self::H264(length) => {
                /// Slices of an instantaneous refresh.
                const KEY: u8 = 5;
                units(frame, length).any(|unit| unit[0] & 31 == KEY && is_picture(unit, 2))
            }
            Self::H265(length) => {
                /// Slices of pictures that begin a random access.
                const KEYS: std::ops::RangeInclusive<u8> = 16..=21;
                units(frame, length)
                    .any(|unit| KEYS.contains(&(unit[0] >> 1 & 63)) && is_picture(unit, 2))
            }
            Self::Av1 => av1(frame),
            Self::Vp9 => vp9(frame),
            Self::Vp8 => {
                frame.first().is_some_and(|first| first & 1 == 0)
                    && frame.get(3..6) == Some(&[0x9d, 0x01, 0x2a])
                    && is_picture(frame, 6)
            }
            Self::Mpeg4 => mpeg4(frame) || jpeg(frame),
            Self::Jpeg => jpeg(frame),
        }
    }
}

/// Whether bytes are long enough for a picture, and any after the headers is set.
fn is_picture(bytes: &[u8], header: usize) -> bool {
    bytes.len() >= LEAST_PICTURE_BYTES && bytes[header..].iter().any(|byte| *byte != 0)
}

/// The units of a frame, each after its length. Empty ones are skipped.
fn units(frame: &[u8], length_bytes: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = frame;
    std::iter::from_fn(move || {
        let head = rest.get(..length_bytes)?;
        let length = head
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        let unit = rest.get(length_bytes..length_bytes.checked_add(length)?)?;
        rest = &rest[length_bytes + length..];
        (!unit.is_empty()).then_some(unit)
    })
}

/// The open bitstream units of a sample, whose frame header must be that of a key frame that is not shown again.
fn av1(frame: &[u8]) -> bool {
    const SEQUENCE_HEADER: u8 = 1;
    const FRAME_HEADER: u8 = 3;
    const FRAME: u8 = 6;
    let (mut rest, mut is_still) = (frame, false);
    while let Some(&header) = rest.first() {
        let start = if header & 4 != 0 { 2 } else { 1 };
        let (start, length) = match header & 2 != 0 {
            true => match rest.get(start..).and_then(leb128) {
                Some((length, bytes)) => (start + bytes, length),
                None => return false,
            },
            false => (start, rest.len().saturating_sub(start)),
        };
        let end = start.checked_add(length);
        let Some(payload) = end.and_then(|end| rest.get(start..end)) else {
            return false;
        };
        rest = &rest[start + length..];
        let first = payload.first().copied().unwrap_or_default();
        match header >> 3 & 15 {
            // A still picture has a frame header without a type.
            SEQUENCE_HEADER => is_still = first & 8 != 0,
            // Not shown again, and of type 0.
            FRAME_HEADER | FRAME if is_still || first >> 5 == 0 => {
                // After a header alone, tiles follow in separate units.
                return is_picture(payload, 1) || is_picture(rest, 1);
            }
            FRAME_HEADER | FRAME => return false,
            _ => {}
        }
    }
    false
}

/// A number in groups of seven bits, and its bytes.
fn leb128(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        number |= usize::from(byte & 127) << (7 * at);
        if byte & 128 == 0 {
            return Some((number, at + 1));
        }
    }
    None
}

fn vp9(frame: &[u8]) -> bool {
    const MARKER: u32 = 2;
    const SYNC: u32 = 0x49_8342;
    let Some(head) = frame.get(..8) else {
        return false;
    };
    let head = head
        .iter()
        .fold(0_u64, |head, byte| head << 8 | u64::from(*byte));
    let mut at = 0;
    let mut bits = |count: u32| {
        at += count;
        (head >> (64 - at)) as u32 & ((1 << count) - 1)
    };
    let is_vp9 = bits(2) == MARKER;
    let profile = bits(1) | bits(1) << 1;
    if profile == 3 {
        bits(1);
    }
    let is_shown_again = bits(1) == 1;
    let is_key = bits(1) == 0;
    // Whether the frame is shown, and may hold errors.
    bits(2);
    is_vp9 && !is_shown_again && is_key && bits(24) == SYNC && is_picture(frame, 5)
}

/// An intra-coded video object plane.
fn mpeg4(frame: &[u8]) -> bool {
    const PLANE: [u8; 4] = [0, 0, 1, 0xb6];
    let plane = frame.windows(4).position(|code| code == PLANE);
    let plane = plane.and_then(|at| frame.get(at + 4..));
    plane.is_some_and(|plane| plane.first().is_some_and(|first| first >> 6 == 0))
        && plane.is_some_and(|plane| is_picture(plane, 1))
}

fn jpeg(frame: &[u8]) -> bool {
    frame.starts_with(&[0xff, 0xd8, 0xff]) && is_picture(frame, 4)
}

#[cfg(test)]
mod tests {
    use super::Codec;

    #[test]
    fn frames_between_key_frames_are_no_key_frames() {
        let none = |_| None;
        let check = |entry: &[u8; 4], frame: &[u8], expected| {
            let codec = Codec::of(*entry, none).unwrap();
            assert_eq!(codec.holds_picture(frame), expected, "{codec:?} {frame:x?}");
        };
        let padded = |head: &[u8]| [head, &[0x5a; 24]].concat();
        check(b"vp08", &padded(&[0x10, 2, 0, 0x9d, 1, 0x2a]), true);
        check(b"vp08", &padded(&[0x11, 2, 0, 0x9d, 1, 0x2a]), false);
        check(b"vp08", &padded(&[0x10, 2, 0, 0x9d, 1, 0x2b]), false);
        check(b"vp09", &padded(&[0x82, 0x49, 0x83, 0x42]), true);
        check(b"vp09", &padded(&[0x86, 0x49, 0x83, 0x42]), false);
        check(b"vp09", &padded(&[0x8a, 0x49, 0x83, 0x42]), false);
        // Profile 3 has a bit more before the rest: 10 1 1 0 0 0 1 0 and the code.
        check(b"vp09", &padded(&[0xb1, 0x24, 0xc1, 0xa1]), true);
        check(b"vp09", &padded(&[0xb5, 0x24, 0xc1, 0xa1]), false);
        // A delimiter, then a frame of 16 bytes.
        check(b"av01", &padded(&[0x12, 0, 0x32, 16, 0x10]), true);
        check(b"av01", &padded(&[0x12, 0, 0x32, 16, 0x30]), false);
        check(b"av01", &padded(&[0x12, 0, 0x32, 16, 0x90]), false);
        check(b"av01", &padded(&[0x12, 0, 0x32, 99, 0x10]), false);
        check(b"mp4v", &padded(&[0, 0, 1, 0xb6, 0x10]), true);
        check(b"mp4v", &padded(&[0, 0, 1, 0xb6, 0x50]), false);
        check(b"jpeg", &padded(&[0xff, 0xd8, 0xff, 0xe0]), true);
        check(b"jpeg", &padded(&[0xff, 0xd9, 0xff, 0xe0]), false);
        for entry in [
            b"vp08", b"vp09", b"av01", b"mp4v", b"jpeg", b"avc1", b"hvc1",
        ] {
            check(entry, &[], false);
            check(entry, &[0; 400], false);
            check(entry, &[0xff; 400], false);
        }
    }
}
