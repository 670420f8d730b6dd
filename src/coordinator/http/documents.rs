//! Responses for static documents: entity tags, 304 for unchanged ones, and gzip.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, LAST_MODIFIED, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};

use super::models::started_at;

/// Limit of a document's size.
const LARGEST: usize = 16 << 20;
/// Shorter bodies are not compressed.
const LEAST_PACKED: usize = 1024;
/// Cached gzip bodies per route; a body changes only with the settings.
const MOST_PACKED: usize = 4;

/// Bodies of one route in gzip, by their tags.
#[derive(Debug, Default)]
pub struct PackedBodies(Mutex<HashMap<String, Bytes>>);

/// For routes whose reply is constant until a restart.
pub async fn tag(
    State(packed): State<Arc<PackedBodies>>,
    request: Request,
    next: Next,
) -> Response {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let known = request.headers().get_all(IF_NONE_MATCH);
    let known: Vec<HeaderValue> = known.iter().cloned().collect();
    let takes_gzip = takes_gzip(request.headers());
    let response = next.run(request).await;
    let fits = |size: Option<u64>| size.is_some_and(|size| size <= LARGEST as u64);
    if !is_read || response.status() != StatusCode::OK || !fits(response.body().size_hint().exact())
    {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // A body of a known size that is in memory does not fail.
    let whole = to_bytes(body, LARGEST).await.unwrap_or_default();
    let tag = tag_of(&whole);
    let headers = &mut parts.headers;
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache"));
    headers.insert(LAST_MODIFIED, started());
    headers.insert(ETAG, plain(&tag));
    if is_known(known.iter(), &tag) {
        return unchanged(parts.headers);
    }
    headers.remove(CONTENT_LENGTH);
    let body = match takes_gzip && whole.len() >= LEAST_PACKED {
        true => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            packed.of(tag, whole)
        }
        false => whole,
    };
    Response::from_parts(parts, body.into())
}

impl PackedBodies {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Bytes>> {
        self.0.lock()
    }

    fn of(&self, tag: String, whole: Bytes) -> Bytes {
        if let Some(found) = self.lock().get(&tag) {
            return found.clone();
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to a vector cannot fail.
        let _ = encoder.write_all(&whole);
        let packed = Bytes::from(encoder.finish().unwrap_or_default());
        let mut known = self.lock();
        if known.len() >= MOST_PACKED {
            known.clear();
        }
        known.insert(tag, packed.clone());
        packed
    }
}

/// 304 with the headers that caches need.
pub fn unchanged(mut headers: HeaderMap) -> Response {
    for name in [CONTENT_LENGTH, CONTENT_TYPE] {
        headers.remove(name);
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = headers;
    response
}

/// Whether a client has the object of this tag already.
pub fn is_known<'a>(known: impl IntoIterator<Item = &'a HeaderValue>, tag: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let lists = known.into_iter().filter_map(|value| value.to_str().ok());
    lists
        .flat_map(|list| list.split(','))
        .any(|one| one.trim() == "*" || bare(one) == bare(tag))
}

/// One tag for both encodings.
fn tag_of(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    let hex = HEXLOWER.encode(&digest[..12]);
    format!("W/\"{hex}\"")
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter();
    let lists = lists.filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let is_refused = weight
            .trim()
            .strip_prefix("q=")
            .is_some_and(|weight| weight.trim_end_matches(['0', '.']).is_empty());
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// No document is older than the process.
fn started() -> HeaderValue {
    let seconds = u64::try_from(started_at()).unwrap_or_default();
    let at = UNIX_EPOCH + Duration::from_secs(seconds);
    plain(&httpdate::fmt_http_date(at))
}

/// Digits, letters and punctuation.
pub fn plain(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use axum::http::header::ACCEPT_ENCODING;
    use axum::http::{HeaderMap, HeaderValue};

    use super::{is_known, takes_gzip};

    #[test]
    fn a_tag_is_known_whatever_its_strength() {
        let check = |sent: &'static str, expected: bool| {
            let known = [HeaderValue::from_static(sent)];
            assert_eq!(is_known(&known, "W/\"a1\""), expected, "{sent}");
        };
        check("W/\"a1\"", true);
        check("\"b\", \"a1\"", true);
        check("*", true);
        check("\"a\"", false);
        check("", false);
    }

    #[test]
    fn gzip_is_for_those_who_read_it() {
        let check = |sent: &'static str, expected: bool| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(sent))]);
            assert_eq!(takes_gzip(&headers), expected, "{sent}");
        };
        check("gzip, deflate, br", true);
        check("br;q=1.0, gzip;q=0.8", true);
        check("gzip;q=0", false);
        check("gzip;q=0.0", false);
        check("br", false);
        check("", false);
    }
}
