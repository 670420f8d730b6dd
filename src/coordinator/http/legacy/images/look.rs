//! How images are doing, and what is there of them.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::super::moderation::Door;
use super::super::progress;
use super::super::refused::Refused;
use super::super::requested::{find, unavailable};
use crate::coordinator::error::ApiError;
use crate::coordinator::http::legacy::asked::Named;
use crate::coordinator::http::reply;
use crate::coordinator::http::room::{Memory, Room};
use crate::coordinator::media::Media;
use crate::coordinator::requests::results::{Shape, image};
use crate::coordinator::requests::{Ended, Request, Requests};
use crate::coordinator::storage::Store;
use crate::coordinator::switchboard::Switchboard;
use crate::protocol::job::Kind;
use crate::protocol::legacy::Code;
use crate::protocol::legacy::image::status::{GenerationImage, RequestStatusImage};

/// `GET /api/v2/generate/check/{id}`
pub async fn check(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    door: Door,
    headers: HeaderMap,
    path: Named,
) -> Result<Response, Refused> {
    let is_kept_out = is_nameless(&headers) && door.keep_out_blocked().is_err();
    Code::Forbidden.when(is_kept_out)?;
    let request = find(&requests, &path, Kind::Image).await?;
    let progress = progress::of(&request, &board, &store).await;
    Ok(reply::json(StatusCode::OK, &progress))
}

/// Programs that do not say who they are ask on from where they are kept out.
fn is_nameless(headers: &HeaderMap) -> bool {
    const NAMELESS: &str = "unknown:0:unknown";
    headers
        .get("client-agent")
        .is_none_or(|agent| agent == NAMELESS)
}

/// `GET /api/v2/generate/status/{id}`
pub async fn status(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    (State(media), State(memory)): (State<Media>, State<Memory>),
    path: Named,
) -> Result<Response, Refused> {
    let request = find(&requests, &path, Kind::Image).await?;
    let shape = match request.wishes.links {
        true => Shape::Links,
        false => Shape::Inline,
    };
    let mut room = memory.room_to_tell();
    let generations = generations(&request, shape, &media, &mut room).await?;
    let status = look(&request, generations, &board, &store).await;
    Ok(reply::json_in(room, StatusCode::OK, &status))
}

/// `DELETE /api/v2/generate/status/{id}`: as it was just before. The images are in the reply, whatever was asked for:
/// nobody comes for them later.
pub async fn cancel(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    (State(media), State(memory)): (State<Media>, State<Memory>),
    path: Named,
) -> Result<Response, Refused> {
    let request = find(&requests, &path, Kind::Image).await?;
    let mut room = memory.room_to_tell();
    let generations = generations(&request, Shape::Inline, &media, &mut room).await?;
    let status = look(&request, generations, &board, &store).await;
    let cancelled = requests.cancel(&request).await;
    cancelled.map_err(|_| unavailable())?;
    Ok(reply::json_in(room, StatusCode::OK, &status))
}

/// A reply holds its images twice for a moment: as they are, and as they are written.
const COPIES: usize = 2;

/// What was made, as far as there is room for it beside what all others are told and ask.
async fn generations(
    request: &Request,
    shape: Shape,
    media: &Media,
    room: &mut Room,
) -> Result<Vec<GenerationImage>, ApiError> {
    let mut generations = Vec::with_capacity(request.outputs.len());
    let mut bytes = 0;
    for output in &request.outputs {
        if let Some(Ended::Made(made)) = output.ended() {
            let image = image(output, made, shape, media).await;
            bytes += image.img.len();
            room.cover(bytes * COPIES)?;
            generations.push(image);
        }
    }
    Ok(generations)
}

async fn look(
    request: &Request,
    generations: Vec<GenerationImage>,
    board: &Switchboard,
    store: &Store,
) -> RequestStatusImage {
    RequestStatusImage {
        generations,
        shared: request.wishes.shared,
        progress: progress::of(request, board, store).await,
    }
}
