//! Images that come along: those that a request begins with, and those that workers bring in their submit. A request
//! names its own by their keys from then on.

use bytes::Bytes;

use crate::coordinator::media::{Area, Holding, Key, Kind as Format, Media, Unaccepted};
use crate::coordinator::pictures::{
    Bounds, Pictures, Role, Sender, SourceError, Sources, is_address,
};
use crate::protocol::job::RequestId;
use crate::protocol::legacy::image::drawn::bytes_of;
use crate::protocol::legacy::image::request::GenerationInputImage;
use crate::protocol::legacy::words::SourceProcessing;
use crate::protocol::legacy::{Code, Refusal};

/// The most bytes of a drawn image.
const MOST_BYTES: usize = 64 << 20;

/// Takes in the images of a request and puts their keys in their place. They stay as long as what is returned.
pub async fn take(
    (sources, sender): (&Sources, Sender),
    id: RequestId,
    asked: &mut GenerationInputImage,
) -> Result<Holding, Refusal> {
    let painting = asked.source_processing == SourceProcessing::Inpainting;
    let role = match painting && asked.source_mask.is_none() {
        true => Role::UnmaskedInpainting,
        false => Role::Source,
    };
    let first = asked.source_image.iter_mut().map(|image| (image, role));
    let mask = asked.source_mask.iter_mut();
    let extra = asked.extra_source_images.iter_mut().flatten();
    let extra = extra.filter_map(|extra| extra.image.as_mut());
    let others = mask.chain(extra).map(|image| (image, Role::Source));
    let mut holding = sources.holding();
    for (number, (image, role)) in (0..).zip(first.chain(others)) {
        let key = Key::new(Area::Sources, id.0, number, Format::Webp);
        holding.add(key);
        let taken = sources.take_in(sender, image, role, key).await;
        taken.map_err(|error| error.refusal())?;
        *image = key.to_string();
    }
    Ok(holding)
}

/// The size of an image that is to be looked at. One at an address stays there; any other is stored for as long as what
/// is returned beside, and the text becomes its key.
pub async fn look_at(
    (sources, sender): (&Sources, Sender),
    id: RequestId,
    image: &mut String,
) -> Result<((u32, u32), Holding), Refusal> {
    let refusal = |error: SourceError| error.refusal();
    let mut holding = sources.holding();
    *image = image.trim().to_owned();
    if is_address(image) {
        let size = sources.measure(sender, image, Role::Interrogated).await;
        let size = size.map_err(refusal)?;
        return Ok(((size.width, size.height), holding));
    }
    let key = Key::new(Area::Sources, id.0, 0, Format::Webp);
    holding.add(key);
    let taken = sources
        .take_in(sender, image, Role::Interrogated, key)
        .await;
    let taken = taken.map_err(refusal)?;
    *image = key.to_string();
    Ok(((taken.width, taken.height), holding))
}

/// What a worker brings in its submit.
pub async fn decoded(pictures: &Pictures, text: &str, most_pixels: u64) -> Result<Bytes, Refusal> {
    let prepared = pictures
        .prepare_text(text.to_owned(), MOST_BYTES, Bounds::Pixels(most_pixels))
        .await;
    let refusal = |error| Refusal::new(Code::ImageValidationFailed, format!("{error}"));
    prepared.map(|prepared| prepared.webp).map_err(refusal)
}

/// Takes in what a worker has uploaded. Whether it did is its client's to see, what it is is not.
pub async fn uploaded(media: &Media, key: Key, most_pixels: u64) -> Result<(), Refusal> {
    let taken = media.take_in_up_to(bytes_of(most_pixels), key).await;
    taken.map(drop).map_err(|unaccepted| match unaccepted {
        Unaccepted::Store(_) => no_store(),
        unaccepted => Refusal::new(Code::BadRequest, unaccepted.to_string()),
    })
}

pub fn no_store() -> Refusal {
    Refusal::plain(503, "images cannot be kept now, try again later")
}
