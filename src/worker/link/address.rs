//! Which address a configured one means: the coordinator's own, that of its API, or the socket's.

use url::{Host, Url};

const PATH: &str = "/v1/workers/ws";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("unsupported coordinator URL {0}://: use ws://, wss://, http:// or https://")]
    Scheme(String),
    #[error("the coordinator URL has no host")]
    NoHost,
    #[error(
        "{0} is unencrypted and would expose the key: use wss:// or https://, or set insecure = true"
    )]
    Plain(String),
}

/// The WebSocket's URL. `ws` and `wss` URLs keep their path, or get the usual one if they have none; for the URL of an
/// API, host prefix, scheme and path are changed like in public workers. Unencrypted connections are allowed to this
/// machine, or with `insecure`.
pub fn endpoint(configured: &Url, insecure: bool) -> Result<Url, AddressError> {
    let mut url = configured.clone();
    let (scheme, is_api) = match url.scheme() {
        "ws" => ("ws", false),
        "wss" => ("wss", false),
        "http" => ("ws", true),
        "https" => ("wss", true),
        other => return Err(AddressError::Scheme(other.to_owned())),
    };
    url.set_fragment(None);
    if is_api {
        use_socket_host(&mut url)?;
    }
    let path = url.path().trim_end_matches('/').to_owned();
    match is_api {
        true => {
            let base = path.strip_suffix("/api").unwrap_or(&path);
            url.set_path(&format!("{base}{PATH}"));
        }
        false if path.is_empty() => url.set_path(PATH),
        false => {}
    }
    url.set_scheme(scheme)
        .map_err(|()| AddressError::Scheme(scheme.to_owned()))?;
    may_be_dialled(&url, scheme == "wss" || insecure)?;
    Ok(url)
}

/// The address under which a coordinator that is polled has its calls, whether it was given with `/api` or without.
pub fn base(configured: &Url, insecure: bool) -> Result<Url, AddressError> {
    let mut url = configured.clone();
    let is_encrypted = match url.scheme() {
        "http" => false,
        "https" => true,
        other => return Err(AddressError::Scheme(other.to_owned())),
    };
    may_be_dialled(&url, is_encrypted || insecure)?;
    let path = url.path().trim_end_matches('/').to_owned();
    let known = ["/api/v2", "/api"].iter();
    let base = known.filter_map(|end| path.strip_suffix(end)).next();
    url.set_path(base.unwrap_or(&path));
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// The address of a coordinator's HTTP API, from that of its socket or its own.
pub fn api(configured: &Url, insecure: bool) -> Result<Url, AddressError> {
    let mut url = configured.clone();
    let scheme = match url.scheme() {
        "ws" | "http" => "http",
        "wss" | "https" => "https",
        other => return Err(AddressError::Scheme(other.to_owned())),
    };
    // `Url` changes no scheme of its special ones into another kind; these are all special.
    url.set_scheme(scheme)
        .map_err(|()| AddressError::Scheme(scheme.to_owned()))?;
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(path.strip_suffix(PATH).unwrap_or(&path));
    base(&url, insecure)
}

fn may_be_dialled(url: &Url, is_safe: bool) -> Result<(), AddressError> {
    let host = url.host_str().ok_or(AddressError::NoHost)?;
    match is_safe || is_here(url) {
        true => Ok(()),
        false => Err(AddressError::Plain(host.to_owned())),
    }
}

/// `api.example` serves its sockets at `ws.example`.
fn use_socket_host(url: &mut Url) -> Result<(), AddressError> {
    let host = url.host_str().ok_or(AddressError::NoHost)?;
    if let Some(rest) = host.strip_prefix("api.") {
        let host = format!("ws.{rest}");
        url.set_host(Some(&host))
            .map_err(|_| AddressError::NoHost)?;
    }
    Ok(())
}

fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{base, endpoint};

    fn check(configured: &str, wanted: &str) {
        let found = endpoint(&Url::parse(configured).unwrap(), false);
        let found = found.map_or_else(|error| error.to_string(), |url| url.to_string());
        assert!(
            found == wanted || (found.contains(wanted) && !wanted.contains("://")),
            "{configured}: {found}"
        );
    }

    #[test]
    fn a_socket_address_is_taken_as_it_is() {
        check(
            "wss://ws.example/v1/workers/ws",
            "wss://ws.example/v1/workers/ws",
        );
        check(
            "wss://ws.example:8443",
            "wss://ws.example:8443/v1/workers/ws",
        );
        check("wss://ws.example/other/path", "wss://ws.example/other/path");
    }

    #[test]
    fn an_apis_address_leads_to_its_socket() {
        check("https://api.example", "wss://ws.example/v1/workers/ws");
        check("https://api.example/api/", "wss://ws.example/v1/workers/ws");
        check(
            "https://grid.example/base",
            "wss://grid.example/base/v1/workers/ws",
        );
        check("http://127.0.0.1:7010", "ws://127.0.0.1:7010/v1/workers/ws");
    }

    #[test]
    fn a_coordinator_that_is_polled_may_be_named_by_its_api() {
        for configured in [
            "https://grid.example",
            "https://grid.example/",
            "https://grid.example/api",
            "https://grid.example/api/v2/",
        ] {
            let base = base(&Url::parse(configured).unwrap(), false).unwrap();
            assert_eq!(base.as_str(), "https://grid.example/", "{configured}");
        }
        let plain = |url| base(&Url::parse(url).unwrap(), false);
        assert!(plain("http://10.0.0.7/api").is_err());
        assert!(plain("http://localhost:7010").is_ok());
        assert!(plain("ws://localhost:7010").is_err());
    }

    #[test]
    fn an_unencrypted_line_leaves_the_machine_only_when_told_to() {
        for plain in ["ws://example", "http://api.example", "ws://10.0.0.7"] {
            check(plain, "is unencrypted");
            assert!(endpoint(&Url::parse(plain).unwrap(), true).is_ok());
        }
        for here in ["ws://localhost/x", "ws://127.0.0.9/x", "ws://[::1]/x"] {
            check(here, here);
        }
        check("ftp://example", "unsupported coordinator URL ftp");
    }
}
