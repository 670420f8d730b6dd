//! The upgrade of a worker's connection to a WebSocket. The worker's first frame carries its key, so this route needs
//! none.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tracing::debug;

use super::address::LetIn;
use crate::error::ApiError;
use crate::moderation::Moderation;
use crate::workers::Workers;
use muster_process::tasks::Tasks;
use muster_protocol::job::FailureKind;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

pub async fn upgrade(
    State(workers): State<Workers>,
    State(moderation): State<Moderation>,
    State(tasks): State<Tasks>,
    LetIn(address): LetIn,
    mut request: Request,
) -> Response {
    let accept = match accept_key(&request) {
        Ok(accept) => accept,
        Err(error) => return refuse(error),
    };
    let upgraded = request.extensions_mut().remove::<OnUpgrade>();
    let Some(upgraded) = upgraded else {
        return refuse(wanted("an HTTP/1.1 connection that can be upgraded"));
    };
    tasks.start(async move {
        match upgraded.await {
            Ok(stream) => {
                let met = |name: &Arc<str>| moderation.whereabouts().note(name, address);
                let stream = TokioIo::new(stream);
                let serving = workers.serve_met(stream, Vec::new(), Some(address), met);
                serving.await;
            }
            Err(error) => debug!("upgrading a worker connection failed: {error}"),
        }
    });
    switching(&accept)
}

/// The `Sec-WebSocket-Accept` value for the client's key.
fn accept_key(request: &Request) -> Result<String, ApiError> {
    let headers = request.headers();
    if !names(headers, CONNECTION, "upgrade") || !names(headers, UPGRADE, "websocket") {
        return Err(wanted("Connection: Upgrade and Upgrade: websocket"));
    }
    if headers
        .get(SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != "13")
    {
        return Err(wanted("Sec-WebSocket-Version: 13"));
    }
    let key = headers
        .get(SEC_WEBSOCKET_KEY)
        .map(HeaderValue::as_bytes)
        .filter(|key| BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16))
        .ok_or_else(|| wanted("a Sec-WebSocket-Key of 16 bytes"))?;
    Ok(derive_accept_key(key))
}

/// Whether a header contains this word.
fn names(headers: &HeaderMap, header: HeaderName, word: &str) -> bool {
    let values = headers.get_all(header).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|found| found.trim().eq_ignore_ascii_case(word))
}

fn wanted(what: &str) -> ApiError {
    let message = format!("this is the WebSocket endpoint of workers: it requires {what}");
    ApiError::new(FailureKind::InvalidRequest, message).with_status(426)
}

fn refuse(error: ApiError) -> Response {
    let mut response = error.into_response();
    let headers = response.headers_mut();
    headers.insert(UPGRADE, WEBSOCKET);
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

fn switching(accept: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, WEBSOCKET);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}
