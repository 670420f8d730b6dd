//! Any sound file, decoded block by block within bounds. The bytes are foreign: this runs where memory and time are
//! limited.

use std::io::Cursor;

use opus_pure::{MAX_PACKET_SAMPLES, OggOpusReader, OpusDecoder, OpusHead, Trim};
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as DecodingError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;

use super::{DecodeBounds, SoundError, inspect};
use crate::MediaType;

/// Rates of files that are taken, in Hz.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;
const MOST_CHANNELS: usize = 64;
const OPUS_RATE: u32 = 48_000;

/// The types of files that are decoded, for messages.
pub const DECODED_TYPES: &str = "flac, m4a, mp3, mp4, mpeg, mpga, oga, ogg, opus, wav and webm";

/// Properties of a decoded file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodedSound {
    pub rate: u32,
    pub channels: u16,
    /// Samples of each channel.
    pub frames: u64,
    /// The loudest sample, from 0 to 1.
    pub peak: f32,
}

impl DecodedSound {
    pub fn seconds(&self) -> f64 {
        self.frames as f64 / f64::from(self.rate.max(1))
    }

    /// Over all channels.
    pub fn samples(&self) -> u64 {
        self.frames.saturating_mul(u64::from(self.channels))
    }
}

/// Hands on rate, channels and interleaved samples of each block. All blocks have the same rate.
pub fn decode(
    bytes: Vec<u8>,
    bounds: DecodeBounds,
    each: impl FnMut(u32, usize, &[f32]) -> Result<(), SoundError>,
) -> Result<DecodedSound, SoundError> {
    let mut blocks = Blocks {
        bounds,
        found: None,
        each,
    };
    match MediaType::sniff(&bytes) {
        Some(MediaType::Opus) => decode_opus(&bytes, &mut blocks)?,
        media_type => {
            check_length(&bytes, media_type, bounds)?;
            decode_packets(bytes, &mut blocks)?;
        }
    }
    blocks.found.ok_or(SoundError::NoSound)
}

/// Some types state their length: a shorter file was truncated.
fn check_length(
    bytes: &[u8],
    media_type: Option<MediaType>,
    bounds: DecodeBounds,
) -> Result<(), SoundError> {
    let Some(media_type @ (MediaType::Wav | MediaType::Flac)) = media_type else {
        return Ok(());
    };
    match inspect(bytes, media_type) {
        Err(truncated @ SoundError::Truncated) => Err(truncated),
        Ok(header) if header.seconds() > bounds.seconds => Err(SoundError::TooLong {
            found: header.seconds(),
            most: bounds.seconds,
        }),
        _ => Ok(()),
    }
}

fn decode_packets(bytes: Vec<u8>, blocks: &mut impl Consumer) -> Result<(), SoundError> {
    let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default());
    let probe = symphonia::default::get_probe();
    let hint = Hint::new();
    let (format, metadata) = (FormatOptions::default(), MetadataOptions::default());
    let mut format = probe
        .probe(&hint, stream, format, metadata)
        .map_err(|_| SoundError::NoSound)?;
    let track = format.default_track(TrackType::Audio);
    let track = track.ok_or(SoundError::NoSound)?;
    let id = track.id;
    let parameters = track
        .codec_params
        .as_ref()
        .and_then(|parameters| parameters.audio());
    let parameters = parameters.ok_or(SoundError::NoSound)?;
    let mut decoder = PacketDecoder::new(parameters)?;
    // The end of a file that was cut off is an error too: the sound before it counts.
    while let Ok(Some(packet)) = format.next_packet() {
        if packet.track_id == id {
            decoder.decode(&packet, blocks)?;
        }
    }
    Ok(())
}

enum PacketDecoder {
    Own(Box<dyn AudioDecoder>),
    /// In a container that is not Ogg.
    Opus {
        decoder: Box<OpusDecoder>,
        channels: usize,
        block: Vec<f32>,
    },
}

impl PacketDecoder {
    fn new(parameters: &AudioCodecParameters) -> Result<Self, SoundError> {
        if parameters.codec == CODEC_ID_OPUS {
            let channels = parameters
                .channels
                .as_ref()
                .map_or(1, |channels| channels.count());
            let channels = channels.clamp(1, 2);
            let rate = i32::try_from(OPUS_RATE).unwrap_or(i32::MAX);
            return Ok(Self::Opus {
                decoder: OpusDecoder::new(rate, channels)
                    .map(Box::new)
                    .map_err(|_| SoundError::NoSound)?,
                channels,
                block: vec![0.0; MAX_PACKET_SAMPLES * channels],
            });
        }
        let codecs = symphonia::default::get_codecs();
        let decoder = codecs.make_audio_decoder(parameters, &AudioDecoderOptions::default());
        decoder.map(Self::Own).map_err(|_| SoundError::NoSound)
    }

    fn decode(
        &mut self,
        packet: &symphonia::core::packet::Packet,
        blocks: &mut impl Consumer,
    ) -> Result<(), SoundError> {
        match self {
            Self::Own(decoder) => {
                let buffer = match decoder.decode(packet) {
                    Ok(buffer) => buffer,
                    // One packet is damaged; the next may not be.
                    Err(DecodingError::DecodeError(_)) => return Ok(()),
                    Err(_) => return Err(SoundError::NoSound),
                };
                let (rate, channels) = (buffer.spec().rate(), buffer.num_planes());
                let mut samples = vec![0.0; buffer.samples_interleaved()];
                buffer.copy_to_slice_interleaved(&mut samples);
                blocks.push(rate, channels, &samples)
            }
            Self::Opus {
                decoder,
                channels,
                block,
            } => match decoder.decode(&packet.data, MAX_PACKET_SAMPLES, block) {
                Ok(frames) => blocks.push(OPUS_RATE, *channels, &block[..frames * *channels]),
                Err(_) => Ok(()),
            },
        }
    }
}

fn decode_opus(bytes: &[u8], blocks: &mut impl Consumer) -> Result<(), SoundError> {
    let none = |_| SoundError::NoSound;
    let rate = i32::try_from(OPUS_RATE).unwrap_or(i32::MAX);
    let mut reader = OggOpusReader::new(bytes).map_err(none)?;
    let head: &OpusHead = reader.head();
    let channels = usize::from(head.channel_count);
    let mut decoder = head.decoder(rate).map_err(none)?;
    let mut trim = Trim::new(head, rate, channels).map_err(none)?;
    let mut block = vec![0.0; MAX_PACKET_SAMPLES * channels];
    for packet in reader.packets() {
        let Ok(packet) = packet else { break };
        let Ok(frames) = decoder.decode(&packet.data, MAX_PACKET_SAMPLES, &mut block) else {
            continue;
        };
        let kept = trim.keep(&packet, &block[..frames * channels]);
        blocks.push(OPUS_RATE, channels, kept)?;
    }
    Ok(())
}

/// Receives decoded blocks.
trait Consumer {
    fn push(&mut self, rate: u32, channels: usize, samples: &[f32]) -> Result<(), SoundError>;
}

struct Blocks<F> {
    bounds: DecodeBounds,
    found: Option<DecodedSound>,
    each: F,
}

impl<F: FnMut(u32, usize, &[f32]) -> Result<(), SoundError>> Consumer for Blocks<F> {
    fn push(&mut self, rate: u32, channels: usize, samples: &[f32]) -> Result<(), SoundError> {
        if !RATES.contains(&rate) || channels == 0 || channels > MOST_CHANNELS {
            return Err(SoundError::NoSound);
        }
        if samples.iter().any(|sample| !sample.is_finite()) {
            return Err(SoundError::NotNumbers);
        }
        let count = u16::try_from(channels).unwrap_or(u16::MAX);
        let found = self.found.get_or_insert(DecodedSound {
            rate,
            channels: count,
            frames: 0,
            peak: 0.0,
        });
        // Few files change their rate in the middle.
        if found.rate != rate {
            return Err(SoundError::NoSound);
        }
        found.channels = found.channels.max(count);
        found.frames += (samples.len() / channels) as u64;
        found.peak = samples
            .iter()
            .fold(found.peak, |peak, one| peak.max(one.abs()));
        if found.seconds() > self.bounds.seconds {
            return Err(SoundError::TooLong {
                found: found.seconds(),
                most: self.bounds.seconds,
            });
        }
        if found.samples() > self.bounds.samples {
            return Err(SoundError::TooManySamples {
                most: self.bounds.samples,
                channels: count,
                rate,
            });
        }
        (self.each)(rate, channels, samples)
    }
}
