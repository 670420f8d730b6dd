//! What links of the media store lead to. The link is the key: it names one object, one use and a time.

use std::fs::File;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tracing::warn;

use crate::error::ApiError;
use crate::media::{BadLink, Download, Interrupted, Media, Unaccepted};
use crate::state::DoorSettings;
use muster_protocol::job::FailureKind;

use super::body::{Broken, Patience, discard};
use super::reply::Reply;
use super::serve::PIECE;

/// An object, for whoever has the link to it.
pub async fn download(
    State(media): State<Media>,
    key: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let key = name(key)?;
    let found = media.download(&key, &query.unwrap_or_default()).await;
    let Download { file, bytes, kind } = found.map_err(refused)?.ok_or_else(gone)?;
    let mut response = Body::from_stream(pieces(file)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind.content_type()));
    headers.insert(CONTENT_LENGTH, bytes.into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private"));
    // Strangers made it: a browser shows it as what we say it is, and does nothing else with it.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let nothing = HeaderValue::from_static("default-src 'none'; sandbox");
    headers.insert(CONTENT_SECURITY_POLICY, nothing);
    Ok(response)
}

/// Takes an object from whoever has a link for it.
pub async fn upload(
    State(media): State<Media>,
    State(settings): State<Arc<DoorSettings>>,
    key: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Reply, ApiError> {
    let key = name(key)?;
    let (parts, mut body) = request.into_parts();
    let patience = Patience::new(settings.body_patience);
    let sent = stream::unfold((&mut body, patience), |(body, mut patience)| async move {
        let frame = next(body, &mut patience).await?;
        Some((frame, (body, patience)))
    });
    let query = query.unwrap_or_default();
    let kind = content_type(&parts.headers);
    let taken = media.upload(&key, &query, kind, Box::pin(sent)).await;
    if taken.is_err() {
        discard(body).await;
    }
    let bytes = taken.map_err(refused)?;
    Ok(Reply(json!({"bytes": bytes})))
}

fn name(key: Result<Path<String>, PathRejection>) -> Result<String, ApiError> {
    let key = key.map_err(|_| refused(BadLink::NotOurs.into()))?;
    Ok(key.0)
}

/// Without what may follow a semicolon.
fn content_type(headers: &HeaderMap) -> Option<&str> {
    let named = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("?");
    named.split(';').next().map(str::trim)
}

async fn next(body: &mut Body, patience: &mut Patience) -> Option<Result<Bytes, Interrupted>> {
    if body.is_end_stream() {
        return None;
    }
    patience
        .next(body)
        .await
        .map_err(Interrupted::from)
        .transpose()
}

impl From<Broken> for Interrupted {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Off => Self::BrokeOff,
            Broken::Silence(_) => Self::Silence,
            Broken::Slow => Self::Slow,
        }
    }
}

fn pieces(file: File) -> impl stream::Stream<Item = std::io::Result<Bytes>> {
    let file = tokio::fs::File::from_std(file);
    stream::unfold(file, |mut file| async {
        let mut piece = BytesMut::with_capacity(PIECE);
        match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(piece.freeze()), file)),
            Err(error) => Some((Err(error), file)),
        }
    })
}

fn refused(why: Unaccepted) -> ApiError {
    let kind = match why {
        Unaccepted::Link(_) => FailureKind::AccessDenied,
        Unaccepted::TooLarge { .. } => FailureKind::TooLarge,
        Unaccepted::Store(_) => FailureKind::StoreUnavailable,
        _ => FailureKind::InvalidRequest,
    };
    let message = match &why {
        Unaccepted::Store(error) => {
            warn!("media transfer failed: {error}");
            "the media store is unavailable; retry later".to_owned()
        }
        why => why.to_string(),
    };
    let error = ApiError::new(kind, message);
    match why {
        Unaccepted::Used => error.with_status(409),
        Unaccepted::OtherType { .. } => error.with_status(415),
        Unaccepted::Interrupted(Interrupted::Silence | Interrupted::Slow) => error.with_status(408),
        _ => error,
    }
}

fn gone() -> ApiError {
    let message = "no media at this link: it has expired or is not uploaded yet";
    ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
}
