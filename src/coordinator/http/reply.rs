//! Errors and JSON as responses.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::coordinator::error::ApiError;
use crate::protocol::job::FailureKind;
use crate::protocol::openai::error;

use super::room::Room;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Text on its way.
struct Sent {
    text: Vec<u8>,
    _room: Arc<Room>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A JSON value as a response.
#[derive(Debug)]
pub struct Reply(pub Value);

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        with_status(StatusCode::OK, &self.0)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = error::body(&self.failure, self.param.as_deref());
        if let Some(console) = &self.console {
            let message = format!("{}; get a key at {console}", self.failure.message);
            body["error"]["message"] = message.into();
            body["error"]["console_url"] = (&**console).into();
        }
        let status = StatusCode::from_u16(self.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = with_status(status, &body);
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER, seconds.into());
        }
        // For doors that say it in other words.
        response.extensions_mut().insert(self);
        response
    }
}

/// What a dialect answers, whatever its type.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    json_as(status, body, Body::from)
}

/// The same for a large one, whose room is taken until the last of it is sent. Whoever puts another body in its place finds
/// the room among the extensions.
pub fn json_in(room: Room, status: StatusCode, body: &impl Serialize) -> Response {
    let room = Arc::new(room);
    let mut response = json_as(status, body, |text| body_in(room.clone(), text));
    response.extensions_mut().insert(room);
    response
}

/// Takes the room until the last of the text is sent.
pub fn body_in(room: Arc<Room>, text: Vec<u8>) -> Body {
    Body::from(Bytes::from_owner(Sent { text, _room: room }))
}

fn json_as(
    status: StatusCode,
    body: &impl Serialize,
    sent: impl FnOnce(Vec<u8>) -> Body,
) -> Response {
    match serde_json::to_vec(body) {
        Ok(text) => written(status, sent(text)),
        Err(_) => {
            let message = "the reply cannot be written";
            ApiError::new(FailureKind::Internal, message).into_response()
        }
    }
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

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::json_in;
    use crate::coordinator::http::room::Memory;
    use crate::coordinator::state::DoorSettings;

    #[test]
    fn a_large_reply_takes_its_room_until_it_is_sent() {
        let memory = Memory::new(&DoorSettings {
            largest_request: 1 << 20,
            ..DoorSettings::default()
        });
        let (much, all) = (1 << 20, 64 << 20);
        let mut room = memory.room_to_tell();
        room.cover(all).unwrap();
        let reply = json_in(room, StatusCode::OK, &"text");
        assert!(memory.room_to_tell().cover(much).is_err());
        drop(reply);
        assert!(memory.room_to_tell().cover(all).is_ok());
    }
}
