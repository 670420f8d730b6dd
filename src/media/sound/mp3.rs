//! MP3 (MPEG-1, -2 and -2.5 Layer III) with a constant bit rate, which every player supports.
//!
//! A decoder delays the sound by 1,105 samples and pads the last frame: the first frame of a file has both numbers, and
//! players that read it skip the padding. A stream has no such frame, because its length is unknown at the start.

use rusty_mp3::{Error, Mp3Encoder, Mp3EncoderConfig};

use super::header::SoundHeader;
use super::{Sound, SoundError};
use crate::MediaType;

/// Rates that are encoded, in Hz.
pub const MP3_RATES: [u32; 9] = [
    8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000,
];

const MOST_CHANNELS: u16 = 2;

/// An MP3 that is encoded incrementally. From 32 kHz on the encoder has a bit reservoir and writes all frames at the
/// end.
pub struct Mp3Stream {
    encoder: Mp3Encoder,
    rate: u32,
    channels: u16,
    has_begun: bool,
}

/// `bits_per_second` is of all channels together, and becomes the next one that the format has: 64,000 for speech,
/// 192,000 for music. At 24 kHz and below the most is 160,000.
pub fn to_mp3(sound: &Sound, bits_per_second: u32) -> Result<Vec<u8>, SoundError> {
    let mut stream = Mp3Stream::new(sound.rate(), sound.channels(), bits_per_second)?;
    stream.encode(sound.samples())?;
    stream.has_begun = true;
    stream.finish()
}

impl Mp3Stream {
    /// `bits_per_second` as for [`to_mp3`].
    pub fn new(rate: u32, channels: u16, bits_per_second: u32) -> Result<Self, SoundError> {
        let encoder = Mp3Encoder::new(Mp3EncoderConfig {
            bitrate_kbps: (bits_per_second / 1000).max(1),
            vbr_quality: None,
        });
        let mut stream = Self {
            encoder,
            rate,
            channels,
            has_begun: false,
        };
        let is_supported = channels <= MOST_CHANNELS && MP3_RATES.contains(&rate);
        if !is_supported {
            return Err(SoundError::Unsupported {
                codec: MediaType::Mp3,
                channels,
                rate,
            });
        }
        // An empty recording gives a file, too.
        stream.encode(&[])?;
        Ok(stream)
    }

    /// The bytes of the file that the next samples make whole.
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, SoundError> {
        self.encode(samples)?;
        // The first frame would declare an empty file.
        if !self.has_begun && self.encoder.next_packet().is_ok() {
            self.has_begun = true;
        }
        self.written()
    }

    /// The rest of the file.
    pub fn finish(mut self) -> Result<Vec<u8>, SoundError> {
        self.encoder.finish();
        self.written()
    }

    fn encode(&mut self, samples: &[f32]) -> Result<(), SoundError> {
        let clipped: Vec<f32> = samples.iter().map(|one| one.clamp(-1.0, 1.0)).collect();
        let taken = self
            .encoder
            .push_pcm_f32(&clipped, self.channels, self.rate);
        taken.map_err(failed)
    }

    fn written(&mut self) -> Result<Vec<u8>, SoundError> {
        let mut written = Vec::new();
        loop {
            match self.encoder.next_packet() {
                Ok(packet) => written.extend(packet),
                Err(Error::Again | Error::Eof) => return Ok(written),
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn failed(_: Error) -> SoundError {
    SoundError::Encoder(MediaType::Mp3)
}

/// The length in the first frame, or else computed from the bit rate.
pub fn header(bytes: &[u8]) -> Option<Result<SoundHeader, SoundError>> {
    let frame = Frame::read(bytes)?;
    let sound = |frames| SoundHeader {
        rate: frame.rate,
        channels: frame.channels,
        frames,
    };
    let Some(info) = bytes.get(frame.info_at()..).filter(|info| is_info(info)) else {
        let count = bytes.len() as u64 / frame.bytes();
        return Some(match count {
            0 => Err(SoundError::Truncated),
            count => Ok(sound(count * frame.samples)),
        });
    };
    let number = |at: usize| Some(u32::from_be_bytes(info.get(at..at + 4)?.try_into().ok()?));
    // Frames, bytes and a table of places come before the encoder's own fields.
    const ALL_FIELDS: u32 = 0xf;
    if number(4)? & ALL_FIELDS != ALL_FIELDS {
        return None;
    }
    let (count, length) = (u64::from(number(8)?), u64::from(number(12)?));
    if length > bytes.len() as u64 {
        return Some(Err(SoundError::Truncated));
    }
    let left_out = number(140)? & 0x00ff_ffff;
    let left_out = u64::from((left_out >> 12) + (left_out & 0xfff));
    Some(Ok(sound((count * frame.samples).saturating_sub(left_out))))
}

fn is_info(bytes: &[u8]) -> bool {
    bytes.starts_with(b"Info") || bytes.starts_with(b"Xing")
}

/// The header of one frame.
struct Frame {
    is_mpeg1: bool,
    rate: u32,
    channels: u16,
    bits_per_second: u64,
    /// Per channel.
    samples: u64,
}

impl Frame {
    fn read(bytes: &[u8]) -> Option<Self> {
        const MPEG1: [u64; 14] = [
            32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
        ];
        const MPEG2: [u64; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
        const RATES: [u32; 3] = [44_100, 48_000, 32_000];
        let &[0xff, second, third, fourth] = bytes.get(..4)? else {
            return None;
        };
        let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
        if second >> 5 != 7 || version == 1 || layer != 1 {
            return None;
        }
        let is_mpeg1 = version == 3;
        let rates = if is_mpeg1 { MPEG1 } else { MPEG2 };
        let bits = rates.get(usize::from(third >> 4).checked_sub(1)?)?;
        let halved = match version {
            3 => 0,
            2 => 1,
            _ => 2,
        };
        Some(Self {
            is_mpeg1,
            rate: RATES.get(usize::from(third >> 2 & 3))? >> halved,
            channels: if fourth >> 6 == 3 { 1 } else { 2 },
            bits_per_second: bits * 1000,
            samples: if is_mpeg1 { 1152 } else { 576 },
        })
    }

    fn bytes(&self) -> u64 {
        self.samples / 8 * self.bits_per_second / u64::from(self.rate)
    }

    /// Offset of the file's fields in the first frame.
    fn info_at(&self) -> usize {
        4 + match (self.is_mpeg1, self.channels) {
            (true, 2) => 32,
            (true, _) | (false, 2) => 17,
            (false, _) => 9,
        }
    }
}
