//! Status and images of an image request.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::super::moderation::Door;
use super::super::progress;
use super::super::requested::{COPIES, find, made, unavailable};
use crate::error::ApiError;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::http::room::{Memory, Room};
use crate::media::Media;
use crate::requests::results::{Shape, image};
use crate::requests::{Made, Output, Requests};
use crate::storage::Store;
use crate::switchboard::Switchboard;
use muster_protocol::job::Kind;
use muster_protocol::legacy::Code;
use muster_protocol::legacy::image::status::{GenerationImage, RequestStatusImage};

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

/// Programs without `Client-Agent` keep polling from blocked addresses, so they are refused there.
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
    // First: a request that is done has all of its images below.
    let progress = progress::of(&request, &board, &store).await;
    let mut telling = Telling::new(shape, &memory);
    let generations = telling.generations(made(&request), &media).await;
    if let Some(full) = telling.full {
        return Err(full.into());
    }
    let status = RequestStatusImage {
        generations,
        shared: request.wishes.shared,
        progress,
    };
    Ok(reply::json_in(telling.room, StatusCode::OK, &status))
}

/// `DELETE /api/v2/generate/status/{id}`: cancels, and returns the status before that. The reply holds the images
/// themselves whatever the request's `r2` says, since the client cannot fetch them later; if the memory budget is
/// exhausted, links replace them.
pub async fn cancel(
    State(requests): State<Requests>,
    State(board): State<Switchboard>,
    State(store): State<Store>,
    (State(media), State(memory)): (State<Media>, State<Memory>),
    path: Named,
) -> Result<Response, Refused> {
    let request = find(&requests, &path, Kind::Image).await?;
    let progress = progress::of(&request, &board, &store).await;
    let made = made(&request);
    let cancelled = requests.cancel(&request).await;
    cancelled.map_err(|_| unavailable())?;
    let mut telling = Telling::new(Shape::Inline, &memory);
    let status = RequestStatusImage {
        generations: telling.generations(made, &media).await,
        shared: request.wishes.shared,
        progress,
    };
    Ok(reply::json_in(telling.room, StatusCode::OK, &status))
}

/// A reply with inline images.
struct Telling {
    shape: Shape,
    room: Room,
    bytes: usize,
    /// Why an image is a link although inline was requested.
    full: Option<ApiError>,
}

impl Telling {
    fn new(shape: Shape, memory: &Memory) -> Self {
        Self {
            shape,
            room: memory.room_to_tell(),
            bytes: 0,
            full: None,
        }
    }

    async fn generations(
        &mut self,
        made: Vec<(&Output, &Made)>,
        media: &Media,
    ) -> Vec<GenerationImage> {
        let mut generations = Vec::with_capacity(made.len());
        for (output, made) in made {
            generations.push(image(output, made, |stored| self.shape(stored), media).await);
        }
        generations
    }

    /// Inline, if the memory budget allows that many bytes in base64; a link otherwise.
    fn shape(&mut self, stored: u64) -> Shape {
        if self.shape == Shape::Links {
            return Shape::Links;
        }
        let told = usize::try_from(stored.div_ceil(3) * 4).unwrap_or(usize::MAX);
        let bytes = self.bytes.saturating_add(told.saturating_mul(COPIES));
        match self.room.cover(bytes) {
            Ok(()) => {
                self.bytes = bytes;
                Shape::Inline
            }
            Err(full) => {
                self.full = Some(full);
                Shape::Links
            }
        }
    }
}
