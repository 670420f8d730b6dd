//! A stored image as the client wants it: a link or base64, and in its type of file. Stored images are webp; another
//! type is encoded from them, off the async threads.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tracing::warn;

use super::gathering::MadeImage;
use crate::error::ApiError;
use crate::media::{self, Area, Holding, Key, MediaError, MediaType};
use crate::pictures::{Results, Unfit};
use muster_protocol::job::{FailureKind, Media};
use muster_protocol::legacy::image::drawn::Drawn;
use muster_protocol::openai::images::reply::FinishedImage;
use muster_protocol::openai::images::{ImageDelivery, ImageEncoding, ImageFormat};

/// How long links are valid.
const LINKS: Duration = Duration::from_secs(3600);
/// Attempts are numbered from 1, so no worker has an upload link for this object.
const ENCODED: u32 = 0;

/// The media store and the codecs. Clones share both.
#[derive(Debug, Clone)]
pub struct ImageStore {
    media: media::Media,
    results: Results,
}

/// An image in the store, which is deleted unless a link to it is given out.
pub struct StoredImage {
    key: Key,
    drawn: Drawn,
    holding: Holding,
}

impl ImageStore {
    pub fn new(media: media::Media, results: Results) -> Self {
        Self { media, results }
    }

    pub fn media(&self) -> &media::Media {
        &self.media
    }

    /// None if the name is not one of this store.
    pub fn stored(&self, media: &Media, drawn: Drawn) -> Option<StoredImage> {
        let key: Key = media.key.parse().ok()?;
        Some(StoredImage {
            key,
            drawn,
            holding: self.media.hold(vec![key]),
        })
    }

    pub async fn deliver(
        &self,
        made: MadeImage,
        delivery: ImageDelivery,
    ) -> Result<FinishedImage, ApiError> {
        let MadeImage {
            index,
            seed,
            stored,
            ..
        } = made;
        let kind = kind(delivery.format);
        let data = match delivery.encoding {
            ImageEncoding::Url => self.link(stored, kind).await,
            ImageEncoding::Base64 => self.base64(stored, kind).await,
        };
        Ok(FinishedImage {
            index,
            data: data.map_err(|unfit| unreadable(&unfit))?,
            seed,
        })
    }

    async fn link(&self, stored: StoredImage, kind: MediaType) -> Result<String, Unfit> {
        let StoredImage {
            key,
            drawn,
            holding,
        } = stored;
        if key.kind() == kind {
            holding.leave();
            return Ok(self.media.download_link(key, LINKS).await?);
        }
        let bytes = self.results.encoded(key, drawn, kind).await?;
        let encoded = Key::new(Area::Results, key.id(), ENCODED, kind);
        self.media.put(encoded, bytes).await?;
        Ok(self.media.download_link(encoded, LINKS).await?)
    }

    async fn base64(&self, stored: StoredImage, kind: MediaType) -> Result<String, Unfit> {
        let StoredImage {
            key,
            drawn,
            holding,
        } = stored;
        let bytes = self.results.encoded(key, drawn, kind).await?;
        drop(holding);
        Ok(STANDARD.encode(bytes))
    }
}

fn kind(format: ImageFormat) -> MediaType {
    match format {
        ImageFormat::Webp => MediaType::Webp,
        ImageFormat::Png => MediaType::Png,
        ImageFormat::Jpeg => MediaType::Jpeg,
    }
}

fn unreadable(unfit: &Unfit) -> ApiError {
    match unfit {
        Unfit::Store(error) => store_failed(error),
        _ => {
            let message = "the image of the worker was lost or cannot be decoded";
            ApiError::new(FailureKind::WorkerFailed, message)
        }
    }
}

fn store_failed(error: &MediaError) -> ApiError {
    warn!("reading a finished image failed: {error}");
    let message = "reading the image from the media store failed; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
