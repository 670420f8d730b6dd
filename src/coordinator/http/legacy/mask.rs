//! `X-Fields`: the fields of a reply that the client wants. Applies to successful replies, not to errors.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::HeaderName;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;

use crate::error::ApiError;
use crate::http::horde_refusal::Refused;
use crate::http::reply::Told;
use crate::http::room::Room;
use muster_protocol::job::FailureKind;
use muster_protocol::legacy::fields::Mask;

const X_FIELDS: HeaderName = HeaderName::from_static("x-fields");
/// Twenty images in base64 are less.
const LONGEST_REPLY: usize = 256 << 20;

/// Middleware of every route of this API.
pub async fn mask(request: Request, next: Next) -> Response {
    let header = request.headers().get(X_FIELDS);
    let mask = header.map(|value| Mask::parse(value.to_str().unwrap_or("\u{fffd}")));
    match mask {
        None | Some(Ok(None)) => next.run(request).await,
        Some(Ok(Some(mask))) => masked(next.run(request).await, &mask).await,
        Some(Err(refusal)) => Refused::Here(refusal).into_response(),
    }
}

/// Server-sent events are excluded: buffering the body would wait for the end of the stream.
fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

async fn masked(response: Response, mask: &Mask) -> Response {
    if !response.status().is_success() || is_stream(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let told = parts.extensions.remove::<Told>();
    let Some((bytes, room)) = whole(told, body).await else {
        let message = "internal error: applying the X-Fields mask failed";
        return ApiError::new(FailureKind::Internal, message).into_response();
    };
    let body = match serde_json::from_slice::<Value>(&bytes) {
        Ok(value) => {
            // Memory was counted for two copies, so one is dropped before the next.
            drop(bytes);
            let text = mask.apply(value).to_string();
            match room {
                Some(room) => Told::new(room, text.into()).body(),
                None => Body::from(text),
            }
        }
        // No JSON to mask, such as an empty body.
        Err(_) => Body::from(bytes),
    };
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

/// The whole body, with its memory permit if it is large.
async fn whole(told: Option<Told>, body: Body) -> Option<(Bytes, Option<Room>)> {
    match told {
        Some(told) => {
            let (text, room) = told.unload().ok()?;
            Some((text.into(), Some(room)))
        }
        None => Some((to_bytes(body, LONGEST_REPLY).await.ok()?, None)),
    }
}
