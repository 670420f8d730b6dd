//! Small images of a video, as WebP in separate boxes at the end of the file. Players ignore such boxes.

use std::io::{self, Read, Seek, SeekFrom};

use crate::MediaType;

/// An image of a video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoStill {
    /// The first frame.
    Poster,
    /// Frames from start to end, side by side.
    Sheet,
}

/// The type of boxes without a registered name.
const NAME: u32 = u32::from_be_bytes(*b"uuid");
const ID_BYTES: u64 = 16;
/// A length and a name.
const HEAD: u64 = 8;
/// Marks a box whose length follows its name.
const LONG: u64 = 1;
const MOST_BYTES: u64 = 1 << 18;
/// Boxes of a file, its fragments counted in.
const MOST_BOXES: usize = 4096;

impl VideoStill {
    /// Which of the boxes without a name it is.
    fn id(self) -> [u64; 2] {
        match self {
            Self::Poster => [0x6d75_7374_6572_4f1a, 0x9c2e_706f_7374_6572],
            Self::Sheet => [0x6d75_7374_6572_4f1a, 0x9c2e_0073_6865_6574],
        }
    }
}

/// The box of an image; empty without one, since it is optional.
pub fn boxed(still: VideoStill, image: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEAD + ID_BYTES + image.len() as u64).unwrap_or_default();
    if length == 0 || image.is_empty() {
        return Vec::new();
    }
    let mut file = [length.to_be_bytes(), NAME.to_be_bytes()].concat();
    file.extend(still.id().map(u64::to_be_bytes).concat());
    file.extend(image);
    file
}

/// The WebP of a file. `None` without one, and for a file that is truncated or no MP4.
pub fn still(mut file: impl Read + Seek, wanted: VideoStill) -> io::Result<Option<Vec<u8>>> {
    let end = file.seek(SeekFrom::End(0))?;
    let mut at = 0;
    for _ in 0..MOST_BOXES {
        let Some(found) = read_head(&mut file, at, end)? else {
            return Ok(None);
        };
        if found.id == Some(wanted.id()) && found.bytes <= MOST_BYTES {
            let mut image = vec![0; usize::try_from(found.bytes).unwrap_or_default()];
            file.seek(SeekFrom::Start(found.start))?;
            file.read_exact(&mut image)?;
            let is_image = MediaType::sniff(&image) == Some(MediaType::Webp);
            return Ok(is_image.then_some(image));
        }
        at = found.next;
    }
    Ok(None)
}

struct BoxHead {
    /// Set for a box without a name.
    id: Option<[u64; 2]>,
    /// Offset of the image.
    start: u64,
    bytes: u64,
    next: u64,
}

/// `None` at the end, and if no box can begin here.
fn read_head(mut file: impl Read + Seek, at: u64, end: u64) -> io::Result<Option<BoxHead>> {
    let whole = HEAD + ID_BYTES;
    let left = end.saturating_sub(at);
    if left < HEAD {
        return Ok(None);
    }
    let mut head = [0; 24];
    let known = usize::try_from(left.min(whole)).unwrap_or_default();
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut head[..known])?;
    let (words, _) = head.as_chunks::<8>();
    let [first, second, third] = [words[0], words[1], words[2]].map(u64::from_be_bytes);
    let length = match first >> 32 {
        LONG => second,
        length => length,
    };
    if length < HEAD || length > left {
        return Ok(None);
    }
    let has_id = first & u64::from(u32::MAX) == u64::from(NAME) && length > whole;
    Ok(Some(BoxHead {
        id: has_id.then_some([second, third]),
        start: at + whole,
        bytes: length.saturating_sub(whole),
        next: at + length,
    }))
}
