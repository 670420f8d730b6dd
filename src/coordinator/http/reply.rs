//! Errors and JSON as responses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use serde_json::Value;

use crate::error::{ApiError, is_temporary, usual_wait};
use muster_protocol::job::{FailureKind, Retry};
use muster_protocol::openai::error;
use muster_protocol::{anthropic, ollama};

use super::room::{LetGo, Room, Transit};
use super::serve::PIECE;

/// The header in which Anthropic's clients look for the request's id.
pub const ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");

/// OpenAI's and Anthropic's clients retry 408, 409, 429 and every 5xx unless this says `false`.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const NO: HeaderValue = HeaderValue::from_static("false");

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Tells proxies to pass on each piece at once.
pub const NOT_BUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

pub const EVENTS: &str = "text/event-stream";

/// A streamed body.
pub fn streamed(body: Body, content_type: &'static str) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(NOT_BUFFERED, HeaderValue::from_static("no"));
    response
}

/// A large reply body and its memory permit. The body is sent in copied pieces, so the permit can be released when
/// others need the memory, whatever the connection still buffers.
#[derive(Debug, Clone)]
pub struct Told {
    transit: Arc<Transit>,
    length: usize,
}

/// The unsent rest of a body.
struct Pieces {
    transit: Arc<Transit>,
    left: usize,
}

/// A JSON value as a response.
#[derive(Debug)]
pub struct Reply(pub Value);

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        with_status(StatusCode::OK, &self.0)
    }
}

/// Converts an error for Anthropic's clients; other responses stay unchanged.
pub fn in_anthropics_envelope(response: Response, request_id: &HeaderValue) -> Response {
    let (parts, body) = response.into_parts();
    let Some(error) = parts.extensions.get::<ApiError>() else {
        return Response::from_parts(parts, body);
    };
    let id = request_id.to_str().unwrap_or_default();
    let body = anthropic::error_body(error_body(error), parts.status.as_u16(), id);
    Response::from_parts(parts, body.to_string().into())
}

/// Converts an error for Ollama's clients; other responses stay unchanged.
pub fn in_ollamas_envelope(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let Some(error) = parts.extensions.get::<ApiError>() else {
        return Response::from_parts(parts, body);
    };
    let body = ollama::error_body(&error_body(error));
    Response::from_parts(parts, body.to_string().into())
}

fn error_body(error: &ApiError) -> Value {
    let mut body = error::body(&error.failure, error.param.as_deref());
    if let Some(console) = &error.console {
        let message = format!("{}; get a key at {console}", error.failure.message);
        body["error"]["message"] = message.into();
        body["error"]["console_url"] = (&**console).into();
    }
    body
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = error_body(&self);
        let status = StatusCode::from_u16(self.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = with_status(status, &body);
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let is_temporary = is_temporary(status.as_u16());
        let usual = is_temporary.then(|| usual_wait(self.failure.kind));
        if let Some(wait) = self.retry_after.or(usual) {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.failure.retry == Retry::Never && is_retried_by_clients(status) {
            headers.insert(SHOULD_RETRY, NO);
        }
        // For dialects that rewrite the error.
        response.extensions_mut().insert(self);
        response
    }
}

fn is_retried_by_clients(status: StatusCode) -> bool {
    matches!(status.as_u16(), 409 | 429) || status.is_server_error()
}

/// Serializes a reply of any dialect.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    serde_json::to_vec(body).map_or_else(unwritable, |text| written(status, text.into()))
}

/// A large JSON reply, whose permit is held until the last piece is sent. Code that replaces the body finds the permit
/// in the extensions.
pub fn json_in(room: Room, status: StatusCode, body: &impl Serialize) -> Response {
    serde_json::to_vec(body).map_or_else(unwritable, |text| text_in(room, status, text))
}

/// The same for serialized JSON.
pub fn text_in(room: Room, status: StatusCode, text: Vec<u8>) -> Response {
    if room.is_empty() {
        return written(status, text.into());
    }
    let told = Told::new(room, text);
    let mut response = written(status, told.body());
    response.extensions_mut().insert(told);
    response
}

/// A piece of a streamed text, with its permit.
pub fn body_in(room: Room, text: Vec<u8>) -> Body {
    match room.is_empty() {
        true => text.into(),
        false => Told::new(room, text).body(),
    }
}

fn unwritable(_: serde_json::Error) -> Response {
    let message = "internal error: encoding the reply failed";
    ApiError::new(FailureKind::Internal, message).into_response()
}

pub fn with_status(status: StatusCode, value: &Value) -> Response {
    written(status, value.to_string().into())
}

fn written(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

impl Told {
    pub fn new(room: Room, text: Vec<u8>) -> Self {
        Self {
            length: text.len(),
            transit: Arc::new(room.carry(text)),
        }
    }

    pub fn body(&self) -> Body {
        Body::new(Pieces {
            transit: self.transit.clone(),
            left: self.length,
        })
    }

    /// The whole text and its permit, if nothing was sent yet.
    pub fn unload(&self) -> Result<(Vec<u8>, Room), LetGo> {
        self.transit.unload()
    }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = LetGo;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, LetGo>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = self.transit.give_out(PIECE);
        self.left -= piece.as_ref().map_or(self.left, Bytes::len);
        Poll::Ready(Some(piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::{Body, HttpBody};
    use axum::http::StatusCode;
    use axum::response::Response;
    use http_body_util::BodyExt;
    use tokio::time::advance;

    use super::{PIECE, json_in};
    use crate::http::room::Memory;

    const MUCH: usize = 1 << 20;
    const ALL: usize = 8 << 20;

    fn memory() -> Memory {
        Memory::new(MUCH, Duration::from_secs(5))
    }

    fn is_room(memory: &Memory, bytes: usize) -> bool {
        memory.room_to_tell().cover(bytes).is_ok()
    }

    /// A reply whose permit covers the whole memory budget.
    fn large_reply(memory: &Memory) -> Response {
        let mut room = memory.room_to_tell();
        room.cover(ALL).unwrap();
        json_in(room, StatusCode::OK, &"x".repeat(MUCH))
    }

    async fn next(body: &mut Body) -> Option<usize> {
        let frame = body.frame().await?.ok()?;
        Some(frame.into_data().unwrap().len())
    }

    #[test]
    fn a_large_reply_takes_its_room_until_it_is_sent() {
        let memory = memory();
        let reply = large_reply(&memory);
        assert!(!is_room(&memory, MUCH));
        drop(reply);
        assert!(is_room(&memory, ALL));
    }

    #[test]
    fn a_small_reply_is_never_under_way() {
        let memory = memory();
        let mut room = memory.room_to_tell();
        room.cover(5).unwrap();
        let reply = json_in(room, StatusCode::OK, &"small");
        assert_eq!(reply.into_body().size_hint().exact(), Some(7));
        assert_eq!(memory.ever_under_way(), 0);
        let _large = large_reply(&memory);
        assert_eq!(memory.ever_under_way(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_loses_its_reply_when_others_need_the_room() {
        let memory = memory();
        let mut body = large_reply(&memory).into_body();
        assert_eq!(next(&mut body).await, Some(PIECE));
        advance(Duration::from_secs(60)).await;
        assert!(is_room(&memory, MUCH));
        let lost = body.frame().await.unwrap().unwrap_err();
        assert!(lost.to_string().contains("while memory was short"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_goes_on_gets_all_of_its_reply_whoever_needs_the_room() {
        let memory = memory();
        let mut body = large_reply(&memory).into_body();
        let mut read = 0;
        while let Some(bytes) = next(&mut body).await {
            read += bytes;
            assert_eq!(is_room(&memory, MUCH), read == MUCH + 2);
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(read, MUCH + 2);
    }
}
