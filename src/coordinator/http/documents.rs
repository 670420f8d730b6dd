//! Responses for static documents: entity tags, 304 for unchanged ones, and compression by brotli or gzip.

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
use brotli::CompressorWriter;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};

use crate::clock::started_at;

/// Limit of a document's size.
const LARGEST: usize = 16 << 20;
/// Shorter bodies are not compressed.
const LEAST_PACKED: usize = 1024;
/// Cached compressed bodies per route; a body changes only with the settings.
const MOST_PACKED: usize = 8;
/// Quality from 0 to 11: higher ones take seconds for a document of a megabyte.
const BROTLI_QUALITY: u32 = 7;
const BROTLI_WINDOW_BITS: u32 = 22;
const BROTLI_BUFFER: usize = 64 << 10;

/// Compressed bodies of one route, by their tags.
#[derive(Debug, Default)]
pub struct PackedBodies(Mutex<HashMap<(Packing, String), Bytes>>);

/// A compression that clients name in `Accept-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Packing {
    Brotli,
    Gzip,
}

/// For routes whose reply is constant until a restart.
pub async fn tag(
    State(packed): State<Arc<PackedBodies>>,
    request: Request,
    next: Next,
) -> Response {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let known = request.headers().get_all(IF_NONE_MATCH);
    let known: Vec<HeaderValue> = known.iter().cloned().collect();
    let packing = Packing::wanted(request.headers());
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
    let body = match packing.filter(|_| whole.len() >= LEAST_PACKED) {
        Some(packing) => {
            let name = HeaderValue::from_static(packing.name());
            headers.insert(CONTENT_ENCODING, name);
            packed.of((packing, tag), &whole)
        }
        None => whole,
    };
    Response::from_parts(parts, body.into())
}

impl PackedBodies {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Packing, String), Bytes>> {
        self.0.lock()
    }

    fn of(&self, key: (Packing, String), whole: &[u8]) -> Bytes {
        if let Some(found) = self.lock().get(&key) {
            return found.clone();
        }
        let packed = key.0.pack(whole);
        let mut known = self.lock();
        if known.len() >= MOST_PACKED {
            known.clear();
        }
        known.insert(key, packed.clone());
        packed
    }
}

impl Packing {
    /// In the order of preference among those that a client takes.
    const ALL: [Self; 2] = [Self::Brotli, Self::Gzip];

    fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    fn wanted(headers: &HeaderMap) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|packing| takes(headers, packing.name()))
    }

    fn pack(self, whole: &[u8]) -> Bytes {
        // Writing to a vector cannot fail.
        match self {
            Self::Brotli => {
                let mut encoder = CompressorWriter::new(
                    Vec::new(),
                    BROTLI_BUFFER,
                    BROTLI_QUALITY,
                    BROTLI_WINDOW_BITS,
                );
                let _ = encoder.write_all(whole);
                encoder.into_inner().into()
            }
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                let _ = encoder.write_all(whole);
                encoder.finish().unwrap_or_default().into()
            }
        }
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

/// One tag for all encodings.
fn tag_of(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    let hex = HEXLOWER.encode(&digest[..12]);
    format!("W/\"{hex}\"")
}

fn takes(headers: &HeaderMap, encoding: &str) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter();
    let lists = lists.filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let is_refused = weight
            .trim()
            .strip_prefix("q=")
            .is_some_and(|weight| weight.trim_end_matches(['0', '.']).is_empty());
        name.trim().eq_ignore_ascii_case(encoding) && !is_refused
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

    use super::{Packing, is_known};

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
    fn compression_is_one_that_the_client_reads() {
        let check = |sent: &'static str, expected: Option<Packing>| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(sent))]);
            assert_eq!(Packing::wanted(&headers), expected, "{sent}");
        };
        let (brotli, gzip) = (Some(Packing::Brotli), Some(Packing::Gzip));
        check("gzip, deflate, br", brotli);
        check("gzip;q=1.0, br;q=0.8", brotli);
        check("br;q=0, gzip", gzip);
        check("gzip, deflate", gzip);
        check("gzip;q=0", None);
        check("gzip;q=0.0", None);
        check("deflate", None);
        check("", None);
    }
}
