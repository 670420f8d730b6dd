//! The caller of a request, and the key that it sent.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use crate::accounts::Caller;
use crate::error::ApiError;
use muster_protocol::job::FailureKind;

/// The authenticated caller of a guarded route.
#[derive(Debug, Clone)]
pub struct Admitted(pub Arc<Caller>);

impl<S: Sync> FromRequestParts<S> for Admitted {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let admitted = parts.extensions.get::<Self>().cloned();
        admitted.ok_or_else(|| ApiError::new(FailureKind::AccessDenied, "Access Denied"))
    }
}

/// The request's key, unchecked.
#[derive(Debug, Clone)]
pub struct Sent(pub Option<String>);

impl<S: Sync> FromRequestParts<S> for Sent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(key_in(&parts.headers)?.map(str::to_owned)))
    }
}

pub fn key_in(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut found = None;
    for name in ["authorization", "apikey", "x-api-key"] {
        for value in headers.get_all(name) {
            // A header that is not ASCII text counts as a wrong key, not as a missing one.
            let key = bare(value.to_str().unwrap_or("?"));
            match found {
                _ if key.is_empty() => {}
                None => found = Some(key),
                Some(known) if known == key => {}
                Some(_) => {
                    return Err(ApiError::new(
                        FailureKind::InvalidRequest,
                        "the request has two different API keys: send one",
                    ));
                }
            }
        }
    }
    Ok(found)
}

/// Without `Bearer` before it, which some clients leave out.
fn bare(value: &str) -> &str {
    const SCHEME: &str = "bearer";
    let value = value.trim();
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(SCHEME) => key.trim(),
        _ if value.eq_ignore_ascii_case(SCHEME) => "",
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::key_in;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_key_comes_in_any_of_three_headers() {
        for pair in [
            ("authorization", "Bearer abc"),
            ("authorization", "bearer  abc "),
            ("authorization", "abc"),
            ("apikey", "abc"),
            ("x-api-key", "abc"),
        ] {
            assert_eq!(key_in(&headers(&[pair])).unwrap(), Some("abc"), "{pair:?}");
        }
        assert_eq!(key_in(&headers(&[])).unwrap(), None);
        assert_eq!(
            key_in(&headers(&[("authorization", "Bearer ")])).unwrap(),
            None
        );
    }

    #[test]
    fn the_same_key_twice_is_one_and_two_keys_are_refused() {
        let twice = headers(&[("authorization", "Bearer abc"), ("apikey", "abc")]);
        assert_eq!(key_in(&twice).unwrap(), Some("abc"));
        let two = headers(&[("authorization", "Bearer abc"), ("x-api-key", "abd")]);
        assert_eq!(key_in(&two).unwrap_err().status(), 400);
    }
}
