//! Requests accepted by the owner's page: from its own pages, by a name of this machine, with its token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{PageError, PageSources};
use muster_pages::origin::{OriginRefusal, refusal};

/// The page itself holds no secret: a link opens it, and its script sends the token.
const OPEN_PATH: &str = "/";

pub async fn guard(
    State(sources): State<Arc<PageSources>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match objection(&sources, &request) {
        Some(refused) => refused.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    let text = HeaderValue::from_static;
    headers.insert(CACHE_CONTROL, text("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, text("nosniff"));
    headers.insert(X_FRAME_OPTIONS, text("DENY"));
    headers.insert(REFERRER_POLICY, text("no-referrer"));
    if response.status() == StatusCode::UNAUTHORIZED {
        let headers = response.headers_mut();
        headers.insert(WWW_AUTHENTICATE, text("Bearer"));
    }
    response
}

fn objection(sources: &PageSources, request: &Request) -> Option<PageError> {
    let origin = refusal(request.method(), request.uri(), request.headers());
    if let Some(refused) = origin {
        let text = match refused {
            OriginRefusal::Host => "Host must be localhost or a loopback address",
            OriginRefusal::Page => "requests of other pages are refused",
        };
        return Some(PageError::new(StatusCode::FORBIDDEN, text));
    }
    let has_token = token_of(request.headers()).is_some_and(|given| sources.token.is(given));
    if has_token || request.uri().path() == OPEN_PATH {
        return None;
    }
    let text = "the token is missing or wrong; `worker page` prints the link with it";
    Some(PageError::new(StatusCode::UNAUTHORIZED, text))
}

/// Never from a cookie, which browsers send with requests of any page.
fn token_of(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
