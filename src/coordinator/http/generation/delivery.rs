//! Delivery of a stored output: a link or base64, in the requested file type. Stored images are WebP and converted off
//! the async threads; audio and video are delivered as stored.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tracing::warn;

use super::gathering::MadeMedia;
use crate::error::ApiError;
use crate::media::{self, Area, Holding, Key, MediaError, MediaType};
use crate::pictures::{Results, Unfit};
use muster_protocol::job::drawn::Drawn;
use muster_protocol::job::{FailureKind, JobId, Media};
use muster_protocol::openai::media::{FinishedMedia, MediaEncoding};

/// How long links are valid.
const LINKS: Duration = Duration::from_secs(3600);
/// Attempts are numbered from 1, so no worker has an upload link for this number.
const ENCODED: u32 = 0;

/// How the client gets the outputs of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MediaDelivery {
    pub encoding: MediaEncoding,
    /// The type of an image; none for outputs that stay as they came.
    pub image_type: Option<MediaType>,
}

/// The media store and the codecs. Clones share both.
#[derive(Debug, Clone)]
pub struct ResultStore {
    media: media::Media,
    results: Results,
}

/// A stored output, deleted on drop unless a link to it was given out.
pub struct StoredResult {
    key: Key,
    drawn: Drawn,
    holding: Holding,
}

impl ResultStore {
    pub fn new(media: media::Media, results: Results) -> Self {
        Self { media, results }
    }

    /// None if the name is not one of this store.
    pub fn stored(&self, media: &Media, drawn: Drawn) -> Option<StoredResult> {
        let key: Key = media.key.parse().ok()?;
        Some(StoredResult {
            key,
            drawn,
            holding: self.media.hold(vec![key]),
        })
    }

    pub async fn deliver(
        &self,
        made: MadeMedia,
        delivery: MediaDelivery,
    ) -> Result<FinishedMedia, ApiError> {
        let MadeMedia {
            index,
            seed,
            size,
            stored,
            ..
        } = made;
        let kind = delivery.image_type.unwrap_or(stored.key.kind());
        let (url, base64) = self
            .encoded(stored, kind, delivery.encoding)
            .await
            .map_err(|unfit| unreadable(&unfit))?;
        Ok(FinishedMedia {
            index,
            url,
            base64,
            seed,
            size,
        })
    }

    /// The link, which keeps the output in the store, and the base64.
    async fn encoded(
        &self,
        stored: StoredResult,
        kind: MediaType,
        encoding: MediaEncoding,
    ) -> Result<(Option<String>, Option<String>), Unfit> {
        let StoredResult {
            key,
            drawn,
            holding,
        } = stored;
        let is_kept = encoding.has_url() && key.kind() == kind;
        let bytes = match is_kept && !encoding.has_base64() {
            true => None,
            false => Some(self.results.encoded(key, drawn, kind).await?),
        };
        let base64 = bytes.as_ref().filter(|_| encoding.has_base64());
        let base64 = base64.map(|bytes| STANDARD.encode(bytes));
        if !encoding.has_url() {
            return Ok((None, base64));
        }
        let shown = match bytes.filter(|_| !is_kept) {
            Some(bytes) => {
                let encoded = Key::new(Area::Results, key.id(), ENCODED, kind);
                self.media.put(encoded, bytes).await?;
                encoded
            }
            None => {
                holding.leave();
                key
            }
        };
        Ok((Some(self.media.download_link(shown, LINKS).await?), base64))
    }

    /// A link to an output that stays where it is.
    pub async fn kept_link(
        &self,
        key: Key,
        drawn: Drawn,
        kind: MediaType,
    ) -> Result<String, Unfit> {
        if key.kind() == kind {
            return Ok(self.media.download_link(key, LINKS).await?);
        }
        let encoded = Key::new(Area::Results, key.id(), ENCODED, kind);
        if self.media.get(encoded).await?.is_none() {
            let bytes = self.results.encoded(key, drawn, kind).await?;
            self.media.put(encoded, bytes).await?;
        }
        Ok(self.media.download_link(encoded, LINKS).await?)
    }

    /// A text that is made of an output, and a link to it.
    pub async fn document_link(
        &self,
        job: JobId,
        kind: MediaType,
        text: String,
    ) -> Result<(Key, String), Unfit> {
        let key = Key::new(Area::Results, job.0, ENCODED, kind);
        if self.media.get(key).await?.is_none() {
            self.media.put(key, text.into()).await?;
        }
        Ok((key, self.media.download_link(key, LINKS).await?))
    }
}

pub fn unreadable(unfit: &Unfit) -> ApiError {
    match unfit {
        Unfit::Store(error) => store_failed(error),
        _ => {
            let message = "the output of the worker was lost or cannot be decoded";
            ApiError::new(FailureKind::WorkerFailed, message)
        }
    }
}

fn store_failed(error: &MediaError) -> ApiError {
    warn!("reading a finished output failed: {error}");
    let message = "reading the output from the media store failed; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
