//! What a worker is told of the images that it is given to draw.

use super::LINKS;
use crate::coordinator::dispatch::Offer;
use crate::coordinator::media::{Area, Key, Kind as Format, Media};
use crate::coordinator::pollers::{Given, id_of};
use crate::protocol::job::Body as JobBody;
use crate::protocol::legacy::Body;
use crate::protocol::legacy::image::payload::{
    GenerationPayloadImage, ModelPayloadImage, NoValidRequestFoundImage,
};
use crate::protocol::legacy::image::request::{ExtraSourceImage, GenerationInputImage};
use crate::protocol::legacy::pop::ResponseModelMessagePop;

/// All jobs of a pop have the parameters and the seed of the first. Nothing, if the media store does not work.
pub async fn payload(
    given: &Given,
    media: &Media,
    uploads: bool,
    told: Vec<ResponseModelMessagePop>,
) -> Option<GenerationPayloadImage> {
    let first = given.offers.first()?;
    let (request, seed) = asked_for(first)?;
    let images = u32::try_from(given.offers.len()).unwrap_or(u32::MAX);
    let links = match uploads {
        true => Some(upload_links(&given.offers, media).await?),
        false => None,
    };
    let nothing = GenerationPayloadImage::empty(NoValidRequestFoundImage::default(), told);
    Some(GenerationPayloadImage {
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
        ..nothing
    })
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

async fn upload_links(offers: &[Offer], media: &Media) -> Option<Vec<String>> {
    let mut links = Vec::with_capacity(offers.len());
    for offer in offers {
        let key = Key::new(Area::Results, offer.job.id.0, offer.attempt, Format::Webp);
        links.push(media.upload_link(key, LINKS).await.ok()?);
    }
    Some(links)
}

/// Of an image that came with the request, if one came.
async fn link(key: Option<&str>, media: &Media) -> Option<Option<String>> {
    let Some(key) = key else {
        return Some(None);
    };
    let link = media.download_link(key.parse().ok()?, LINKS).await;
    link.ok().map(Some)
}

async fn extra(
    request: &GenerationInputImage,
    media: &Media,
) -> Option<Option<Vec<ExtraSourceImage>>> {
    let images = request.extra_source_images();
    if images.is_empty() {
        return Some(None);
    }
    let mut links = Vec::with_capacity(images.len());
    for one in images {
        let image = link(one.image.as_deref(), media).await?;
        links.push(ExtraSourceImage {
            strength: one.strength,
            image,
        });
    }
    Some(Some(links))
}
