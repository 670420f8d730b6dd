//! Source audio, decoded within limits and stored in the form that workers read, and audio files of workers.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tracing::warn;

use super::budget::MOST_SAMPLES;
use super::source::Sources;
use crate::media::{Holding, Key, MediaError, QuotaExceeded};
use crate::sender::Sender;
use muster_media::MediaType;
use muster_media::sound::{self, Mp3Stream, OpusStream, Sound, SoundError, WavFormat};
use muster_reader::{ReadError, SoundLimits, SpeechRule};

/// Sample rate of transcription models.
const RATE: u32 = 16_000;
/// Limits of length and size.
const LIMITS: SoundLimits = SoundLimits {
    seconds: 2.0 * 3600.0,
    samples: MOST_SAMPLES,
};
/// Reader processes for audio of all senders. Each sender has one at a time.
static DECODERS: Semaphore = Semaphore::const_new(8);

/// Audio in the media store, deleted on drop.
#[derive(Debug)]
pub struct SourceSound {
    pub key: Key,
    pub seconds: f64,
    /// Length of the file.
    pub whole_seconds: f64,
    /// Where only speech was stored: from and to, in milliseconds of the file.
    pub speech: Option<Vec<(u64, u64)>>,
    pub holding: Holding,
}

/// Why audio is refused.
#[derive(Debug, thiserror::Error)]
pub enum SourceSoundError {
    #[error("{0}")]
    Unfit(String),
    #[error(
        "the account has sent many hours of sound in a short time; retry in {} s",
        .0.as_secs()
    )]
    Budget(Duration),
    #[error("{0}")]
    Reader(String),
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    #[error(transparent)]
    Store(#[from] MediaError),
}

impl Sources {
    /// Decodes an audio file in a separate process and stores it, or its speech, as mono FLAC. Dropping the future ends
    /// the process.
    pub async fn take_sound(
        &self,
        sender: Sender,
        file: Bytes,
        key: Key,
        speech: Option<SpeechRule>,
    ) -> Result<SourceSound, SourceSoundError> {
        self.quota.check(sender)?;
        let turn = self.sound_turns.turn(sender).await;
        let decoder = DECODERS.acquire().await;
        // Waiting for a decoder is not charged.
        let spending = self.sample_budget.begin(sender, Instant::now());
        let spending = spending.map_err(SourceSoundError::Budget)?;
        let sound = self.reader.flac(file, RATE, LIMITS, speech).await;
        drop((turn, decoder));
        let sound = sound.map_err(|error| match error {
            ReadError::Refused(why) => SourceSoundError::Unfit(why),
            ReadError::Ended(death) => {
                warn!("a sound ended its reader process, it is refused: {death}");
                SourceSoundError::Unfit(ReadError::Ended(death).to_string())
            }
            ReadError::Start(_) => SourceSoundError::Reader(error.to_string()),
        })?;
        spending.decoded(sound.found.samples());
        let whole_seconds = sound.found.seconds();
        let kept = |samples: u64| samples as f64 / f64::from(RATE);
        let speech = sound.speech;
        let seconds = speech
            .as_ref()
            .map_or(whole_seconds, |speech| kept(speech.kept));
        let millis = |samples: u64| samples * 1000 / u64::from(RATE);
        let speech = speech.map(|speech| {
            let spans = speech.spans.into_iter();
            spans.map(|(from, to)| (millis(from), millis(to))).collect()
        });
        let mut holding = self.holding();
        let bytes = sound.bytes.into();
        self.keep_bytes::<SourceSoundError>(sender, bytes, (key, &mut holding))
            .await?;
        Ok(SourceSound {
            key,
            seconds,
            whole_seconds,
            speech,
            holding,
        })
    }
}

/// Lower bound of a file's length: from its header, or from its bytes at the highest usual rate.
pub fn least_seconds(file: &[u8]) -> f64 {
    const BYTES_A_SECOND: f64 = 40_000.0;
    let header = MediaType::sniff(file).and_then(|kind| sound::inspect(file, kind).ok());
    match header {
        Some(header) => header.seconds().min(LIMITS.seconds),
        None => (file.len() as f64 / BYTES_A_SECOND).clamp(1.0, LIMITS.seconds),
    }
}

/// Bit rate of Opus speech, which has one channel.
const OPUS_BITS: u32 = 48_000;
/// The same of MP3.
const MP3_BITS: u32 = 64_000;

/// A mono file from 16-bit samples.
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
            MediaType::Opus => sound::to_opus(&sound, OPUS_BITS),
            MediaType::Mp3 => sound::to_mp3(&sound, MP3_BITS),
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

/// A compressed mono file, encoded on a blocking thread while its samples arrive.
pub enum SpokenFile {
    Opus(Box<OpusStream>),
    Mp3(Box<Mp3Stream>),
}

impl SpokenFile {
    pub fn opus(rate: u32) -> Result<Self, SoundError> {
        let stream = OpusStream::new(rate, 1, OPUS_BITS)?;
        Ok(Self::Opus(Box::new(stream.in_small_pages())))
    }

    pub fn mp3(rate: u32) -> Result<Self, SoundError> {
        let stream = Mp3Stream::new(rate, 1, MP3_BITS)?;
        Ok(Self::Mp3(Box::new(stream)))
    }

    /// Returns the bytes of the file completed by these 16-bit samples.
    pub async fn push(mut self, samples: Vec<u8>) -> Result<(Self, Vec<u8>), SoundError> {
        let media_type = match &self {
            Self::Opus(_) => MediaType::Opus,
            Self::Mp3(_) => MediaType::Mp3,
        };
        let encode = move || {
            let levels = levels(&samples);
            let bytes = match &mut self {
                Self::Opus(stream) => stream.push(&levels)?,
                Self::Mp3(stream) => stream.push(&levels)?,
            };
            Ok((self, bytes))
        };
        let encoded = tokio::task::spawn_blocking(encode).await;
        encoded.unwrap_or(Err(SoundError::Encoder(media_type)))
    }

    /// The rest of the file, which is short.
    pub fn finish(self) -> Result<Vec<u8>, SoundError> {
        match self {
            Self::Opus(stream) => stream.finish(),
            Self::Mp3(stream) => stream.finish(),
        }
    }
}

/// A WAV header of one channel and 16 bits, for a stream of unknown length.
pub fn endless_wav(rate: u32) -> Vec<u8> {
    sound::wav_header(rate, u32::MAX)
}
