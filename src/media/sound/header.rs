//! Reads rate, channels and length of a recording without a decoder. A file that claims more than its size is
//! truncated, so the length never exceeds its bytes.

use super::{SoundError, mp3};
use crate::MediaType;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoundHeader {
    /// In Hz.
    pub rate: u32,
    pub channels: u16,
    /// Samples of each channel.
    pub frames: u64,
}

/// The length of a stream of unknown length.
const UNKNOWN: u32 = u32::MAX;
/// Opus measures time at this rate, whatever the rate of the recording.
const OPUS_RATE: u32 = 48_000;

impl SoundHeader {
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds are exact enough for 2^53 frames"
    )]
    pub fn seconds(self) -> f64 {
        self.frames as f64 / f64::from(self.rate)
    }
}

/// The header of a sound of this type. Allocates nothing.
pub fn inspect(bytes: &[u8], media_type: MediaType) -> Result<SoundHeader, SoundError> {
    let unreadable = SoundError::Unreadable {
        expected: media_type,
    };
    if MediaType::sniff(bytes) != Some(media_type) {
        return Err(unreadable);
    }
    let header = match media_type {
        MediaType::Wav => wav(bytes),
        MediaType::Flac => flac(bytes),
        MediaType::Opus => opus(bytes),
        MediaType::Mp3 => mp3::header(bytes),
        _ => return Err(unreadable),
    };
    let header = header.ok_or(unreadable.clone())??;
    match header.rate > 0 && header.channels > 0 {
        true => Ok(header),
        false => Err(unreadable),
    }
}

type Outcome = Option<Result<SoundHeader, SoundError>>;

/// RIFF chunks: the format, then the samples.
fn wav(bytes: &[u8]) -> Outcome {
    let mut at = 12;
    let mut format = None;
    loop {
        let name: [u8; 4] = array(bytes, at)?;
        let length = u32::from_le_bytes(array(bytes, at + 4)?);
        let data = bytes.get(at + 8..)?;
        match &name {
            b"fmt " => {
                let channels = u16::from_le_bytes(array(data, 2)?);
                let rate = u32::from_le_bytes(array(data, 4)?);
                let frame_bytes = u16::from_le_bytes(array(data, 12)?);
                format = Some((channels, rate, frame_bytes));
            }
            b"data" => {
                let (channels, rate, frame_bytes) = format?;
                let there = data.len() as u64;
                let length = match length {
                    UNKNOWN => there,
                    length if u64::from(length) > there => {
                        return Some(Err(SoundError::Truncated));
                    }
                    length => u64::from(length),
                };
                return Some(Ok(SoundHeader {
                    rate,
                    channels,
                    frames: length.checked_div(u64::from(frame_bytes))?,
                }));
            }
            _ => {}
        }
        let length = usize::try_from(length).ok()?;
        at = at
            .checked_add(8)?
            .checked_add(length)?
            .checked_add(length % 2)?;
    }
}

/// STREAMINFO, which is the first block of metadata.
fn flac(bytes: &[u8]) -> Outcome {
    const STREAMINFO: usize = 8;
    /// The least bits of a sample of silence, in the largest block: a frame has a header and 65,535 samples at most.
    const FRAMES_PER_BYTE: u64 = 65_535 / 8;
    if bytes.get(4)? & 0x7f != 0 {
        return None;
    }
    let packed = u64::from_be_bytes(array(bytes, STREAMINFO + 10)?);
    let header = SoundHeader {
        rate: u32::try_from(packed >> 44).ok()?,
        channels: u16::try_from(packed >> 41 & 7).ok()? + 1,
        frames: packed & 0xf_ffff_ffff,
    };
    // Zero means an unknown length.
    if header.frames == 0 {
        return None;
    }
    match header.frames / FRAMES_PER_BYTE > bytes.len() as u64 {
        true => Some(Err(SoundError::Truncated)),
        false => Some(Ok(header)),
    }
}

/// Ogg pages: the first has the channels and how much of the beginning is left out, the last has the length.
fn opus(bytes: &[u8]) -> Outcome {
    const PAGE_HEADER: usize = 27;
    const END_OF_STREAM: u8 = 4;
    let (mut at, mut first, mut end, mut ended) = (0, None, 0_u64, false);
    while at < bytes.len() {
        let page = bytes.get(at..)?;
        if !page.starts_with(b"OggS") {
            return None;
        }
        let Some(lengths) = page
            .get(PAGE_HEADER - 1)
            .and_then(|segments| page.get(PAGE_HEADER..PAGE_HEADER + usize::from(*segments)))
        else {
            return Some(Err(SoundError::Truncated));
        };
        let body = PAGE_HEADER + lengths.len();
        let length = body
            + lengths
                .iter()
                .map(|length| usize::from(*length))
                .sum::<usize>();
        if length > page.len() {
            return Some(Err(SoundError::Truncated));
        }
        let serial: [u8; 4] = array(page, 14)?;
        let (known, _, _) = *first.get_or_insert((
            serial,
            u16::from(*page.get(body + 9)?),
            u64::from(u16::from_le_bytes(array(page, body + 10)?)),
        ));
        if serial != known {
            return None;
        }
        // Pages on which no packet ends have no position: -1.
        let position = u64::from_le_bytes(array(page, 6)?);
        if position != u64::MAX {
            end = end.max(position);
        }
        ended |= page.get(5)? & END_OF_STREAM != 0;
        at += length;
    }
    let (_, channels, skipped) = first?;
    if !ended {
        return Some(Err(SoundError::Truncated));
    }
    Some(Ok(SoundHeader {
        rate: OPUS_RATE,
        channels,
        frames: end.saturating_sub(skipped),
    }))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
