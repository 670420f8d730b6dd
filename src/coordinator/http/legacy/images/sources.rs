//! Source images of requests, and images that workers submit inline. A stored request names its images by their keys.

use crate::media::{Area, Holding, Key, MediaType};
use crate::pictures::{Role, SourceError, Sources, Unfit};
use crate::pollers::{Attempt, Made, Pollers};
use crate::sender::Sender;
use muster_protocol::job::{AccountId, RequestId};
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::words::SourceProcessing;
use muster_protocol::legacy::{Code, Refusal};

/// Stores the source images of a request and replaces them by their keys. The images are deleted when the returned
/// `Holding` is dropped.
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
    let mask = mask.map(|image| (image, Role::PolledMask));
    let extra = asked.extra_source_images.iter_mut().flatten();
    let extra = extra.filter_map(|extra| extra.image.as_mut());
    let others = mask.chain(extra.map(|image| (image, Role::Source)));
    let mut holding = sources.holding();
    for (number, (image, role)) in (0..).zip(first.chain(others)) {
        let key = Key::new(Area::Sources, id.0, number, MediaType::Webp);
        let taken = sources
            .take_in(sender, image, role, (key, &mut holding))
            .await;
        taken.map_err(|error| error.refusal())?;
        *image = key.to_string();
    }
    Ok(holding)
}

/// Checks an image to interrogate and returns its size. A copy of the image is stored while the returned `Holding`
/// lives, also if the client sent a URL, so that every worker gets the image that was checked here; `image` becomes its
/// key.
pub async fn look_at(
    (sources, sender): (&Sources, Sender),
    id: RequestId,
    image: &mut String,
) -> Result<((u32, u32), Holding), Refusal> {
    let mut holding = sources.holding();
    let key = Key::new(Area::Sources, id.0, 0, MediaType::Webp);
    let taken = sources
        .take_in(sender, image, Role::Interrogated, (key, &mut holding))
        .await;
    let taken = taken.map_err(|error: SourceError| error.refusal())?;
    *image = key.to_string();
    Ok(((taken.width, taken.height), holding))
}

/// Fails an attempt whose image is missing or unusable, so that another worker gets the job. Only if the media store is
/// unavailable may the worker submit again.
pub async fn give_back(
    pollers: &Pollers,
    owner: AccountId,
    attempt: Attempt,
    unfit: Unfit,
) -> Refusal {
    if !unfit.is_workers_fault() {
        return no_store();
    }
    // An attempt that ended meanwhile needs no fault.
    let _ = pollers.bring_alone(owner, attempt, Made::Fault).await;
    let message = format!("{unfit}; the job goes to another worker");
    Refusal::new(Code::ImageValidationFailed, message)
}

pub fn no_store() -> Refusal {
    Refusal::plain(503, "the media store is unavailable; retry later")
}
