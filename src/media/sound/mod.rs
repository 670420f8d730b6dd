//! Sound from untrusted bytes, and back. Samples are interleaved `f32` from -1 to 1.
//!
//! | file | contents |
//! | --- | --- |
//! | `header` | rate, channels and length from bytes, without a decoder |
//! | `wav` | WAV, 16-bit or float, both ways |
//! | `flac` | FLAC, 16-bit, encoding |
//! | `opus` | Opus in Ogg, both ways |
//! | `mp3` | MP3, encoding |
//! | `decode` | any sound file, block by block |
//! | `listen` | the same as one channel at one rate |
//! | `speech` | voice activity detection |

mod decode;
mod flac;
mod header;
mod listen;
mod mp3;
mod opus;
mod speech;
mod wav;

#[cfg(test)]
mod tests;

pub use decode::{DECODED_TYPES, DecodedSound, decode};
pub use flac::{FlacStream, to_flac};
pub use header::{SoundHeader, inspect};
pub use listen::{listen, listen_in_blocks};
pub use mp3::{MP3_RATES, Mp3Stream, to_mp3};
pub use opus::{OPUS_RATES, OpusStream, from_opus, to_opus};
pub use speech::{SPEECH_RATE, SpeechFilter, SpeechRule, SpeechSpans};
pub use wav::{WavFormat, from_wav, to_wav, wav_header};

use crate::MediaType;

/// Samples of all channels, one frame after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Sound {
    rate: u32,
    channels: u16,
    samples: Vec<f32>,
}

/// The longest sound to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoundBounds {
    pub seconds: f64,
    pub channels: u16,
}

/// The largest sound to decode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodeBounds {
    pub seconds: f64,
    /// Over all channels.
    pub samples: u64,
}

/// Why bytes are not decoded, or samples not encoded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SoundError {
    #[error("the sound is not a {expected}, or damaged")]
    Unreadable { expected: MediaType },
    #[error("the sound is truncated")]
    Truncated,
    #[error("the sound has {found:.1} seconds, at most {most:.1} are allowed")]
    TooLong { found: f64, most: f64 },
    #[error(
        "the sound has over {most} samples in {channels} channels at {rate} Hz; send it with fewer channels or a lower rate"
    )]
    TooManySamples { most: u64, channels: u16, rate: u32 },
    #[error("the sound has {found} channels, at most {most} are allowed")]
    TooManyChannels { found: u16, most: u16 },
    #[error("{samples} samples do not fill {channels} channels at {rate} Hz")]
    Uneven {
        samples: usize,
        channels: u16,
        rate: u32,
    },
    #[error("{codec} takes no sound of {channels} channels at {rate} Hz")]
    Unsupported {
        codec: MediaType,
        channels: u16,
        rate: u32,
    },
    #[error("the file holds no sound that can be decoded; send one of {DECODED_TYPES}")]
    NoSound,
    #[error("the sound has samples that are not numbers")]
    NotNumbers,
    #[error("encoding the sound as {0} failed")]
    Encoder(MediaType),
}

impl Sound {
    /// Fails without a rate or channels, and where the last frame is incomplete.
    pub fn new(rate: u32, channels: u16, samples: Vec<f32>) -> Result<Self, SoundError> {
        let whole = rate > 0 && channels > 0 && samples.len().is_multiple_of(usize::from(channels));
        if !whole {
            return Err(SoundError::Uneven {
                samples: samples.len(),
                channels,
                rate,
            });
        }
        Ok(Self {
            rate,
            channels,
            samples,
        })
    }

    /// In Hz.
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    pub const fn channels(&self) -> u16 {
        self.channels
    }

    /// Interleaved.
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    pub fn into_samples(self) -> Vec<f32> {
        self.samples
    }

    /// Samples of each channel.
    pub fn frames(&self) -> usize {
        self.samples.len() / usize::from(self.channels)
    }

    pub fn seconds(&self) -> f64 {
        self.header().seconds()
    }

    pub fn header(&self) -> SoundHeader {
        SoundHeader {
            rate: self.rate,
            channels: self.channels,
            frames: self.frames() as u64,
        }
    }

    /// Clipped to 16 bits.
    fn integers(&self) -> impl Iterator<Item = i16> {
        self.samples.iter().map(|sample| integer(*sample))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the sample is clipped, and not a number becomes silence"
)]
fn integer(sample: f32) -> i16 {
    const FULL_SCALE: f32 = 32_767.0;
    (sample.clamp(-1.0, 1.0) * FULL_SCALE).round() as i16
}

impl DecodeBounds {
    /// Bounds of the length alone.
    pub const fn seconds(seconds: f64) -> Self {
        Self {
            seconds,
            samples: u64::MAX,
        }
    }
}

impl SoundBounds {
    pub fn check(self, header: SoundHeader) -> Result<(), SoundError> {
        let found = header.seconds();
        if header.channels > self.channels {
            return Err(SoundError::TooManyChannels {
                found: header.channels,
                most: self.channels,
            });
        }
        if found > self.seconds {
            return Err(SoundError::TooLong {
                found,
                most: self.seconds,
            });
        }
        Ok(())
    }
}
