//! The pop payload of image jobs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::rigs::door::Untold;
use super::{LINKS, key_of};
use crate::dispatch::Offer;
use crate::media::{Media, MediaError};
use crate::pollers::Given;
use muster_protocol::job::drawn::most_bytes;
use muster_protocol::legacy::image::payload::{
    GenerationPayloadImage, ModelPayloadImage, NoValidRequestFoundImage,
};
use muster_protocol::legacy::image::request::{ExtraSourceImage, GenerationInputImage};

/// How a worker downloads source images and uploads results.
pub struct Ways<'a> {
    pub media: &'a Media,
    /// Whether the worker downloads source images by links; other workers get them inline.
    pub downloads: bool,
    /// Whether the worker uploads results by links; other workers submit them inline.
    pub uploads: bool,
}

impl Ways<'_> {
    /// The payload of a pop: all jobs share the parameters and the seed of the first. `None` without jobs.
    pub async fn payload(&self, given: &Given) -> Result<Option<GenerationPayloadImage>, Untold> {
        let Some(first) = given.offers.first() else {
            return Ok(None);
        };
        let (request, seed) = asked_for(first).ok_or(Untold::Unreadable)?;
        let images = u32::try_from(given.offers.len()).unwrap_or(u32::MAX);
        let links = self.upload_links(given).await?;
        Ok(Some(GenerationPayloadImage {
            payload: ModelPayloadImage::of(&request, images, seed),
            id: Some(given.badge.id_of(first)),
            ids: given.ids(),
            ttl: first.patience.map(|patience| patience.as_secs()),
            model: given.model.as_deref().map(str::to_owned),
            source_image: self.source(request.source_image.as_deref()).await?,
            source_processing: request.source_processing,
            source_mask: self.source(request.source_mask.as_deref()).await?,
            extra_source_images: self.extra(&request).await?,
            r2_upload: links.as_ref().and_then(|links| links.first().cloned()),
            r2_uploads: links,
            ..GenerationPayloadImage::empty(NoValidRequestFoundImage::default(), Vec::new())
        }))
    }

    async fn upload_links(&self, given: &Given) -> Result<Option<Vec<String>>, MediaError> {
        if !self.uploads {
            return Ok(None);
        }
        let mut links = Vec::with_capacity(given.offers.len());
        for offer in given.offers.iter() {
            let key = key_of(given.badge.id_of(offer));
            let link = self
                .media
                .upload_link_up_to(most_bytes(&offer.job), key, LINKS);
            links.push(link.await?);
        }
        Ok(Some(links))
    }

    /// The source image, if the request has one.
    async fn source(&self, key: Option<&str>) -> Result<Option<String>, Untold> {
        let Some(key) = key else {
            return Ok(None);
        };
        let key = key.parse()?;
        if self.downloads {
            return Ok(Some(self.media.download_link(key, LINKS).await?));
        }
        let image = self.media.get(key).await?.ok_or(Untold::Unreadable)?;
        Ok(Some(STANDARD.encode(image)))
    }

    async fn extra(
        &self,
        request: &GenerationInputImage,
    ) -> Result<Option<Vec<ExtraSourceImage>>, Untold> {
        let images = request.extra_source_images();
        if images.is_empty() {
            return Ok(None);
        }
        let mut extra = Vec::with_capacity(images.len());
        for one in images {
            extra.push(ExtraSourceImage {
                strength: one.strength,
                image: self.source(one.image.as_deref()).await?,
            });
        }
        Ok(Some(extra))
    }
}

fn asked_for(offer: &Offer) -> Option<(GenerationInputImage, u32)> {
    let image = offer.job.body.image()?;
    let request = GenerationInputImage::of_neutral(image, &offer.model);
    // Seeds of this API have 32 bits.
    Some((request, image.seed? as u32))
}
