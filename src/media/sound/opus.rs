//! Opus in Ogg: small files for speech and music. Opus knows five rates; other sound is resampled before it comes here.

use opus_pure::{
    Application, MAX_PACKET_BYTES, MAX_PACKET_SAMPLES, OggOpusReader, OggOpusWriter, OpusEncoder,
    OpusHead, Trim,
};

use super::{Sound, SoundBounds, SoundError, inspect};
use crate::MediaType;

/// Rates that are encoded, in Hz. Decoding gives the last one.
pub const OPUS_RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];

const DECODED_RATE: u32 = 48_000;
const MOST_CHANNELS: u16 = 2;
/// Packets of 20 ms.
const PACKETS_PER_SECOND: u32 = 50;

/// `bits_per_second` is of all channels together: 32,000 for speech, 96,000 for music.
pub fn to_opus(sound: &Sound, bits_per_second: u32) -> Result<Vec<u8>, SoundError> {
    let (rate, channels) = (sound.rate(), sound.channels());
    if channels > MOST_CHANNELS || !OPUS_RATES.contains(&rate) {
        return Err(SoundError::Unsupported {
            codec: MediaType::Opus,
            channels,
            rate,
        });
    }
    write(sound, bits_per_second).map_err(|_| SoundError::Encoder(MediaType::Opus))
}

fn write(sound: &Sound, bits_per_second: u32) -> opus_pure::Result<Vec<u8>> {
    let channels = usize::from(sound.channels());
    let rate = sound.rate();
    let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let mut encoder = OpusEncoder::new(signed(rate), channels, Application::Audio)?;
    encoder.bitrate_bps = signed(bits_per_second.clamp(6_000, 510_000));
    let head = OpusHead::for_encoder(&encoder, rate);
    let ticks = (DECODED_RATE / rate) as usize;
    let packet_frames = (rate / PACKETS_PER_SECOND) as usize;
    // The encoder is late by so much: silence behind the sound brings out the rest.
    let late = usize::from(head.pre_skip);
    let packets = (sound.frames() + late.div_ceil(ticks)).div_ceil(packet_frames);
    // The position of the last page says where the sound ends within its packet.
    let end = (late + sound.frames() * ticks) as u64;
    let mut writer = OggOpusWriter::new(Vec::new(), head)?;
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let mut block = vec![0.0; packet_frames * channels];
    let mut rest = sound.samples();
    for number in 1..=packets {
        let (now, later) = rest.split_at(rest.len().min(block.len()));
        block[..now.len()].copy_from_slice(now);
        block[now.len()..].fill(0.0);
        rest = later;
        let length = encoder.encode(&block, packet_frames, &mut packet)?;
        if number == packets {
            let written = u64::try_from(writer.granule()).unwrap_or_default();
            let left = u32::try_from(end.saturating_sub(written)).unwrap_or(u32::MAX);
            writer.write_packet_with_duration(&packet[..length], left)?;
        } else {
            writer.write_packet(&packet[..length])?;
        }
    }
    writer.finish()
}

/// At 48,000 Hz.
pub fn from_opus(bytes: &[u8], bounds: SoundBounds) -> Result<Sound, SoundError> {
    let header = inspect(bytes, MediaType::Opus)?;
    bounds.check(header)?;
    let unreadable = |_| SoundError::Unreadable {
        expected: MediaType::Opus,
    };
    let samples = read(bytes, bounds).map_err(unreadable)?;
    let found = samples.len() as u64 / u64::from(header.channels);
    bounds.check(super::SoundHeader {
        frames: found,
        ..header
    })?;
    Sound::new(DECODED_RATE, header.channels, samples)
}

/// Stops behind the bounds: a packet of a few bytes may stand for a tenth of a second.
fn read(bytes: &[u8], bounds: SoundBounds) -> opus_pure::Result<Vec<f32>> {
    let rate = i32::try_from(DECODED_RATE).unwrap_or(i32::MAX);
    let mut reader = OggOpusReader::new(bytes)?;
    let channels = usize::from(reader.head().channel_count);
    let mut decoder = reader.head().decoder(rate)?;
    let mut trim = Trim::new(reader.head(), rate, channels)?;
    let mut block = vec![0.0; MAX_PACKET_SAMPLES * channels];
    let mut samples = Vec::new();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a bound of any size is good"
    )]
    let most = (bounds.seconds * f64::from(DECODED_RATE)) as usize * channels;
    for packet in reader.packets() {
        let packet = packet?;
        let frames = decoder.decode(&packet.data, MAX_PACKET_SAMPLES, &mut block)?;
        samples.extend_from_slice(trim.keep(&packet, &block[..frames * channels]));
        if samples.len() > most {
            break;
        }
    }
    Ok(samples)
}
