//! FLAC of 16 bits: half of a WAV and nothing lost but what 16 bits cannot hold.

use flacenc::bitsink::ByteSink;
use flacenc::component::BitRepr;
use flacenc::config::Encoder;
use flacenc::encode_with_fixed_block_size;
use flacenc::error::Verify;
use flacenc::source::MemSource;

use super::{Sound, SoundError};
use crate::MediaType;

const BITS: usize = 16;
/// The format has no shorter blocks: silence fills them.
const LEAST_FRAMES: usize = 16;
const MOST_CHANNELS: u16 = 8;
/// The encoder's highest rate.
const MOST_RATE: u32 = 96_000;

pub fn to_flac(sound: &Sound) -> Result<Vec<u8>, SoundError> {
    if sound.channels() > MOST_CHANNELS || sound.rate() > MOST_RATE {
        return Err(SoundError::Unsupported {
            codec: MediaType::Flac,
            channels: sound.channels(),
            rate: sound.rate(),
        });
    }
    let failure = SoundError::Encoder(MediaType::Flac);
    let Ok(config) = Encoder::default().into_verified() else {
        return Err(failure);
    };
    let mut samples: Vec<i32> = sound.integers().map(i32::from).collect();
    let least = LEAST_FRAMES * usize::from(sound.channels());
    samples.resize(samples.len().max(least), 0);
    let rate = usize::try_from(sound.rate()).unwrap_or(usize::MAX);
    let source = MemSource::from_samples(&samples, usize::from(sound.channels()), BITS, rate);
    let Ok(mut stream) = encode_with_fixed_block_size(&config, source, config.block_size) else {
        return Err(failure);
    };
    // The encoder counts the last block, which may be shorter than the format allows for the others.
    let info = stream.stream_info_mut();
    let set = info.set_block_sizes(config.block_size, config.block_size);
    if set.is_err() {
        return Err(failure);
    }
    let mut sink = ByteSink::new();
    match stream.write(&mut sink) {
        Ok(()) => Ok(sink.into_inner()),
        Err(_) => Err(failure),
    }
}
