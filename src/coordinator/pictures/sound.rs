//! The sounds that come along with a request: decoded within bounds, kept in the media store as workers hear them.

use bytes::Bytes;

use super::source::Sources;
use crate::media::{Holding, Key, MediaError};
use muster_media::sound::{self, SoundError};

/// Samples a second that models hear.
const RATE: u32 = 16_000;
/// The longest sound.
const MOST_SECONDS: f64 = 4.0 * 3600.0;

/// A sound in the media store. Dropped, it is deleted.
#[derive(Debug)]
pub struct SourceSound {
    pub key: Key,
    pub seconds: f64,
    _holding: Holding,
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
    pub async fn take_sound(&self, file: Bytes, key: Key) -> Result<SourceSound, SourceSoundError> {
        let prepared = tokio::task::spawn_blocking(move || {
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
            _holding: holding,
        })
    }
}
