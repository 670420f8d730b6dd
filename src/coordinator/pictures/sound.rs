//! The sounds that come along with a request: decoded within bounds, kept in the media store as workers hear them.

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::source::{Sender, Sources};
use crate::media::{Holding, Key, MediaError};
use muster_media::sound::{self, SoundError};

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
            _holding: holding,
        })
    }
}
