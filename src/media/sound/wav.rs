//! WAV: without loss, without compression. Reading takes integers of up to 32 bits and floats.

use std::io::Cursor;

use hound::{SampleFormat, WavReader, WavSpec, WavWriter};

use super::{Sound, SoundBounds, SoundError, inspect};
use crate::MediaType;

/// The samples of a WAV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WavFormat {
    /// Plays everywhere.
    Int16,
    /// Without clipping.
    Float32,
}

pub fn to_wav(sound: &Sound, format: WavFormat) -> Result<Vec<u8>, SoundError> {
    let (bits_per_sample, sample_format) = match format {
        WavFormat::Int16 => (16, SampleFormat::Int),
        WavFormat::Float32 => (32, SampleFormat::Float),
    };
    let spec = WavSpec {
        channels: sound.channels(),
        sample_rate: sound.rate(),
        bits_per_sample,
        sample_format,
    };
    let mut out = Cursor::new(Vec::new());
    let mut write = || {
        let mut writer = WavWriter::new(&mut out, spec)?;
        match format {
            WavFormat::Int16 => {
                for sample in sound.integers() {
                    writer.write_sample(sample)?;
                }
            }
            WavFormat::Float32 => {
                for sample in sound.samples() {
                    writer.write_sample(*sample)?;
                }
            }
        }
        writer.finalize()
    };
    write().map_err(|_| SoundError::Encoder(MediaType::Wav))?;
    Ok(out.into_inner())
}

pub fn from_wav(bytes: &[u8], bounds: SoundBounds) -> Result<Sound, SoundError> {
    bounds.check(inspect(bytes, MediaType::Wav)?)?;
    let read = || {
        let mut reader = WavReader::new(Cursor::new(bytes))?;
        let spec = reader.spec();
        let samples: hound::Result<Vec<f32>> = match spec.sample_format {
            SampleFormat::Float => reader.samples::<f32>().collect(),
            SampleFormat::Int => {
                let full_scale = 2_f64.powi(i32::from(spec.bits_per_sample) - 1);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "a sample has fewer bits than it is kept with, or loses those it cannot keep"
                )]
                let float = |sample: i32| (f64::from(sample) / full_scale) as f32;
                let samples = reader.samples::<i32>();
                samples.map(|sample| sample.map(float)).collect()
            }
        };
        hound::Result::Ok((spec, samples?))
    };
    let (spec, samples) = read().map_err(|_| SoundError::Unreadable {
        expected: MediaType::Wav,
    })?;
    let sound = Sound::new(spec.sample_rate, spec.channels, samples)?;
    // The header may have another length.
    bounds.check(sound.header())?;
    Ok(sound)
}

/// The header of a WAV with one channel and 16 bits, for `bytes` of samples. The largest number means an unknown
/// length: players then read to the end.
pub fn wav_header(rate: u32, bytes: u32) -> Vec<u8> {
    const BLOCK: u16 = 2;
    const HEADER: u32 = 36;
    let mut header = Vec::with_capacity(44);
    header.extend(b"RIFF");
    header.extend(bytes.saturating_add(HEADER).to_le_bytes());
    header.extend(b"WAVEfmt ");
    header.extend(16_u32.to_le_bytes());
    // Integers, one channel.
    header.extend([1_u16, 1].map(u16::to_le_bytes).concat());
    header.extend(rate.to_le_bytes());
    header.extend(rate.saturating_mul(BLOCK.into()).to_le_bytes());
    header.extend([BLOCK, 16].map(u16::to_le_bytes).concat());
    header.extend(b"data");
    header.extend(bytes.to_le_bytes());
    header
}
