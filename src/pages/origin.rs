//! Which web pages may send requests to a server on this machine: only its own. A browser on the same machine sends any
//! page's requests to `localhost`, and a page whose name resolves to 127.0.0.1 (DNS rebinding) differs from our own only
//! by the name in `Host`.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Why a request must not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginRefusal {
    /// `Host` names another machine.
    Host,
    /// A page of another origin sent the request.
    Page,
}

/// None where the request may be served.
pub fn refusal(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<OriginRefusal> {
    // HTTP/2 puts the host in the URI.
    let in_uri = uri.authority().map(Authority::as_str);
    let in_header = headers.get(HOST).map(text);
    let host = in_uri.or(in_header);
    if !host.is_none_or(is_here) {
        return Some(OriginRefusal::Host);
    }
    let is_own = |origin: &str| {
        let rest = ["http://", "https://"]
            .iter()
            .find_map(|scheme| origin.strip_prefix(scheme));
        rest.is_some() && rest == host
    };
    if !headers.get(ORIGIN).map(text).is_none_or(is_own) || is_of_a_page(method, headers) {
        return Some(OriginRefusal::Page);
    }
    None
}

/// Whether the request was sent by a page of another site without an `Origin` header, such as for an image or a script.
/// Followed links are harmless and pass.
fn is_of_a_page(method: &Method, headers: &HeaderMap) -> bool {
    let is_foreign = |site: &HeaderValue| matches!(text(site), "cross-site" | "same-site");
    let is_link = method == Method::GET && headers.get(MODE).map(text) == Some("navigate");
    headers.get(SITE).is_some_and(is_foreign) && !is_link
}

fn is_here(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    // `user@host` is not a valid `Host` header, and user information can disguise the host.
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = address.parse().ok();
    name.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback())
}

/// `?` for a header that is not ASCII text, which equals no allowed value.
fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

    use super::refusal;

    fn check(method: Method, uri: &str, headers: &[(&'static str, &'static str)], is_served: bool) {
        let named = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let map: HeaderMap = named.collect();
        let refusal = refusal(&method, &uri.parse::<Uri>().unwrap(), &map);
        assert_eq!(refusal.is_none(), is_served, "{method} {uri} {headers:?}");
    }

    #[test]
    fn only_names_of_this_machine_are_served() {
        for host in [
            "localhost:7010",
            "LocalHost",
            "127.0.0.1:7010",
            "[::1]:7010",
        ] {
            check(Method::GET, "/", &[("host", host)], true);
        }
        for host in [
            "evil.example:7010",
            "localhost.evil.example",
            "10.0.0.7",
            "0.0.0.0:7010",
            "evil@127.0.0.1",
            "evil.example@localhost:7010",
            "",
            "a b",
        ] {
            check(Method::GET, "/", &[("host", host)], false);
        }
        check(Method::GET, "http://evil.example/", &[], false);
        check(Method::GET, "/", &[], true);
    }

    #[test]
    fn only_pages_of_its_own_are_served() {
        let host = ("host", "localhost:7010");
        check(
            Method::POST,
            "/",
            &[host, ("origin", "http://localhost:7010")],
            true,
        );
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1:7010",
            "https://evil.example",
            "null",
            "",
        ] {
            check(Method::POST, "/", &[host, ("origin", origin)], false);
        }
        let site = |site| ("sec-fetch-site", site);
        check(Method::GET, "/", &[host, site("cross-site")], false);
        check(Method::GET, "/", &[host, site("same-site")], false);
        check(Method::GET, "/", &[host, site("same-origin")], true);
        let link = ("sec-fetch-mode", "navigate");
        check(
            Method::GET,
            "/docs",
            &[host, site("cross-site"), link],
            true,
        );
        check(Method::POST, "/", &[host, site("cross-site"), link], false);
    }
}
