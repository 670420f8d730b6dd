//! FLAC with 16 bits: half the size of a WAV, lossless except for rounding to 16 bits.

use flacenc::bitsink::ByteSink;
use flacenc::component::{BitRepr, Stream, StreamInfo};
use flacenc::config::Encoder;
use flacenc::encode_fixed_size_frame;
use flacenc::error::{Verified, Verify};
use flacenc::source::{Context, Fill, FrameBuf};

use super::{Sound, SoundError, integer};
use crate::MediaType;

const BITS: usize = 16;
/// The format has no shorter sounds: silence fills them.
const LEAST_FRAMES: usize = 16;
const MOST_CHANNELS: u16 = 8;
/// The encoder's highest rate.
const MOST_RATE: u32 = 96_000;
const FAILURE: SoundError = SoundError::Encoder(MediaType::Flac);

pub fn to_flac(sound: &Sound) -> Result<Vec<u8>, SoundError> {
    let mut stream = FlacStream::new(sound.rate(), sound.channels())?;
    let mut frames = stream.push(sound.samples())?;
    let (last, mut file) = stream.finish()?;
    file.append(&mut frames);
    file.extend(last);
    Ok(file)
}

/// A file that is encoded block by block. The header is complete only at the end, although it precedes all blocks.
pub struct FlacStream {
    config: Verified<Encoder>,
    info: StreamInfo,
    context: Context,
    buffer: FrameBuf,
    pending: Vec<i32>,
    channels: usize,
}

impl FlacStream {
    /// The bytes before the first block.
    pub const HEADER_BYTES: usize = 42;

    pub fn new(rate: u32, channels: u16) -> Result<Self, SoundError> {
        if channels == 0 || channels > MOST_CHANNELS || rate == 0 || rate > MOST_RATE {
            return Err(SoundError::Unsupported {
                codec: MediaType::Flac,
                channels,
                rate,
            });
        }
        let config = Encoder::default().into_verified().map_err(|_| FAILURE)?;
        let channels = usize::from(channels);
        let rate = usize::try_from(rate).map_err(|_| FAILURE)?;
        let mut info = StreamInfo::new(rate, channels, BITS).map_err(|_| FAILURE)?;
        info.set_block_sizes(config.block_size, config.block_size)
            .map_err(|_| FAILURE)?;
        Ok(Self {
            buffer: FrameBuf::with_size(channels, config.block_size).map_err(|_| FAILURE)?,
            context: Context::new(BITS, channels),
            config,
            info,
            pending: Vec::new(),
            channels,
        })
    }

    /// The blocks that these samples of all channels, from -1 to 1, make whole.
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, SoundError> {
        let mut sink = ByteSink::new();
        let whole = self.config.block_size * self.channels;
        for part in samples.chunks(whole) {
            self.pending
                .extend(part.iter().map(|sample| i32::from(integer(*sample))));
            if self.pending.len() >= whole {
                let rest = self.pending.split_off(whole);
                let block = std::mem::replace(&mut self.pending, rest);
                self.encode(&block, &mut sink)?;
            }
        }
        Ok(sink.into_inner())
    }

    /// The last block, and the header.
    pub fn finish(mut self) -> Result<(Vec<u8>, Vec<u8>), SoundError> {
        let mut last = ByteSink::new();
        let mut block = std::mem::take(&mut self.pending);
        if self.info.total_samples() == 0 {
            let least = LEAST_FRAMES * self.channels;
            block.resize(block.len().max(least), 0);
        }
        if !block.is_empty() {
            self.encode(&block, &mut last)?;
        }
        // The encoder counts the last block, which may be shorter than the format allows for the others.
        let size = self.config.block_size;
        self.info.set_block_sizes(size, size).map_err(|_| FAILURE)?;
        self.info.set_md5_digest(&self.context.md5_digest());
        let mut header = ByteSink::new();
        let stream = Stream::with_stream_info(self.info);
        stream.write(&mut header).map_err(|_| FAILURE)?;
        Ok((last.into_inner(), header.into_inner()))
    }

    fn encode(&mut self, block: &[i32], sink: &mut ByteSink) -> Result<(), SoundError> {
        self.buffer.fill_interleaved(block).map_err(|_| FAILURE)?;
        self.context.fill_interleaved(block).map_err(|_| FAILURE)?;
        let number = self.context.current_frame_number().unwrap_or_default();
        let frame = encode_fixed_size_frame(&self.config, &self.buffer, number, &self.info);
        let frame = frame.map_err(|_| FAILURE)?;
        self.info.update_frame_info(&frame);
        frame.write(sink).map_err(|_| FAILURE)
    }
}
