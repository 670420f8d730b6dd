//! The headers that replies of this API have besides their own: which pages may read them, which node answered, and that
//! JSON is written in UTF-8.

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, CONTENT_TYPE, HOST,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

const HORDE_NODE: HeaderName = HeaderName::from_static("horde-node");
const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE, PATCH");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "X-CSRF-Token, X-Requested-With, Accept, Accept-Version, Content-Length, Content-MD5, Content-Type, Date, \
     X-Api-Version, Proxied-For, Proxy-Authorization, X-Fields, Client-Agent, apikey, Authorization, \
     Idempotency-Key, X-Request-Id",
);
const JSON: &[u8] = b"application/json";
const JSON_IN_UTF_8: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Port of a host header without one: the coordinator may stand behind a TLS proxy.
const USUAL_PORT: &str = "443";

/// Middleware of every route of this API.
pub async fn dress(request: Request, next: Next) -> Response {
    let node = node(request.headers());
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    if let Some(node) = node {
        headers.insert(HORDE_NODE, node);
    }
    if headers
        .get(CONTENT_TYPE)
        .is_some_and(|found| found.as_bytes() == JSON)
    {
        headers.insert(CONTENT_TYPE, JSON_IN_UTF_8);
    }
    response
}

/// `host:port:version`, by the `Host` header, because the machine's own name must not leak.
fn node(headers: &HeaderMap) -> Option<HeaderValue> {
    let host = headers.get(HOST)?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if host.is_empty() || host.len() > 255 || !host.bytes().all(is_plain) {
        return None;
    }
    // The last colon of an IPv6 address is inside its brackets.
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.contains(']'));
    let node = match has_port {
        true => format!("{host}:{VERSION}"),
        false => format!("{host}:{USUAL_PORT}:{VERSION}"),
    };
    HeaderValue::try_from(node).ok()
}

#[cfg(test)]
mod tests {
    use axum::http::header::HOST;
    use axum::http::{HeaderMap, HeaderValue};

    use super::{VERSION, node};

    #[test]
    fn a_node_is_called_as_its_client_calls_it() {
        let check = |host: &'static str, expected: Option<&str>| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            let expected = expected.map(|name| format!("{name}:{VERSION}"));
            let found = node(&headers);
            assert_eq!(
                found.as_ref().map(|it| it.to_str().unwrap()),
                expected.as_deref()
            );
        };
        check("127.0.0.1:7010", Some("127.0.0.1:7010"));
        check("horde.example", Some("horde.example:443"));
        check("[::1]:7010", Some("[::1]:7010"));
        check("[::1]", Some("[::1]:443"));
        check("a b", None);
        check("", None);
        assert_eq!(node(&HeaderMap::new()), None);
    }
}
