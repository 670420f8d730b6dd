//! The body of a request, whole, within a size and a patience.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::coordinator::error::ApiError;
use crate::coordinator::state::DoorSettings;
use crate::protocol::job::FailureKind;

use super::room::{Memory, Room};

/// All of a body, and the memory it takes.
#[derive(Debug)]
pub struct Whole {
    pub bytes: Bytes,
    pub room: Room,
}

/// What is read of a body nobody wants, so that its sender gets to read the answer.
const DISCARDED_BYTES: usize = 256 << 20;
const DISCARD_PATIENCE: Duration = Duration::from_secs(5);

impl<S> FromRequest<S> for Whole
where
    S: Send + Sync,
    Arc<DoorSettings>: FromRef<S>,
    Memory: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let settings = Arc::<DoorSettings>::from_ref(state);
        let announced = announced(request.headers());
        let mut body = request.into_body();
        let mut room = Memory::from_ref(state).room();
        let read = read(&mut body, announced, &settings, &mut room).await;
        if let Err(error) = &read
            && matches!(
                error.failure.kind,
                FailureKind::TooLarge | FailureKind::QueueFull
            )
        {
            discard(body).await;
        }
        read.map(|bytes| Self { bytes, room })
    }
}

/// Reads on for a while and keeps nothing.
pub async fn discard(mut body: Body) {
    let reading = async {
        let mut left = DISCARDED_BYTES;
        while !body.is_end_stream()
            && let Some(Ok(frame)) = body.frame().await
        {
            let length = frame.data_ref().map_or(0, Bytes::len);
            left = match left.checked_sub(length) {
                Some(left) => left,
                None => return,
            };
        }
    };
    let _ = timeout(DISCARD_PATIENCE, reading).await;
}

async fn read(
    body: &mut Body,
    announced: Option<usize>,
    settings: &DoorSettings,
    room: &mut Room,
) -> Result<Bytes, ApiError> {
    let most = settings.largest_request;
    if announced.is_some_and(|length| length > most) {
        return Err(too_large(most));
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = next(body, settings.body_patience).await? {
        if frame.len() > most - whole.len() {
            return Err(too_large(most));
        }
        room.cover(whole.len() + frame.len())?;
        if whole.is_empty() && body.is_end_stream() {
            return Ok(frame);
        }
        whole.extend_from_slice(&frame);
    }
    Ok(whole.freeze())
}

async fn next(body: &mut Body, patience: Duration) -> Result<Option<Bytes>, ApiError> {
    let frame = timeout(patience, body.frame()).await.map_err(|_| {
        let waited = format!("nothing more of the body came for {} s", patience.as_secs());
        ApiError::new(FailureKind::InvalidRequest, waited).with_status(408)
    })?;
    match frame {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(_)) => Err(ApiError::new(
            FailureKind::InvalidRequest,
            "the body broke off",
        )),
    }
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body is larger than {most} bytes");
    ApiError::new(FailureKind::TooLarge, message)
}
