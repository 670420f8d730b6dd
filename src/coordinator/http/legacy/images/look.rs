//! How images are doing, and what is there of them.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::progress;
use super::super::refused::Refused;
use super::super::requested::{find, unavailable};
use crate::coordinator::http::reply;
use crate::coordinator::media::{Key, Media};
use crate::coordinator::requests::{Ended, Made, Output, Request, Requests};
use crate::coordinator::storage::Store;
use crate::coordinator::switchboard::Switchboard;
use crate::protocol::job::{Kind, Remark};
use crate::protocol::legacy::image::metadata::GenerationMetadataImage;
use crate::protocol::legacy::image::status::{GenerationImage, LOST, RequestStatusImage};
use crate::protocol::legacy::words::{ResultState, named};

use super::LINKS;

/// How whoever asks gets the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Links,
    Inline,
}

/// `GET /api/v2/generate/check/{id}`
pub async fn check(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    Path(id): Path<String>,
) -> Result<Response, Refused> {
    let request = find(&requests, &id, Kind::Image)?;
    let progress = progress::of(&request, &board, &store).await;
    Ok(reply::json(StatusCode::OK, &progress))
}

/// `GET /api/v2/generate/status/{id}`
pub async fn status(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    State(media): State<Media>,
    Path(id): Path<String>,
) -> Result<Response, Refused> {
    let request = find(&requests, &id, Kind::Image)?;
    let shape = match request.wishes.links {
        true => Shape::Links,
        false => Shape::Inline,
    };
    let status = look(&request, shape, &media, &board, &store).await;
    Ok(reply::json(StatusCode::OK, &status))
}

/// `DELETE /api/v2/generate/status/{id}`: as it was just before. The images are in the reply, whatever was asked for:
/// nobody comes for them later.
pub async fn cancel(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    State(media): State<Media>,
    Path(id): Path<String>,
) -> Result<Response, Refused> {
    let request = find(&requests, &id, Kind::Image)?;
    let status = look(&request, Shape::Inline, &media, &board, &store).await;
    let cancelled = requests.cancel(&request).await;
    cancelled.map_err(|_| unavailable())?;
    Ok(reply::json(StatusCode::OK, &status))
}

async fn look(
    request: &Request,
    shape: Shape,
    media: &Media,
    board: &Switchboard,
    store: &Store,
) -> RequestStatusImage {
    let mut generations = Vec::with_capacity(request.outputs.len());
    for output in &request.outputs {
        if let Some(Ended::Made(made)) = output.ended() {
            generations.push(generation(output, made, shape, media).await);
        }
    }
    RequestStatusImage {
        generations,
        shared: request.wishes.shared,
        progress: progress::of(request, board, store).await,
    }
}

async fn generation(output: &Output, made: &Made, shape: Shape, media: &Media) -> GenerationImage {
    let drawn = made.product.media();
    let seed = drawn.and_then(|drawn| drawn.seed).or(output.seed);
    let remarks = drawn.map_or(&[][..], |drawn| &drawn.remarks);
    let img = match drawn.and_then(|drawn| drawn.key.parse().ok()) {
        Some(key) => image(key, shape, media).await,
        None => None,
    };
    GenerationImage {
        img: img.unwrap_or_else(|| LOST.to_owned()),
        seed: seed.unwrap_or_default().to_string(),
        id: output.job,
        censored: made.hidden.is_some(),
        gen_metadata: remarks.iter().filter_map(remark).collect(),
        worker_id: made.worker_id,
        worker_name: made.worker.to_string(),
        model: made.model.to_string(),
        state: ResultState::Ok,
    }
}

/// Nothing, if the store has lost it.
async fn image(key: Key, shape: Shape, media: &Media) -> Option<String> {
    // What a worker on a socket has uploaded is looked at when somebody wants it.
    let _ = media.take_in(key).await;
    match shape {
        Shape::Links => media.download_link(key, LINKS).await.ok(),
        Shape::Inline => {
            let bytes = media.get(key).await.ok().flatten()?;
            Some(STANDARD.encode(bytes))
        }
    }
}

fn remark(remark: &Remark) -> Option<GenerationMetadataImage> {
    Some(GenerationMetadataImage {
        r#type: named(&remark.r#type)?,
        value: named(&remark.value)?,
        r#ref: remark.r#ref.clone(),
    })
}
