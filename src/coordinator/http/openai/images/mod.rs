//! `POST /v1/images/generations`, `edits`, `variations` and `/v1/generate`: one job for each image, for polling workers
//! and for media workers on sockets.
//!
//! | file | contents |
//! | --- | --- |
//! | `relay` | images as a body of server-sent events |

mod relay;

use axum::http::HeaderMap;
use axum::response::Response;

use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::body::MediaWhole;
use crate::http::form::read_json_or_form;
use crate::http::generation::{
    MediaDelivery, MediaEndpoint, MediaOrder, RefusedFields, read_body, with_job_ids,
};
use crate::http::room::Room;
use crate::http::text::with_ignored;
use crate::media::MediaType;
use crate::moderation::Medium;
use crate::requests::orders::{MediaNotes, MediaWork};
use muster_protocol::job::{Capabilities, Formats, Kind, SourceImage};
use muster_protocol::openai::Problem;
use muster_protocol::openai::images::reply::ImagesHead;
use muster_protocol::openai::images::{ImageDelivery, ImageDoor, ImageFormat, ImagesRequest};

use relay::ImageRelay;

/// The fields that ask for an ability of the worker.
const ABILITIES: [(Capabilities, &str); 13] = [
    (Capabilities::SOURCE_IMAGES, "image"),
    (Capabilities::MORE_SOURCES, "image"),
    (Capabilities::PAINTING, "mask"),
    (Capabilities::PAINTING_MODELS, "mask"),
    (Capabilities::LORAS, "loras"),
    (Capabilities::LORA_VERSIONS, "loras"),
    (Capabilities::INVERSIONS, "prompt"),
    (Capabilities::CONSISTENCY_SAMPLER, "sampler"),
    (Capabilities::NEWER_DRAWING, "sampler"),
    (Capabilities::KARRAS, "scheduler"),
    (Capabilities::CLIP_SKIP, "clip_skip"),
    (Capabilities::TILING, "tiling"),
    (Capabilities::TWO_PASSES, "hires_fix"),
];

impl RefusedFields for ImagesRequest {
    const KIND: Kind = Kind::Image;
    const OUTPUT: &'static str = "an image";

    fn special(&self) -> Option<&'static str> {
        let mut names = self.only_polled.iter().chain(&self.never_polled);
        names.next().copied()
    }

    fn asking_for(&self, missing: Capabilities) -> Option<&'static str> {
        let image = &self.image;
        let is_set = |name: &str| match name {
            "prompt" => true,
            "image" => image.source.is_some(),
            "mask" => image
                .source
                .as_ref()
                .is_some_and(|source| source.mask.is_some()),
            "loras" => !image.loras.is_empty(),
            "sampler" => image.sampler.is_some(),
            "clip_skip" => image.clip_skip.is_some(),
            "tiling" => image.tiling,
            "hires_fix" => image.hires_fix,
            _ => image.karras.is_some(),
        };
        let mut fields = ABILITIES.iter();
        let field = fields.find(|(ability, name)| missing.contains(*ability) && is_set(name));
        field.map(|(_, name)| *name)
    }
}

pub async fn generate(
    endpoint: Result<MediaEndpoint, ApiError>,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let read = |body| ImagesRequest::read(body, ImageDoor::Generate);
    let (request, room) = read_body(whole, read).await?;
    serve(&endpoint, request, room).await
}

/// `POST /v1/generate`
pub async fn generate_plain(
    endpoint: Result<MediaEndpoint, ApiError>,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let read = |body| ImagesRequest::read(body, ImageDoor::Plain);
    let (request, room) = read_body(whole, read).await?;
    serve(&endpoint, request, room).await
}

pub async fn edit(
    endpoint: Result<MediaEndpoint, ApiError>,
    headers: HeaderMap,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let of_json = |body| ImagesRequest::read(body, ImageDoor::Edit);
    let of_form = |form| ImagesRequest::read_form(form, ImageDoor::Edit);
    let (request, room) = read_json_or_form(&headers, whole, of_json, of_form).await?;
    serve(&endpoint, request, room).await
}

pub async fn vary(
    endpoint: Result<MediaEndpoint, ApiError>,
    headers: HeaderMap,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let of_json = |body| ImagesRequest::read(body, ImageDoor::Vary);
    let of_form = |form| ImagesRequest::read_form(form, ImageDoor::Vary);
    let (request, room) = read_json_or_form(&headers, whole, of_json, of_form).await?;
    serve(&endpoint, request, room).await
}

/// Loads source images. Without a requested size, the size is the default of the worker's model.
pub async fn order_of(
    endpoint: &MediaEndpoint,
    request: &mut ImagesRequest,
) -> Result<MediaOrder, ApiError> {
    let model = endpoint
        .model_of(request.model.as_deref(), Kind::Image)
        .await?;
    moderate(endpoint, request, &model).await?;
    let inputs = std::mem::take(&mut request.inputs);
    let sources = endpoint.take_sources(inputs).await?;
    let sources = sources.map(|taken| {
        request.image.source = Some(SourceImage {
            size: taken.source.size.filter(|_| request.image.width == 0),
            ..taken.source
        });
        taken.holding
    });
    request.image.previews = request.previews;
    Ok(MediaOrder {
        work: work_of(request, &model)?,
        tracking: std::mem::take(&mut request.tracking),
        sources,
    })
}

async fn serve(
    endpoint: &MediaEndpoint,
    mut request: ImagesRequest,
    room: Room,
) -> Result<Response, ApiError> {
    let order = order_of(endpoint, &mut request).await?;
    let unknown = endpoint.unknown_words(order.work.model(), &request.image.prompt);
    if order.tracking.is_async {
        let mut accepted = endpoint.accept(order, &request, room).await?;
        with_ignored(&mut accepted, &request.ignored);
        unknown.list(&mut accepted);
        return Ok(accepted);
    }
    let gathering = endpoint.queue(order, &request).await?;
    let ids = gathering.job_ids();
    let created = wall_clock().0 / 1000;
    let head = ImagesHead::new(created, &request.image, request.delivery, request.door);
    let answer = match request.stream {
        true => {
            let relay = ImageRelay::new(gathering, head, request.previews);
            relay.open(endpoint, room).await
        }
        false => {
            let render = |images: &[_], grid: &_| head.render(images, grid);
            endpoint
                .reply(gathering, delivery(request.delivery), render)
                .await
        }
    };
    let mut response = with_job_ids(answer, ids);
    with_ignored(&mut response, &request.ignored);
    unknown.list(&mut response);
    Ok(response)
}

/// Settings that the client left out stay unset: the worker knows the model's defaults.
fn work_of(request: &ImagesRequest, model: &str) -> Result<MediaWork, Problem> {
    let work = MediaWork::new(request.image.clone(), model, request.count);
    let formats = formats(request, work.formats())?;
    let notes = MediaNotes {
        image_type: Some(image_type(request.delivery.format)),
        ..MediaNotes::default()
    };
    Ok(work.in_formats(formats).noted(notes))
}

/// Formats that carry every field.
fn formats(request: &ImagesRequest, all: Formats) -> Result<Formats, Problem> {
    let (polled, never) = (request.only_polled.first(), request.never_polled.first());
    let without = |left: &[Formats]| {
        let kept = [Formats::NEUTRAL, Formats::LEGACY, Formats::OPENAI_CHAT].into_iter();
        let kept = kept.filter(|one| all.meets(*one) && !left.contains(one));
        kept.fold(Formats::default(), Formats::with)
    };
    let formats = match (polled, never) {
        (None, None) => all,
        (Some(_), None) => without(&[Formats::OPENAI_CHAT]),
        (None, Some(_)) => without(&[Formats::LEGACY]),
        (Some(_), Some(_)) => without(&[Formats::LEGACY, Formats::OPENAI_CHAT]),
    };
    match (polled, never) {
        (Some(polled), Some(never)) if formats == Formats::default() => {
            let message = format!("{never} has a value that no worker with {polled} supports");
            Err(Problem::unsupported(*never, message))
        }
        _ => Ok(formats),
    }
}

/// Moderates the prompt.
async fn moderate(
    endpoint: &MediaEndpoint,
    request: &mut ImagesRequest,
    model: &str,
) -> Result<(), ApiError> {
    let text = request.image.prompt_text();
    if let Some(rewritten) = endpoint.examine(&text, Medium::Image, model).await? {
        request.image.set_prompt_text(&rewritten);
    }
    Ok(())
}

pub fn delivery(wanted: ImageDelivery) -> MediaDelivery {
    MediaDelivery {
        encoding: wanted.encoding,
        image_type: Some(image_type(wanted.format)),
    }
}

fn image_type(format: ImageFormat) -> MediaType {
    match format {
        ImageFormat::Webp => MediaType::Webp,
        ImageFormat::Png => MediaType::Png,
        ImageFormat::Jpeg => MediaType::Jpeg,
    }
}
