//! HTTP requests to the hub, with manual redirects.
//!
//! The token is sent only to the endpoint's own origin: large files come from other hosts, by signed links. The hub's
//! replies before a redirect identify the file (content name, length, commit), so those headers are collected along the
//! way.

use std::{ops::Range, sync::Once};

use reqwest::{
    Method, Response, StatusCode,
    header::{self, HeaderMap},
};
use url::Url;

use super::{
    error::HubError,
    pace::DownloadPace,
    retry::{Trouble, retry_after},
    settings::HubSettings,
};

pub struct Client {
    /// Rate limit of all files together.
    pub pace: DownloadPace,
    http: reqwest::Client,
    endpoint: Url,
    token: Option<String>,
}

/// The last answer of a chain of redirects.
pub struct Answer {
    pub response: Response,
    pub named: Named,
}

/// The hub's metadata of a file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Named {
    pub commit: Option<String>,
    pub etag: Option<String>,
    pub size: Option<u64>,
}

/// More hops than any hub has.
const MOST_REDIRECTS: usize = 8;

impl Client {
    pub fn new(settings: &HubSettings) -> Result<Self, HubError> {
        choose_cryptography();
        let http = reqwest::Client::builder()
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(
                settings
                    .patience
                    .silence
                    .min(std::time::Duration::from_secs(20)),
            )
            .read_timeout(settings.patience.silence)
            .build()
            .map_err(|error| HubError::Unreachable {
                what: "data".to_owned(),
                host: host(&settings.endpoint),
                cause: in_words(error),
                attempts: 1,
            })?;
        Ok(Self {
            pace: DownloadPace::new(settings.bandwidth),
            http,
            endpoint: settings.endpoint.clone(),
            token: settings.token.clone(),
        })
    }

    pub fn host(&self) -> String {
        host(&self.endpoint)
    }

    /// An address under the endpoint.
    pub fn url<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        url
    }

    /// Queries a file's metadata. `what` names the file in errors.
    pub async fn head(&self, url: Url, what: &str) -> Result<Answer, Trouble> {
        self.send(Method::HEAD, url, None, what).await
    }

    pub async fn get(
        &self,
        url: Url,
        range: Option<Range<u64>>,
        what: &str,
    ) -> Result<Answer, Trouble> {
        self.send(Method::GET, url, range, what).await
    }

    async fn send(
        &self,
        method: Method,
        mut url: Url,
        range: Option<Range<u64>>,
        what: &str,
    ) -> Result<Answer, Trouble> {
        let mut named = Named::default();
        for _ in 0..MOST_REDIRECTS {
            let response = self.ask(&method, &url, range.as_ref()).await?;
            if self.is_ours(&url) {
                named.add_linked(response.headers());
            }
            if !response.status().is_redirection() {
                self.check(&response, &url, what)?;
                // Another host may use a different name for the same content.
                if method == Method::HEAD || self.is_ours(&url) {
                    named.add_plain(response.headers());
                }
                return Ok(Answer { response, named });
            }
            if method == Method::HEAD && named.is_complete() {
                return Ok(Answer { response, named });
            }
            url = self.next(&url, response.headers())?;
        }
        Err(self.nonsense(format!("more than {MOST_REDIRECTS} redirects for {what}")))
    }

    async fn ask(
        &self,
        method: &Method,
        url: &Url,
        range: Option<&Range<u64>>,
    ) -> Result<Response, Trouble> {
        // A compressed body would have another length than the file.
        let mut request = self
            .http
            .request(method.clone(), url.clone())
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some(token) = self.token.as_ref().filter(|_| self.is_ours(url)) {
            request = request.bearer_auth(token);
        }
        if let Some(range) = range {
            let last = range.end.saturating_sub(1);
            request = request.header(header::RANGE, format!("bytes={}-{last}", range.start));
        }
        request
            .send()
            .await
            .map_err(|error| Trouble::Passing(in_words(error)))
    }

    fn is_ours(&self, url: &Url) -> bool {
        url.origin() == self.endpoint.origin()
    }

    fn next(&self, url: &Url, headers: &HeaderMap) -> Result<Url, Trouble> {
        let location = text(headers, "location").unwrap_or_default();
        let next = url
            .join(location)
            .map_err(|_| self.nonsense(format!("redirect to {location:?}")))?;
        let is_downgrade = url.scheme() == "https" && next.scheme() != "https";
        match is_downgrade || !matches!(next.scheme(), "http" | "https") {
            true => Err(self.nonsense(format!("redirect to {}://", next.scheme()))),
            false => Ok(next),
        }
    }

    fn check(&self, response: &Response, url: &Url, what: &str) -> Result<(), Trouble> {
        let status = response.status();
        let headers = response.headers();
        let after = text(headers, "retry-after").and_then(retry_after);
        let said = || text(headers, "x-error-message").map(str::to_owned);
        match status {
            _ if status.is_success() => Ok(()),
            StatusCode::TOO_MANY_REQUESTS => Err(Trouble::TooMany { after }),
            StatusCode::RANGE_NOT_SATISFIABLE => Err(Trouble::Changed),
            StatusCode::SERVICE_UNAVAILABLE if after.is_some() => Err(Trouble::TooMany { after }),
            StatusCode::REQUEST_TIMEOUT => Err(Trouble::Passing(status.to_string())),
            _ if status.is_server_error() => Err(Trouble::Passing(status.to_string())),
            // A signed link to another host has expired; the next request gets a new one.
            _ if !self.is_ours(url) => {
                Err(Trouble::Passing(format!("{status} from {}", host(url))))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(HubError::Denied {
                what: what.to_owned(),
                host: self.host(),
                had_token: self.token.is_some(),
                said: said(),
            }
            .into()),
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(HubError::NotFound {
                what: what.to_owned(),
                host: self.host(),
                said: said(),
            }
            .into()),
            _ => Err(self.nonsense(format!("{status} for {what}"))),
        }
    }

    pub fn nonsense(&self, what: String) -> Trouble {
        HubError::BadAnswer {
            host: self.host(),
            what,
        }
        .into()
    }
}

impl Named {
    /// Headers about a file on another host.
    fn add_linked(&mut self, headers: &HeaderMap) {
        let add = |value: &mut Option<String>, name: &str| {
            if value.is_none() {
                *value = text(headers, name).map(str::to_owned);
            }
        };
        add(&mut self.commit, "x-repo-commit");
        if self.etag.is_none() {
            self.etag = text(headers, "x-linked-etag").map(bare_etag);
        }
        if self.size.is_none() {
            self.size = text(headers, "x-linked-size").and_then(|size| size.parse().ok());
        }
    }

    /// Headers about the reply's own body.
    fn add_plain(&mut self, headers: &HeaderMap) {
        if self.etag.is_none() {
            self.etag = text(headers, "etag").map(bare_etag);
        }
        if self.size.is_none() {
            self.size = text(headers, "content-length").and_then(|size| size.parse().ok());
        }
    }

    fn is_complete(&self) -> bool {
        self.commit.is_some() && self.etag.is_some() && self.size.is_some()
    }
}

fn bare_etag(value: &str) -> String {
    value.trim_start_matches("W/").trim_matches('"').to_owned()
}

pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("the hub");
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The innermost cause of a failure, without URLs, which may have a signature.
pub fn in_words(error: reqwest::Error) -> String {
    let error = error.without_url();
    if error.is_timeout() {
        return "timed out".to_owned();
    }
    let mut deepest: &dyn std::error::Error = &error;
    while let Some(cause) = deepest.source() {
        deepest = cause;
    }
    let words = deepest.to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    match error.is_connect() {
        true => format!("connecting failed: {words}"),
        false => words.to_owned(),
    }
}

/// rustls is built without a default provider. Further calls have no effect.
fn choose_cryptography() {
    static CHOSEN: Once = Once::new();
    CHOSEN.call_once(|| {
        // An error means that another part of the program has chosen already.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
    });
}
