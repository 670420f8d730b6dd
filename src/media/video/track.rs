//! Checks the video track of an untrusted MP4: its size, frames and length by its tables, all frames inside the file,
//! and a key frame with content. No frame is decoded.

use super::key_frame::Codec;

/// A video track.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VideoTrack {
    pub width: u32,
    pub height: u32,
    pub frames: u32,
    pub seconds: f64,
}

/// Why a file counts as no video.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrackError {
    #[error("the file is no MP4 with the table of its frames")]
    NotMp4,
    #[error("the file has no video track")]
    NoTrack,
    #[error("the video track has no {0}")]
    Missing(&'static str),
    #[error("the video track is broken: {0}")]
    Broken(&'static str),
    #[error("the video has {0} frames, at most {MOST_FRAMES} are taken")]
    TooManyFrames(u64),
    #[error("frame {0} is not inside of the file")]
    Outside(u32),
    #[error(
        "the frames are in an unknown codec, {0}; H.264, H.265, AV1, VP9, VP8, MPEG-4 part 2 and JPEG are taken"
    )]
    UnknownCodec(String),
    #[error("no key frame of the video holds a picture")]
    NoKeyFrame,
}

/// An hour at 60 frames a second.
const MOST_FRAMES: u32 = 216_000;
const MOST_TRACKS: usize = 16;
/// Limit of key frames that are checked for content.
const LOOKED_AT: usize = 8;
/// Offset of the boxes inside a description of frames.
const VISUAL_ENTRY_BYTES: usize = 78;

type TrackResult<T> = Result<T, TrackError>;

/// The first video track of an MP4.
pub fn track(file: &[u8]) -> TrackResult<VideoTrack> {
    if Boxes(file)
        .next()
        .is_none_or(|first| first.name != *b"ftyp")
    {
        return Err(TrackError::NotMp4);
    }
    let movie = inside(file, *b"moov").ok_or(TrackError::NotMp4)?;
    let tracks = Boxes(movie).filter(|one| one.name == *b"trak");
    let mut tracks = tracks.take(MOST_TRACKS);
    let media = tracks.find_map(|track| {
        let media = inside(track.content, *b"mdia")?;
        let handler = inside(media, *b"hdlr")?;
        (handler.get(8..12)? == b"vide").then_some(media)
    });
    Tables::of(media.ok_or(TrackError::NoTrack)?)?.check(file)
}

/// A box: a name, and its content.
#[derive(Clone, Copy)]
struct Box4<'a> {
    name: [u8; 4],
    content: &'a [u8],
}

/// A sequence of boxes, ended by a box that claims more bytes than the rest.
struct Boxes<'a>(&'a [u8]);

impl<'a> Iterator for Boxes<'a> {
    type Item = Box4<'a>;

    fn next(&mut self) -> Option<Box4<'a>> {
        let bytes = self.0;
        let name = array(bytes, 4)?;
        let (head, length) = match word(bytes, 0)? {
            0 => (8, bytes.len()),
            1 => {
                let length = u64::from_be_bytes(array(bytes, 8)?);
                (16, usize::try_from(length).ok()?)
            }
            length => (8, length as usize),
        };
        let content = bytes.get(head..length)?;
        self.0 = &bytes[length..];
        Some(Box4 { name, content })
    }
}

fn inside(bytes: &[u8], name: [u8; 4]) -> Option<&[u8]> {
    let found = Boxes(bytes).find(|one| one.name == name);
    found.map(|found| found.content)
}

/// Tables of a track's frames.
struct Tables<'a> {
    timescale: u32,
    codec: Codec,
    width: u32,
    height: u32,
    frames: u32,
    /// In units of the time scale.
    length: u64,
    sizes: Sizes<'a>,
    /// First chunk, frames in each, for chunks up to the next entry.
    chunks: &'a [u8],
    offsets: Offsets<'a>,
    /// Numbers of key frames; none where every frame is one.
    keys: Option<&'a [u8]>,
}

enum Sizes<'a> {
    Same(u32),
    Each(&'a [u8]),
}

struct Offsets<'a> {
    table: &'a [u8],
    bytes_each: usize,
}

impl<'a> Tables<'a> {
    fn of(media: &'a [u8]) -> TrackResult<Self> {
        let missing = TrackError::Missing;
        let header = inside(media, *b"mdhd").ok_or(missing("header"))?;
        // A newer version has times of eight bytes.
        let at = if header.first() == Some(&1) { 20 } else { 12 };
        let timescale = word(header, at).filter(|scale| *scale > 0);
        let table = inside(media, *b"minf").and_then(|info| inside(info, *b"stbl"));
        let table = table.ok_or(missing("tables"))?;
        let entry = inside(table, *b"stsd").and_then(|description| description.get(8..));
        let entry = entry.and_then(|entries| Boxes(entries).next());
        let entry = entry.ok_or(missing("description of its frames"))?;
        let setup = entry.content.get(VISUAL_ENTRY_BYTES..).unwrap_or_default();
        let codec = Codec::of(entry.name, |name| inside(setup, name))
            .ok_or_else(|| TrackError::UnknownCodec(entry.name.escape_ascii().to_string()))?;
        let side = |at| array(entry.content, at).map(u16::from_be_bytes);
        let (width, height) = side(24).zip(side(26)).ok_or(missing("size"))?;
        if width == 0 || height == 0 {
            return Err(missing("size"));
        }
        let (frames, length) = times(inside(table, *b"stts").ok_or(missing("times of frames"))?)?;
        let (sizes, sized) = sizes(inside(table, *b"stsz").ok_or(missing("sizes of frames"))?)?;
        if sized != frames {
            return Err(TrackError::Broken(
                "its tables count different numbers of frames",
            ));
        }
        let chunks = inside(table, *b"stsc").and_then(|table| rows(table, 4, 12));
        let offsets = match inside(table, *b"stco") {
            Some(table) => rows(table, 4, 4).map(|table| (table, 4)),
            None => inside(table, *b"co64").and_then(|table| Some((rows(table, 4, 8)?, 8))),
        };
        let (offsets, bytes_each) = offsets.ok_or(missing("places of frames"))?;
        let keys = match inside(table, *b"stss") {
            Some(table) => Some(rows(table, 4, 4).ok_or(missing("key frames"))?),
            None => None,
        };
        Ok(Self {
            timescale: timescale.ok_or(missing("time scale"))?,
            codec,
            width: width.into(),
            height: height.into(),
            frames,
            length,
            sizes,
            chunks: chunks.ok_or(missing("chunks"))?,
            offsets: Offsets {
                table: offsets,
                bytes_each,
            },
            keys,
        })
    }

    fn check(&self, file: &[u8]) -> TrackResult<VideoTrack> {
        if self.frames == 0 {
            return Err(TrackError::Missing("frames"));
        }
        let mut keys = self
            .keys
            .map(|keys| keys.chunks_exact(4).filter_map(|key| word(key, 0)));
        let mut next_key = keys.as_mut().and_then(Iterator::next);
        let (mut looked_at, mut has_picture) = (0, false);
        for (number, place) in (1..=self.frames).zip(self.places()) {
            let (at, size) = place.ok_or(TrackError::Outside(number))?;
            let end = at
                .checked_add(size)
                .and_then(|end| usize::try_from(end).ok());
            let bytes = end.and_then(|end| file.get(usize::try_from(at).ok()?..end));
            let bytes = bytes.ok_or(TrackError::Outside(number))?;
            let is_key = match &mut keys {
                None => true,
                Some(keys) => {
                    let is_key = next_key == Some(number);
                    if is_key {
                        next_key = keys.next();
                    }
                    is_key
                }
            };
            if is_key && !has_picture && looked_at < LOOKED_AT {
                looked_at += 1;
                has_picture = self.codec.holds_picture(bytes);
            }
        }
        match has_picture {
            true => Ok(VideoTrack {
                width: self.width,
                height: self.height,
                frames: self.frames,
                seconds: self.length as f64 / f64::from(self.timescale),
            }),
            false => Err(TrackError::NoKeyFrame),
        }
    }

    /// Offset and length of each frame; `None` if the tables lack them.
    fn places(&self) -> impl Iterator<Item = Option<(u64, u64)>> {
        let mut rows = self.chunks.chunks_exact(12).peekable();
        let (mut chunk, mut in_chunk, mut left, mut at) = (0_u32, 0_u32, 0_u32, 0_u64);
        (0..self.frames).map(move |frame| {
            while left == 0 {
                chunk = chunk.checked_add(1)?;
                if let Some(row) = rows.peek()
                    && word(row, 0) == Some(chunk)
                {
                    in_chunk = word(row, 4)?;
                    rows.next();
                }
                left = in_chunk;
                at = self.offsets.of(chunk - 1)?;
            }
            left -= 1;
            let size = self.sizes.of(frame)?.into();
            let place = (at, size);
            at = at.checked_add(size)?;
            Some(place)
        })
    }
}

impl Sizes<'_> {
    fn of(&self, frame: u32) -> Option<u32> {
        match self {
            Self::Same(size) => Some(*size),
            Self::Each(table) => word(table, (frame as usize).checked_mul(4)?),
        }
    }
}

impl Offsets<'_> {
    fn of(&self, chunk: u32) -> Option<u64> {
        let at = (chunk as usize).checked_mul(self.bytes_each)?;
        match self.bytes_each {
            4 => word(self.table, at).map(u64::from),
            _ => array(self.table, at).map(u64::from_be_bytes),
        }
    }
}

/// Frames, and how long they take together.
fn times(table: &[u8]) -> TrackResult<(u32, u64)> {
    let rows = rows(table, 4, 8).ok_or(TrackError::Missing("times of frames"))?;
    let (mut frames, mut length) = (0_u64, 0_u64);
    for row in rows.chunks_exact(8) {
        let (Some(count), Some(each)) = (word(row, 0), word(row, 4)) else {
            break;
        };
        frames = frames.saturating_add(count.into());
        length = length.saturating_add(u64::from(count).saturating_mul(each.into()));
    }
    match u32::try_from(frames) {
        Ok(few) if few <= MOST_FRAMES => Ok((few, length)),
        _ => Err(TrackError::TooManyFrames(frames)),
    }
}

/// Sizes and number of frames.
fn sizes(table: &[u8]) -> TrackResult<(Sizes<'_>, u32)> {
    let missing = TrackError::Missing("sizes of frames");
    let (Some(same), Some(count)) = (word(table, 4), word(table, 8)) else {
        return Err(missing);
    };
    match same {
        0 => Ok((Sizes::Each(rows(table, 8, 4).ok_or(missing)?), count)),
        same => Ok((Sizes::Same(same), count)),
    }
}

/// The rows of a table whose number is stored at `at`; `None` if there are fewer.
fn rows(table: &[u8], at: usize, bytes_each: usize) -> Option<&[u8]> {
    let count = word(table, at)? as usize;
    let begin = at.checked_add(4)?;
    table.get(begin..begin.checked_add(count.checked_mul(bytes_each)?)?)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{TrackError, track};
    use crate::image::{Channels, Pixels, Size};
    use crate::video::Mp4Writer;

    fn film(frames: u8) -> Vec<u8> {
        let size = Size {
            width: 64,
            height: 48,
        };
        let mut writer = Mp4Writer::new(size, 8.0).unwrap();
        for at in 0..frames {
            let pixels = (0..64 * 48 * 3).map(|place: u32| (place as u8).wrapping_mul(at + 3));
            let frame = Pixels::new(size, Channels::Rgb, pixels.collect()).unwrap();
            writer.push(&frame).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_video_of_ours_says_what_it_is() {
        let found = track(&film(20)).unwrap();
        assert_eq!((found.width, found.height, found.frames), (64, 48, 20));
        assert!((found.seconds - 2.5).abs() < 0.01, "{}", found.seconds);
    }

    /// Files of public encoders, by `samples/generate.py`.
    const SAMPLES: [(&str, &[u8]); 6] = [
        ("avc1", include_bytes!("samples/h264.mp4")),
        ("hev1", include_bytes!("samples/h265.mp4")),
        ("av01", include_bytes!("samples/av1.mp4")),
        ("vp09", include_bytes!("samples/vp9.mp4")),
        ("mp4v", include_bytes!("samples/mpeg4.mp4")),
        ("mp4v with JPEG", include_bytes!("samples/jpeg.mp4")),
    ];

    #[test]
    fn videos_of_other_encoders_say_what_they_are() {
        for (codec, file) in SAMPLES {
            let found = track(file).unwrap_or_else(|error| panic!("{codec}: {error}"));
            assert_eq!((found.width, found.height, found.frames), (64, 48, 4));
            assert!(
                (found.seconds - 0.5).abs() < 0.01,
                "{codec}: {}",
                found.seconds
            );
        }
    }

    /// Bytes that are set but no frames of the codec, and a codec without a name.
    #[test]
    fn frames_of_no_codec_are_no_pictures() {
        for (codec, file) in SAMPLES {
            let mut file = file.to_vec();
            let data = file.windows(4).position(|name| name == b"mdat").unwrap();
            let length = u32::from_be_bytes(file[data - 4..data].try_into().unwrap());
            file[data + 4..data - 4 + length as usize].fill(0xa7);
            assert_eq!(track(&file), Err(TrackError::NoKeyFrame), "{codec}");
            let description = file.windows(4).position(|name| name == b"stsd").unwrap();
            file[description + 16..][..4].copy_from_slice(b"XVID");
            let unknown = TrackError::UnknownCodec("XVID".to_owned());
            assert_eq!(track(&file), Err(unknown), "{codec}");
        }
    }

    #[test]
    fn a_file_without_frames_is_none() {
        let mut empty = b"\0\0\0\x18ftypisom\0\0\0\0isommp42".to_vec();
        assert_eq!(track(&empty), Err(TrackError::NotMp4));
        empty.resize(1 << 20, 0);
        assert_eq!(track(&empty), Err(TrackError::NotMp4));
        assert_eq!(track(b""), Err(TrackError::NotMp4));
    }

    #[test]
    fn frames_of_zeros_are_no_pictures() {
        let mut file = film(4);
        let data = file.windows(4).position(|name| name == b"mdat").unwrap();
        let length = u32::from_be_bytes(file[data - 4..data].try_into().unwrap());
        file[data + 4..data - 4 + length as usize].fill(0);
        assert_eq!(track(&file), Err(TrackError::NoKeyFrame));
    }

    #[test]
    fn a_file_that_was_cut_off_is_named() {
        let file = film(20);
        let data = file.windows(4).position(|name| name == b"mdat").unwrap();
        assert!(matches!(
            track(&file[..data + 100]),
            Err(TrackError::Outside(_))
        ));
    }

    proptest! {
        /// Words of the tables are replaced: nothing panics, and a track that is taken has a number of frames within bounds.
        #[test]
        fn fuzz_tables_of_videos(places in prop::collection::vec((0_usize..4096, any::<u32>()), 1..6)) {
            let mut file = film(6);
            for (at, word) in places {
                if let Some(bytes) = file.get_mut(at..at + 4) {
                    bytes.copy_from_slice(&word.to_be_bytes());
                }
            }
            if let Ok(found) = track(&file) {
                prop_assert!(found.frames as usize <= super::MOST_FRAMES as usize);
            }
        }
    }
}
