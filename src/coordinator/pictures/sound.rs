//! The sounds that come along with a request, decoded within bounds and kept in the media store as workers hear them,
//! and the files of sounds that workers make.

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::source::{Sender, Sources};
use crate::media::{Holding, Key, MediaError};
use muster_media::MediaType;
use muster_media::sound::{self, OpusStream, Sound, SoundError, WavFormat};

/// Samples a second that models hear.
const RATE: u32 = 16_000;
/// The longest sound: decoded and encoded it takes 9 bytes a sample, 1 GB.
const MOST_SECONDS: f64 = 2.0 * 3600.0;
/// Sounds of all senders that are decoded at the same time.
static DECODERS: Semaphore = Semaphore::const_new(2);

/// A sound in the media store. Dropped, it is deleted.
#[derive(Debug)]
pub struct SourceSound {
    pub key: Key,
    pub seconds: f64,
    pub holding: Holding,
}

/// Why a sound is not taken.
#[derive(Debug, thiserror::Error)]
pub enum SourceSoundError {
    #[error(transparent)]
    Unfit(#[from] SoundError),
    #[error("decoding the sound failed")]
    Crashed,
    #[error(transparent)]
    Store(#[from] MediaError),
}

impl Sources {
    /// Decodes any sound file and keeps it as FLAC of one channel.
    pub async fn take_sound(
        &self,
        sender: Sender,
        file: Bytes,
        key: Key,
    ) -> Result<SourceSound, SourceSoundError> {
        let turn = self.turns.turn(sender).await;
        let decoder = DECODERS.acquire().await;
        let prepared = tokio::task::spawn_blocking(move || {
            // Held here: the work goes on where its client has gone.
            let _held = (turn, decoder);
            let heard = sound::listen(&file, RATE, MOST_SECONDS)?;
            Ok((heard.seconds(), sound::to_flac(&heard)?))
        });
        let prepared: Result<_, SoundError> =
            prepared.await.map_err(|_| SourceSoundError::Crashed)?;
        let (seconds, flac) = prepared?;
        let mut holding = self.holding();
        holding.add(key);
        self.keep_bytes(key, flac.into()).await?;
        Ok(SourceSound {
            key,
            seconds,
            holding,
        })
    }
}

/// Bits a second of spoken Opus: one channel of speech needs no more.
const SPEECH_BITS: u32 = 48_000;

/// A file of one channel, from samples of 16 bits.
pub async fn to_sound_file(
    samples: Vec<u8>,
    rate: u32,
    media_type: MediaType,
) -> Result<Vec<u8>, SoundError> {
    let encode = move || {
        let sound = Sound::new(rate, 1, levels(&samples))?;
        match media_type {
            MediaType::Wav => sound::to_wav(&sound, WavFormat::Int16),
            MediaType::Flac => sound::to_flac(&sound),
            MediaType::Opus => sound::to_opus(&sound, SPEECH_BITS),
            other => Err(SoundError::Encoder(other)),
        }
    };
    let encoded = tokio::task::spawn_blocking(encode).await;
    encoded.unwrap_or(Err(SoundError::Encoder(media_type)))
}

fn levels(samples: &[u8]) -> Vec<f32> {
    let pairs = samples.chunks_exact(2);
    let level = |pair: &[u8]| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_767.0;
    pairs.map(level).collect()
}

/// An Ogg Opus file of one channel that is encoded while its samples come, off the async threads.
pub struct SpokenOpus(Box<OpusStream>);

impl SpokenOpus {
    pub fn new(rate: u32) -> Result<Self, SoundError> {
        let stream = OpusStream::new(rate, 1, SPEECH_BITS)?;
        Ok(Self(Box::new(stream.in_small_pages())))
    }

    /// The bytes of the file that the next samples of 16 bits make whole.
    pub async fn push(mut self, samples: Vec<u8>) -> Result<(Self, Vec<u8>), SoundError> {
        let encode = move || {
            let bytes = self.0.push(&levels(&samples))?;
            Ok((self, bytes))
        };
        let encoded = tokio::task::spawn_blocking(encode).await;
        encoded.unwrap_or(Err(SoundError::Encoder(MediaType::Opus)))
    }

    /// The rest of the file, which is short.
    pub fn finish(self) -> Result<Vec<u8>, SoundError> {
        self.0.finish()
    }
}

/// The header of a WAV of one channel and 16 bits that goes on for as long as there are samples.
pub fn endless_wav(rate: u32) -> Vec<u8> {
    sound::wav_header(rate, u32::MAX)
}
