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

/// Bytes of a page of a file that is written while the sound comes: some tenths of a second.
const STREAM_PAGE_BYTES: usize = 1024;

/// An Ogg Opus file that is written while the sound comes, page by page.
pub struct OpusStream {
    encoder: OpusEncoder,
    writer: OggOpusWriter<Vec<u8>>,
    channels: usize,
    packet_frames: usize,
    /// Ticks of 48,000 Hz a frame.
    ticks: usize,
    /// The encoder's delay in ticks: trailing silence flushes it.
    late: usize,
    /// Samples that were not encoded. At least one is kept for the last packet.
    rest: Vec<f32>,
    packet: Vec<u8>,
    /// Number of the sound's frames.
    frames: usize,
    packets: usize,
}

/// `bits_per_second` is of all channels together: 32,000 for speech, 96,000 for music.
pub fn to_opus(sound: &Sound, bits_per_second: u32) -> Result<Vec<u8>, SoundError> {
    let mut stream = OpusStream::new(sound.rate(), sound.channels(), bits_per_second)?;
    let mut file = stream.push(sound.samples())?;
    file.extend(stream.finish()?);
    Ok(file)
}

impl OpusStream {
    /// `bits_per_second` as for [`to_opus`].
    pub fn new(rate: u32, channels: u16, bits_per_second: u32) -> Result<Self, SoundError> {
        if channels > MOST_CHANNELS || !OPUS_RATES.contains(&rate) {
            return Err(SoundError::Unsupported {
                codec: MediaType::Opus,
                channels,
                rate,
            });
        }
        Self::begin(rate, channels.into(), bits_per_second).map_err(failed)
    }

    /// With pages that leave soon.
    #[must_use]
    pub fn in_small_pages(mut self) -> Self {
        self.writer.set_page_target(STREAM_PAGE_BYTES);
        self
    }

    /// The bytes of the file that the next samples make whole.
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, SoundError> {
        self.frames += samples.len() / self.channels;
        self.rest.extend_from_slice(samples);
        self.encode_all().map_err(failed)?;
        Ok(self.written())
    }

    /// The rest of the file.
    pub fn finish(mut self) -> Result<Vec<u8>, SoundError> {
        self.encode_end().map_err(failed)?;
        self.writer.finish().map_err(failed)
    }

    fn begin(rate: u32, channels: usize, bits_per_second: u32) -> opus_pure::Result<Self> {
        let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let mut encoder = OpusEncoder::new(signed(rate), channels, Application::Audio)?;
        encoder.bitrate_bps = signed(bits_per_second.clamp(6_000, 510_000));
        let head = OpusHead::for_encoder(&encoder, rate);
        Ok(Self {
            channels,
            packet_frames: (rate / PACKETS_PER_SECOND) as usize,
            ticks: (DECODED_RATE / rate) as usize,
            late: usize::from(head.pre_skip),
            encoder,
            writer: OggOpusWriter::new(Vec::new(), head)?,
            rest: Vec::new(),
            packet: vec![0; MAX_PACKET_BYTES],
            frames: 0,
            packets: 0,
        })
    }

    fn encode_all(&mut self) -> opus_pure::Result<()> {
        let block = self.packet_frames * self.channels;
        let rest = std::mem::take(&mut self.rest);
        let mut rest = rest.as_slice();
        while rest.len() > block {
            let (now, later) = rest.split_at(block);
            let length = self.encode(now)?;
            self.writer.write_packet(&self.packet[..length])?;
            rest = later;
        }
        self.rest = rest.to_vec();
        Ok(())
    }

    fn encode_end(&mut self) -> opus_pure::Result<()> {
        let silence = self.late.div_ceil(self.ticks);
        let packets = (self.frames + silence).div_ceil(self.packet_frames);
        // The position of the last page is the end of the sound within its packet.
        let end = (self.late + self.frames * self.ticks) as u64;
        let mut block = std::mem::take(&mut self.rest);
        while self.packets < packets {
            block.resize(self.packet_frames * self.channels, 0.0);
            let length = self.encode(&block)?;
            let packet = &self.packet[..length];
            if self.packets == packets {
                let written = u64::try_from(self.writer.granule()).unwrap_or_default();
                let left = u32::try_from(end.saturating_sub(written)).unwrap_or(u32::MAX);
                self.writer.write_packet_with_duration(packet, left)?;
            } else {
                self.writer.write_packet(packet)?;
            }
            block.clear();
        }
        Ok(())
    }

    fn encode(&mut self, block: &[f32]) -> opus_pure::Result<usize> {
        self.packets += 1;
        self.encoder
            .encode(block, self.packet_frames, &mut self.packet)
    }

    fn written(&mut self) -> Vec<u8> {
        self.writer
            .get_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

fn failed(_: opus_pure::Error) -> SoundError {
    SoundError::Encoder(MediaType::Opus)
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

/// Stops after the limit: a packet of a few bytes may contain a tenth of a second.
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
