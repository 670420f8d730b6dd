//! What a worker is told of the images that it is given to draw.

use super::super::rigs::door::Untold;
use super::LINKS;
use crate::coordinator::dispatch::Offer;
use crate::coordinator::media::{Area, Key, Kind as Format, Media, MediaError};
use crate::coordinator::pollers::{Given, id_of};
use crate::protocol::job::Body as JobBody;
use crate::protocol::legacy::Body;
use crate::protocol::legacy::image::payload::{
    GenerationPayloadImage, ModelPayloadImage, NoValidRequestFoundImage,
};
use crate::protocol::legacy::image::request::{ExtraSourceImage, GenerationInputImage};

/// All jobs of a pop have the parameters and the seed of the first. Nothing, if there are none.
pub async fn payload(
    given: &Given,
    media: &Media,
    uploads: bool,
) -> Result<Option<GenerationPayloadImage>, Untold> {
    let Some(first) = given.offers.first() else {
        return Ok(None);
    };
    let (request, seed) = asked_for(first).ok_or(Untold::Unreadable)?;
    let images = u32::try_from(given.offers.len()).unwrap_or(u32::MAX);
    let links = match uploads {
        true => Some(upload_links(&given.offers, media).await?),
        false => None,
    };
    Ok(Some(GenerationPayloadImage {
        payload: ModelPayloadImage::of(&request, images, seed),
        id: Some(id_of(first)),
        ids: given.ids(),
        ttl: first.patience.map(|patience| patience.as_secs()),
        model: given.model.as_deref().map(str::to_owned),
        source_image: link(request.source_image.as_deref(), media).await?,
        source_processing: request.source_processing,
        source_mask: link(request.source_mask.as_deref(), media).await?,
        extra_source_images: extra(&request, media).await?,
        r2_upload: links.as_ref().and_then(|links| links.first().cloned()),
        r2_uploads: links,
        ..GenerationPayloadImage::empty(NoValidRequestFoundImage::default(), Vec::new())
    }))
}

/// In the client's own words.
fn asked_for(offer: &Offer) -> Option<(GenerationInputImage, u32)> {
    let original = offer.job.original.as_ref()?;
    let request = GenerationInputImage::read((*original.body).clone()).ok()?;
    let JobBody::Image(image) = &offer.job.body else {
        return None;
    };
    // Seeds of this API have 32 bits.
    Some((request, image.seed? as u32))
}

async fn upload_links(offers: &[Offer], media: &Media) -> Result<Vec<String>, MediaError> {
    let mut links = Vec::with_capacity(offers.len());
    for offer in offers {
        let key = Key::new(Area::Results, offer.job.id.0, offer.attempt, Format::Webp);
        links.push(media.upload_link(key, LINKS).await?);
    }
    Ok(links)
}

/// Of an image that came with the request, if one came.
async fn link(key: Option<&str>, media: &Media) -> Result<Option<String>, Untold> {
    let Some(key) = key else {
        return Ok(None);
    };
    Ok(Some(media.download_link(key.parse()?, LINKS).await?))
}

async fn extra(
    request: &GenerationInputImage,
    media: &Media,
) -> Result<Option<Vec<ExtraSourceImage>>, Untold> {
    let images = request.extra_source_images();
    if images.is_empty() {
        return Ok(None);
    }
    let mut links = Vec::with_capacity(images.len());
    for one in images {
        let image = link(one.image.as_deref(), media).await?;
        links.push(ExtraSourceImage {
            strength: one.strength,
            image,
        });
    }
    Ok(Some(links))
}
