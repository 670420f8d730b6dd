//! Digests of requests: the same path and the same body have the same digest.
//!
//! In JSON the order of keys and white space make no difference, in a form (`multipart/form-data`) the boundary; any other
//! body counts byte by byte.

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use memchr::memmem;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

pub type RequestDigest = [u8; 32];

/// Longer bodies are hashed on a blocking thread.
const AT_ONCE: usize = 256 << 10;

/// Path and boundary of a request, from its head.
#[derive(Debug, Clone)]
pub struct DigestHead {
    path: String,
    /// The boundary, where the body is a form.
    boundary: Option<String>,
}

/// An extension of a request, filled by the extractor that reads the body.
#[derive(Debug, Clone)]
pub struct DigestSlot {
    head: DigestHead,
    digest: Arc<OnceLock<RequestDigest>>,
}

impl DigestHead {
    pub fn of(request: &Request) -> Self {
        let content_type = request.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        Self {
            path: request.uri().path().to_owned(),
            boundary: content_type.and_then(|one| multer::parse_boundary(one).ok()),
        }
    }

    pub async fn digest(&self, body: &Bytes) -> RequestDigest {
        let (head, body) = (self.clone(), body.clone());
        match body.len() > AT_ONCE {
            true => {
                let hashed = spawn_blocking(move || head.digest_now(&body)).await;
                hashed.expect("hashing does not panic, and requests end before the runtime")
            }
            false => head.digest_now(&body),
        }
    }

    /// The same body means another request on another route.
    fn digest_now(&self, body: &[u8]) -> RequestDigest {
        let body = match &self.boundary {
            Some(boundary) => parts(body, boundary),
            None => json(body).unwrap_or_else(|| hash(b"bytes", &[body])),
        };
        hash(b"request", &[self.path.as_bytes(), &[0], &body])
    }
}

impl DigestSlot {
    pub fn new(head: DigestHead) -> Self {
        Self {
            head,
            digest: Arc::default(),
        }
    }

    pub async fn fill(&self, body: &Bytes) {
        let _ = self.digest.set(self.head.digest(body).await);
    }

    /// None before a handler has read the body.
    pub fn get(&self) -> Option<RequestDigest> {
        self.digest.get().copied()
    }
}

/// Hashes the parts of a form with their headers.
fn parts(body: &[u8], boundary: &str) -> RequestDigest {
    let delimiter = format!("--{boundary}");
    let mut all = Sha256::new_with_prefix(b"form");
    let mut start = 0;
    for end in memmem::find_iter(body, &delimiter).chain([body.len()]) {
        all.update(Sha256::digest(&body[start..end]));
        start = end + delimiter.len();
    }
    all.finalize().into()
}

fn json(body: &[u8]) -> Option<RequestDigest> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let digest = AnyOrder.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(digest)
}

fn hash(kind: &[u8], pieces: &[&[u8]]) -> RequestDigest {
    let mut hasher = Sha256::new_with_prefix(kind);
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize().into()
}

/// Hashes a JSON value without a tree of it in memory; the order of keys does not count.
struct AnyOrder;

impl<'de> DeserializeSeed<'de> for AnyOrder {
    type Value = RequestDigest;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<RequestDigest, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyOrder {
    type Value = RequestDigest;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<RequestDigest, E> {
        Ok(hash(b"null", &[]))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<RequestDigest, E> {
        Ok(hash(b"flag", &[&[u8::from(value)]]))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<RequestDigest, E> {
        Ok(hash(b"whole", &[&value.to_le_bytes()]))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<RequestDigest, E> {
        Ok(hash(b"below", &[&value.to_le_bytes()]))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<RequestDigest, E> {
        Ok(hash(b"float", &[&value.to_le_bytes()]))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<RequestDigest, E> {
        Ok(hash(b"text", &[value.as_bytes()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RequestDigest, A::Error> {
        let mut all = Sha256::new_with_prefix(b"list");
        while let Some(entry) = list.next_element_seed(AnyOrder)? {
            all.update(entry);
        }
        Ok(all.finalize().into())
    }

    /// A sum of the entries, which has no order.
    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<RequestDigest, A::Error> {
        let mut sums = [0_u128; 2];
        while let Some(key) = object.next_key_seed(AnyOrder)? {
            let entry = hash(b"entry", &[&key, &object.next_value_seed(AnyOrder)?]);
            for (sum, half) in sums.iter_mut().zip(entry.as_chunks().0) {
                *sum = sum.wrapping_add(u128::from_le_bytes(*half));
            }
        }
        let [first, second] = sums.map(u128::to_le_bytes);
        Ok(hash(b"object", &[&first, &second]))
    }
}

#[cfg(test)]
mod tests {
    use super::DigestHead;

    fn are_same(one: &str, other: &str) -> bool {
        let head = DigestHead {
            path: "/v1/chat/completions".to_owned(),
            boundary: None,
        };
        head.digest_now(one.as_bytes()) == head.digest_now(other.as_bytes())
    }

    #[test]
    fn the_order_of_keys_and_white_space_make_no_other_request() {
        let body = r#"{"a": [1, {"b": "x", "c": null}], "d": true, "e": -1.5}"#;
        assert!(are_same(
            body,
            r#"{"e":-1.5,"d":true,"a":[1,{"c":null,"b":"\u0078"}]}"#
        ));
        for other in [
            r#"{"a": [{"b": "x", "c": null}, 1], "d": true, "e": -1.5}"#,
            r#"{"a": [1, {"b": null, "c": "x"}], "d": true, "e": -1.5}"#,
            r#"{"a": [1, {"b": "x", "c": null}], "d": false, "e": -1.5}"#,
            r#"{"a": [1, {"b": "x", "c": null}], "d": true}"#,
            r#"{"a": [1, {"b": "x", "c": null}], "d": true, "e": "-1.5"}"#,
            r#"{"a": [1, {"b": "x", "c": null, "d": true}], "e": -1.5}"#,
        ] {
            assert!(!are_same(body, other), "{other}");
        }
        assert!(are_same("{", "{") && !are_same("{", "{ "));
    }

    #[test]
    fn a_form_with_another_boundary_is_the_same_request() {
        let digest = |boundary: &str, name: &str, file: &str, bytes: &str| {
            let body = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"prompt\"\r\n\r\na cat\r\n--{boundary}\r\n\
                 content-disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\r\n{bytes}\r\n--{boundary}--\r\n"
            );
            let head = DigestHead {
                path: "/v1/images/edits".to_owned(),
                boundary: Some(boundary.to_owned()),
            };
            head.digest_now(body.as_bytes())
        };
        let first = digest("abc", "image", "a.png", "1--2");
        assert_eq!(digest("7d1-longer", "image", "a.png", "1--2"), first);
        assert_ne!(digest("abc", "mask", "a.png", "1--2"), first);
        assert_ne!(digest("abc", "image", "b.png", "1--2"), first);
        assert_ne!(digest("abc", "image", "a.png", "1--3"), first);
    }
}
