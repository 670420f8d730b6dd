//! Downloads and uploads by links of the media store. The link is the permission: for one object, one operation and a
//! limited time.

use std::fs::File;
use std::io::SeekFrom;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::{Body, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_range_header::{RangeUnsatisfiableError, parse_range_header};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tracing::warn;

use crate::error::ApiError;
use crate::media::{BadLink, Download, Interrupted, Key, Media, MediaError, MediaType, Unaccepted};
use crate::pictures::{self, VideoStill};
use crate::state::DoorSettings;
use muster_protocol::job::FailureKind;

use super::body::{Broken, Patience, discard};
use super::documents::{self, plain};
use super::reply::Reply;
use super::serve::PIECE;

/// Downloads an object or a range of it; players of audio and video seek by ranges.
pub async fn download(
    State(media): State<Media>,
    key: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    asked: HeaderMap,
) -> Result<Response, ApiError> {
    let key = name(key)?;
    let found = media.download(&key, &query.unwrap_or_default()).await;
    let found = found.map_err(refused)?.ok_or_else(gone)?;
    whole_or_part(found, &asked).await
}

/// An object or a range of it, for an authorised caller. A bucket's object is read in full.
pub async fn stored_object(
    media: &Media,
    key: Key,
    asked: &HeaderMap,
) -> Result<Response, ApiError> {
    let opened = media.open_object(key).await;
    match opened.map_err(|error| refused(error.into()))? {
        Some(found) => whole_or_part(found, asked).await,
        None => Err(gone()),
    }
}

/// A still image of a video; `None` if it has none.
pub async fn video_still(
    media: &Media,
    key: Key,
    wanted: VideoStill,
) -> Result<Option<Response>, ApiError> {
    let opened = media.open_object(key).await;
    let opened = opened.map_err(|error| refused(error.into()))?;
    let found = opened.ok_or_else(gone)?;
    let read = tokio::task::spawn_blocking(move || pictures::video_still(found.file, wanted)).await;
    let image = read.map_err(std::io::Error::other).and_then(|read| read);
    let Some(image) = image.map_err(unread)? else {
        return Ok(None);
    };
    let mut response = Body::from(image).into_response();
    dress(response.headers_mut(), MediaType::Webp);
    Ok(Some(response))
}

fn dress(headers: &mut HeaderMap, kind: MediaType) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private"));
    // Untrusted content: browsers must use our content type, and run nothing.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let nothing = HeaderValue::from_static("default-src 'none'; sandbox");
    headers.insert(CONTENT_SECURITY_POLICY, nothing);
}

async fn whole_or_part(found: Download, asked: &HeaderMap) -> Result<Response, ApiError> {
    let Download { file, bytes, kind } = found;
    let tagged = FileTag::of(&file).map_err(unread)?;
    if let Some(tagged) = &tagged
        && documents::is_known(asked.get_all(IF_NONE_MATCH), &tagged.tag)
    {
        let mut headers = HeaderMap::new();
        dress(&mut headers, kind);
        tagged.put(&mut headers);
        return Ok(documents::unchanged(headers));
    }
    let tag = tagged.as_ref().map(|tagged| &*tagged.tag);
    let (status, part) = match part(asked, bytes, tag) {
        WantedPart::Whole => (StatusCode::OK, None),
        WantedPart::Some(range) => (StatusCode::PARTIAL_CONTENT, Some(range)),
        WantedPart::Outside => return Ok(outside(bytes)),
    };
    let length = part
        .as_ref()
        .map_or(bytes, |range| range.end() + 1 - range.start());
    let from = part.as_ref().map_or(0, |range| *range.start());
    let body = pieces(file, from, length).await.map_err(unread)?;
    let mut response = (status, Body::from_stream(body)).into_response();
    let headers = response.headers_mut();
    dress(headers, kind);
    if let Some(tagged) = &tagged {
        tagged.put(headers);
    }
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(range) = part {
        let said = format!("bytes {}-{}/{bytes}", range.start(), range.end());
        headers.insert(CONTENT_RANGE, plain(&said));
    }
    Ok(response)
}

/// The tag of a file for caches: its size and the time of its last change.
struct FileTag {
    tag: String,
    modified: SystemTime,
}

impl FileTag {
    /// `None` for an unlinked copy of a bucket's object, which is written anew for each request.
    fn of(file: &File) -> std::io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        let modified = metadata.modified()?;
        let since = modified.duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = since.unwrap_or_default().as_nanos();
        let tag = format!("\"{:x}-{nanoseconds:x}\"", metadata.len());
        Ok((metadata.nlink() > 0).then_some(Self { tag, modified }))
    }

    fn put(&self, headers: &mut HeaderMap) {
        headers.insert(ETAG, plain(&self.tag));
        let modified = httpdate::fmt_http_date(self.modified);
        headers.insert(LAST_MODIFIED, plain(&modified));
    }
}

/// Which part of an object a client asks for.
enum WantedPart {
    Whole,
    Some(RangeInclusive<u64>),
    /// The range is outside the object.
    Outside,
}

/// Anything but a single byte range gets the whole object, as RFC 9110 allows. `If-Range` compares the object's tag
/// only.
fn part(asked: &HeaderMap, bytes: u64, tag: Option<&str>) -> WantedPart {
    let is_it = |wanted: &HeaderValue| tag.is_some_and(|tag| wanted == tag);
    let holds = asked.get(IF_RANGE).is_none_or(is_it);
    let range = asked.get(RANGE).filter(|_| holds);
    let parsed = range.and_then(|range| range.to_str().ok());
    let parsed = parsed.and_then(|range| parse_range_header(range).ok());
    match parsed {
        None => WantedPart::Whole,
        Some(ranges) => match ranges.validate(bytes).as_deref() {
            Ok([range]) => WantedPart::Some(range.clone()),
            Err(RangeUnsatisfiableError::Unsatisfiable) => WantedPart::Outside,
            Ok(_) | Err(_) => WantedPart::Whole,
        },
    }
}

fn outside(bytes: u64) -> Response {
    let message = format!("the range is outside of the object: it has {bytes} bytes");
    let error = ApiError::new(FailureKind::InvalidRequest, message).with_status(416);
    let mut response = error.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_RANGE, plain(&format!("bytes */{bytes}")));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

/// Stores an uploaded object; the link's signature is the permission.
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

/// The media type without its parameters.
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

async fn pieces(
    file: File,
    from: u64,
    length: u64,
) -> std::io::Result<impl stream::Stream<Item = std::io::Result<Bytes>>> {
    let mut file = tokio::fs::File::from_std(file);
    if from > 0 {
        file.seek(SeekFrom::Start(from)).await?;
    }
    let file = file.take(length);
    Ok(stream::unfold(file, |mut file| async {
        let mut piece = BytesMut::with_capacity(PIECE);
        match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(piece.freeze()), file)),
            Err(error) => Some((Err(error), file)),
        }
    }))
}

fn unread(error: std::io::Error) -> ApiError {
    refused(Unaccepted::Store(MediaError::from(error)))
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
