//! The middleware of every request: a request id, the client's address, CORS, `no-store` for replies to a key, and a
//! 500 for a panicked handler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::error;

use crate::accounts::{ANONYMOUS_KEY, Accounts};
use crate::error::ApiError;
use crate::passkeys::Passkeys;
use crate::state::DoorSettings;
use muster_pages::origin::{self, OriginRefusal};
use muster_protocol::anthropic::MESSAGES;
use muster_protocol::job::{FailureKind, RequestId};
use muster_protocol::ollama;

use super::address::{Address, Proxied};
use super::admitted::key_in;
use super::headers::REQUEST_ID;
use super::journal::JournaledRequest;
use super::paths::HORDE;
use super::serve::PeerAddress;
use super::{reply, unbuilt};

/// An incoming request.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub id: RequestId,
}

const ANY: HeaderValue = HeaderValue::from_static("*");
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, request-id, x-job-id, x-should-retry, x-ignored-fields, x-skipped-characters, x-unknown-words, x-voice, idempotent-replayed, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, \
     x-ratelimit-reset-requests, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, horde-node",
);
/// `*` does not cover this header.
const WITH_KEY: HeaderValue = HeaderValue::from_static("authorization, *");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
/// For replies to a key: a cache that does not know `apikey` would serve them to others.
const UNKEPT: HeaderValue = HeaderValue::from_static("private, no-store");
const ONE_DAY: HeaderValue = HeaderValue::from_static("86400");

pub async fn pass(
    State(settings): State<Arc<DoorSettings>>,
    (State(passkeys), State(accounts)): (State<Passkeys>, State<Accounts>),
    mut request: Request,
    next: Next,
) -> Response {
    let journaled = request.extensions().get::<JournaledRequest>();
    let id = journaled.and_then(|journaled| journaled.id);
    let id = id.unwrap_or_else(RequestId::random);
    let name = client_name(request.headers()).unwrap_or_else(|| own_name(id));
    let proxies = &settings.trusted_proxies;
    let address = Address::of(request.extensions(), request.headers(), proxies);
    let proxied = Proxied::of(request.uri().path(), request.headers(), &passkeys);
    let address = proxied.map_or(address, |proxied| Address(proxied.0));
    request.extensions_mut().insert(Arrival { id });
    request.extensions_mut().insert(address);
    if let Some(proxied) = proxied {
        request.extensions_mut().insert(proxied);
    }
    let is_own = is_for_one(request.headers());
    let is_anthropic = is_anthropic(request.uri().path());
    let path = request.uri().path();
    let is_ollama = is_of_ollama(path);
    if takes_no_key(&request) && is_local(&accounts, &request) {
        request.extensions_mut().insert(LocalRequest);
    }
    let mut response = if let Some(why) = refused_origin(&settings, &request) {
        unbuilt::refuse(403, why.to_owned(), request.uri().path())
    } else if is_preflight(&request) {
        preflight(request.headers())
    } else {
        run(request, next, &name).await
    };
    if is_anthropic {
        response = for_anthropic(response, &name);
    }
    if is_ollama {
        response = reply::in_ollamas_envelope(response);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, name);
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    if is_own {
        headers.entry(CACHE_CONTROL).or_insert(UNKEPT);
    }
    response
}

/// A request without a key of its own, from a program on the machine of a coordinator that serves its own user.
#[derive(Debug, Clone, Copy)]
pub struct LocalRequest;

/// Keys protect routes from pages of other origins; development mode and local requests have none.
fn refused_origin(settings: &DoorSettings, request: &Request) -> Option<&'static str> {
    let is_local = request.extensions().get::<LocalRequest>().is_some();
    if settings.development.is_none() && !is_local {
        return None;
    }
    let refusal = origin::refusal(request.method(), request.uri(), request.headers())?;
    Some(match refusal {
        OriginRefusal::Host => "without a key Host must be localhost or a loopback address",
        OriginRefusal::Page => "without a key pages of other origins are refused",
    })
}

/// Whether the request may use the coordinator's own key: it comes from this machine and through no proxy.
fn is_local(accounts: &Accounts, request: &Request) -> bool {
    let headers = request.headers();
    let peer = request.extensions().get::<PeerAddress>();
    let is_loopback = peer.is_none_or(|peer| peer.0.to_canonical().is_loopback());
    accounts.own_key().is_some() && is_loopback && !is_forwarded(headers)
}

/// Ollama's routes, and paths beside them that are no route at all.
fn is_of_ollama(path: &str) -> bool {
    const OTHERS: [&str; 2] = ["/api/", "/api/swagger.json"];
    let is_other = path.starts_with(HORDE) || OTHERS.contains(&path);
    path.starts_with("/api/") && !is_other
}

/// Whether the request comes without a key and may do so: on Ollama's routes, and on `/v1` routes with the placeholder
/// key that Ollama's clients send.
fn takes_no_key(request: &Request) -> bool {
    let path = request.uri().path();
    match key_in(request.headers()) {
        Ok(None) => ollama::ROUTES.contains(&path),
        Ok(Some(ollama::NO_KEY)) => ollama::ROUTES.contains(&path) || path.starts_with("/v1/"),
        _ => false,
    }
}

/// Whether a header names a proxy, a tunnel or a CDN.
fn is_forwarded(headers: &HeaderMap) -> bool {
    const PROXIES: [&str; 20] = [
        "cdn-loop",
        "cf-connecting-ip",
        "cf-ray",
        "client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "forwarded",
        "forwarded-for",
        "ngrok-agent-ips",
        "proxy-connection",
        "tailscale-user-login",
        "true-client-ip",
        "via",
        "x-amzn-trace-id",
        "x-azure-clientip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-proxyuser-ip",
        "x-real-ip",
    ];
    const PREFIXES: [&str; 3] = ["x-forwarded", "x-original-", "x-proxy-"];
    let is_one = |name: &HeaderName| {
        let name = name.as_str();
        PROXIES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    headers.keys().any(is_one)
}

/// With the request's id where Anthropic's clients look for it.
fn for_anthropic(response: Response, name: &HeaderValue) -> Response {
    let mut response = reply::in_anthropics_envelope(response, name);
    let headers = response.headers_mut();
    headers.insert(reply::ANTHROPIC_ID, name.clone());
    response
}

fn is_anthropic(path: &str) -> bool {
    let rest = path.strip_prefix(MESSAGES);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the request came with a key other than the anonymous one (or with contradictory keys).
fn is_for_one(headers: &HeaderMap) -> bool {
    key_in(headers).map_or(true, |key| key.is_some_and(|key| key != ANONYMOUS_KEY))
}

async fn run(request: Request, next: Next, name: &HeaderValue) -> Response {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answer.unwrap_or_else(|_| {
        let name = name.to_str().unwrap_or_default();
        error!(
            request.id = name,
            "request {name} panicked, answered with 500"
        );
        ApiError::new(
            FailureKind::Internal,
            "internal error; give the operator the x-request-id of this response",
        )
        .into_response()
    })
}

/// Sanitised for logs.
fn client_name(headers: &HeaderMap) -> Option<HeaderValue> {
    let name = headers.get(REQUEST_ID)?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    let sane = (1..=128).contains(&name.len()) && name.as_bytes().iter().all(is_plain);
    sane.then(|| name.clone())
}

fn own_name(id: RequestId) -> HeaderValue {
    HeaderValue::from_str(&id.to_string()).unwrap_or(ANY)
}

fn is_preflight(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let wanted = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(WITH_KEY));
    headers.insert(ACCESS_CONTROL_MAX_AGE, ONE_DAY);
    response
}

impl<S: Sync> FromRequestParts<S> for Arrival {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let arrival = parts.extensions.get::<Self>().copied();
        Ok(arrival.unwrap_or_else(|| Self {
            id: RequestId::random(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::is_forwarded;

    #[test]
    fn headers_of_proxies_are_known() {
        let check = |name: &'static str, expected| {
            let value = HeaderValue::from_static("1.1 proxy");
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
            assert_eq!(is_forwarded(&headers), expected, "{name}");
        };
        for name in [
            "via",
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-server",
            "x-real-ip",
            "cf-connecting-ip",
            "true-client-ip",
            "x-original-forwarded-for",
        ] {
            check(name, true);
        }
        for name in ["host", "user-agent", "x-request-id", "content-type"] {
            check(name, false);
        }
    }
}
