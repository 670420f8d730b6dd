//! Outbound HTTP to addresses that clients name, with an SSRF guard: source images and webhooks.
//!
//! | file | contents |
//! | --- | --- |
//! | `target` | the destination of a URL, and refusals before a connection |
//! | `names` | DNS lookups |
//!
//! A client may name any address, so requests to this machine or its private networks are refused, in whatever
//! notation, by whatever name and after whatever redirect. A name is resolved once and the connection made to the
//! checked address. Only the usual ports of web servers are allowed. Bodies have a size and a time limit; compressed
//! bodies are refused, since their decompressed size is unknown. Proxies of the environment, cookies and credentials
//! are not used.
//!
//! Errors go to the client and reveal nothing of the private network: a name that resolves there gives the same error
//! as an unknown one.

mod names;
mod target;

#[cfg(test)]
pub mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Method, Request, Response};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use url::Url;

use names::{Names, Pinned};
use target::{Named, Permitted};

/// Outgoing requests. Clones share the limits.
#[derive(Debug, Clone)]
pub struct Egress {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    names: Names,
    permitted: Permitted,
    tls: OnceLock<rustls::ClientConfig>,
    /// Limit of concurrent requests.
    going: Semaphore,
}

/// Accepted schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schemes {
    Https,
    HttpToo,
}

/// Limits of size, time and redirects.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub schemes: Schemes,
    /// Maximum bytes of a body.
    pub bytes: usize,
    /// For the whole request, redirects included.
    pub time: Duration,
    /// Redirects to follow.
    pub redirects: usize,
}

/// A fetched body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub bytes: Bytes,
    pub content_type: Option<String>,
}

/// Why a request failed, for the client who gave the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    #[error("the URL is invalid")]
    NotAnAddress,
    #[error("the URL must begin with {}", .0.words())]
    Scheme(Schemes),
    #[error("the URL must not contain a user name or password")]
    Credentials,
    /// For literal private addresses. A name that resolves to one is [`EgressError::Unreachable`], like an unknown
    /// name: clients must not learn which names exist in the operator's network.
    #[error("the URL must point to a public internet address")]
    Inside,
    #[error("port {0} in the URL is not allowed: use 80, 443, 8080 or 8443")]
    Port(u16),
    #[error("the host of the URL is unknown, not public, or does not respond")]
    Unreachable,
    #[error("the URL returned HTTP status {0} instead of 200")]
    Status(u16),
    #[error("the URL redirects too often")]
    Redirects,
    #[error("the response uses a content encoding, which is not supported")]
    Encoded,
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the response took longer than {} s", .0.as_secs())]
    TooSlow(Duration),
}

/// Checks the text of a URL only: a name may still resolve to an internal address.
pub fn check_words(url: &str, schemes: Schemes) -> Result<(), EgressError> {
    let url = Url::parse(url).map_err(|_| EgressError::NotAnAddress)?;
    match target::check(&url, schemes)? {
        (Named::Address(address), port) => {
            Permitted::default().admit([address], port)?;
            Ok(())
        }
        (Named::Name(name), port) => match target::is_own(&name) {
            true => Err(EgressError::Inside),
            false => Permitted::default().check_port(port),
        },
    }
}

const AT_ONCE: usize = 64;
const AGENT: &str = concat!("muster/", env!("CARGO_PKG_VERSION"));

impl Egress {
    /// Only to the internet.
    pub fn new() -> Self {
        Self::with(Names::default(), Permitted::default())
    }

    /// Also to these ports of this machine, for tests and local development. No setting of `worker.toml` sets them.
    pub fn permitting_own_ports(ports: impl IntoIterator<Item = u16>) -> Self {
        Self::with(Names::default(), Permitted(ports.into_iter().collect()))
    }

    fn with(names: Names, permitted: Permitted) -> Self {
        let inner = Inner {
            names,
            permitted,
            tls: OnceLock::new(),
            going: Semaphore::new(AT_ONCE),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Fetches a URL.
    pub async fn fetch(&self, url: &str, limits: Limits) -> Result<Fetched, EgressError> {
        let fetching = async {
            let _going = self.inner.going.acquire().await;
            self.follow(url, limits).await
        };
        let fetched = timeout(limits.time, fetching).await;
        fetched.unwrap_or(Err(EgressError::TooSlow(limits.time)))
    }

    /// Posts JSON and returns the status. Does not follow redirects or read the body.
    pub async fn post_json(
        &self,
        url: &str,
        body: Bytes,
        limits: Limits,
    ) -> Result<u16, EgressError> {
        let url = Url::parse(url).map_err(|_| EgressError::NotAnAddress)?;
        let mut request = Request::new(Method::POST, url);
        let json = reqwest::header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        *request.body_mut() = Some(body.into());
        let sending = async {
            let _going = self.inner.going.acquire().await;
            self.send(request, limits).await
        };
        let answer = timeout(limits.time, sending).await;
        let answer = answer.unwrap_or(Err(EgressError::TooSlow(limits.time)));
        Ok(answer?.status().as_u16())
    }

    /// Follows redirects, with the same checks for each address.
    async fn follow(&self, url: &str, limits: Limits) -> Result<Fetched, EgressError> {
        let mut url = Url::parse(url).map_err(|_| EgressError::NotAnAddress)?;
        for _ in 0..=limits.redirects {
            let request = Request::new(Method::GET, url.clone());
            let answer = self.send(request, limits).await?;
            match elsewhere(&answer, &url)? {
                Some(next) => url = next,
                None => return read(answer, limits.bytes).await,
            }
        }
        Err(EgressError::Redirects)
    }

    async fn send(&self, mut request: Request, limits: Limits) -> Result<Response, EgressError> {
        let schemes = self.inner.permitted.schemes(request.url(), limits.schemes);
        let (named, port) = target::check(request.url(), schemes)?;
        let admitted = match named {
            Named::Address(address) => self.inner.permitted.admit([address], port)?,
            Named::Name(name) => self.admit_name(&name, port).await?,
        };
        let plain = reqwest::header::HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, plain);
        let client = self.client(Pinned(admitted))?;
        let answer = client.execute(request).await;
        answer.map_err(|_| EgressError::Unreachable)
    }

    /// Resolves a name. A private address gives the same error as an unknown name.
    async fn admit_name(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, EgressError> {
        let permitted = &self.inner.permitted;
        if target::is_own(name) && !permitted.0.contains(&port) {
            return Err(EgressError::Inside);
        }
        permitted.check_port(port)?;
        let addresses = self.inner.names.addresses(name).await?;
        let admitted = permitted.admit(addresses, port);
        admitted.map_err(|_| EgressError::Unreachable)
    }

    /// A client for one request, pinned to the checked addresses.
    fn client(&self, pinned: Pinned) -> Result<reqwest::Client, EgressError> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls()?)
            .http1_only()
            .no_proxy()
            .referer(false)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .dns_resolver(pinned)
            .user_agent(AGENT)
            .build();
        client.map_err(|_| EgressError::Unreachable)
    }

    /// With the machine's certificates, read at the first use.
    fn tls(&self) -> Result<rustls::ClientConfig, EgressError> {
        if let Some(ready) = self.inner.tls.get() {
            return Ok(ready.clone());
        }
        let made = tls().map_err(|_| EgressError::Unreachable)?;
        Ok(self.inner.tls.get_or_init(|| made).clone())
    }
}

impl Default for Egress {
    fn default() -> Self {
        Self::new()
    }
}

impl Schemes {
    const fn words(self) -> &'static str {
        match self {
            Self::Https => "https://",
            Self::HttpToo => "http:// or https://",
        }
    }
}

impl Limits {
    /// F-27 of the AI Horde API: 5 MB, and a short timeout.
    pub const SOURCE_IMAGE: Self = Self {
        schemes: Schemes::HttpToo,
        bytes: 5_000_000,
        time: Duration::from_secs(2),
        redirects: 3,
    };

    /// A photo from a phone, for OpenAI's API.
    pub const PHOTO: Self = Self {
        schemes: Schemes::HttpToo,
        bytes: 32 << 20,
        time: Duration::from_secs(15),
        redirects: 3,
    };

    /// A file of a chat.
    pub const DOCUMENT: Self = Self::PHOTO;

    /// F-117: one attempt at a webhook.
    pub const WEBHOOK: Self = Self {
        schemes: Schemes::Https,
        bytes: 0,
        time: Duration::from_secs(3),
        redirects: 0,
    };
}

fn elsewhere(answer: &Response, from: &Url) -> Result<Option<Url>, EgressError> {
    if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let place = header(answer.headers(), LOCATION).ok_or(EgressError::NotAnAddress)?;
    let next = from.join(&place);
    next.map(Some).map_err(|_| EgressError::NotAnAddress)
}

async fn read(mut answer: Response, most: usize) -> Result<Fetched, EgressError> {
    if answer.status().as_u16() != 200 {
        return Err(EgressError::Status(answer.status().as_u16()));
    }
    let encoding = header(answer.headers(), CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        return Err(EgressError::Encoded);
    }
    let announced = answer.content_length().unwrap_or(0);
    if usize::try_from(announced).map_or(true, |announced| announced > most) {
        return Err(EgressError::TooLarge(most));
    }
    let mut whole = BytesMut::new();
    while let Some(piece) = answer.chunk().await.map_err(|_| EgressError::Unreachable)? {
        if piece.len() > most - whole.len() {
            return Err(EgressError::TooLarge(most));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(Fetched {
        bytes: whole.freeze(),
        content_type: header(answer.headers(), CONTENT_TYPE),
    })
}

fn header(headers: &HeaderMap, name: reqwest::header::HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn tls() -> io::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
