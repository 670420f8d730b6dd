//! HTTP to a program on this machine, with limits on time and size.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response, redirect};
use rustls::ClientConfig;
use serde_json::Value;
use tokio::time::timeout;
use url::{Host, Url};

use super::UpstreamError;
use super::lines::{LineForm, ReplyLines};

const CONNECTING: Duration = Duration::from_secs(5);
/// How long a question about a model may take.
const ASKING: Duration = Duration::from_secs(5);
/// Bytes of a reply that is read as a whole.
const LARGEST_REPLY: usize = 256 << 20;
/// Bytes of the words of a refusal.
const LARGEST_REFUSAL: usize = 64 << 10;

/// Clones share their connections.
#[derive(Debug, Clone)]
pub struct UpstreamClient {
    http: reqwest::Client,
    url: Url,
    key: Option<String>,
    silence: Duration,
}

impl UpstreamClient {
    pub fn new(
        url: Url,
        key: Option<String>,
        silence: Duration,
        tls: Arc<ClientConfig>,
    ) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured((*tls).clone())
            // A program on this machine has no business to send jobs elsewhere.
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECTING);
        let http = match is_here(&url) {
            true => http.no_proxy(),
            false => http,
        };
        let http = http
            .build()
            .map_err(|error| error.without_url().to_string())?;
        Ok(Self {
            http,
            url,
            key,
            silence,
        })
    }

    /// A question about the program or its models.
    pub async fn ask(&self, path: &str) -> Result<Value, UpstreamError> {
        let asked = timeout(ASKING, async {
            let reply = self.send(self.http.get(self.at(path))).await?;
            read_json(reply, self.silence).await
        });
        asked.await.unwrap_or(Err(UpstreamError::Silent(ASKING)))
    }

    /// The same with a body.
    pub async fn ask_with(&self, path: &str, body: &Value) -> Result<Value, UpstreamError> {
        let asked = timeout(ASKING, self.post(path, body));
        asked.await.unwrap_or(Err(UpstreamError::Silent(ASKING)))
    }

    /// Sends a request and reads the complete reply.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, UpstreamError> {
        let reply = self.send(self.with_body(path, body)).await?;
        read_json(reply, self.silence).await
    }

    /// Sends a request and reads the reply line by line. Dropping the lines closes the connection, which cancels the
    /// request in every program of this kind.
    pub async fn open(&self, path: &str, body: &Value) -> Result<ReplyLines, UpstreamError> {
        let reply = self.send(self.with_body(path, body)).await?;
        let form = match content_type(&reply) {
            kind if kind.starts_with("text/event-stream") => LineForm::Events,
            kind if kind.starts_with("application/x-ndjson") => LineForm::Json,
            kind if kind.starts_with("application/json") => LineForm::Whole,
            kind => return Err(wrong_type(kind)),
        };
        Ok(ReplyLines::new(reply, form, self.silence))
    }

    fn with_body(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self.http.post(self.at(path));
        let request = request.header(CONTENT_TYPE, "application/json");
        request.body(body.to_string())
    }

    /// The address may end with the version of the API.
    fn at(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let base = url.path().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        url.set_path(&format!("{base}/{path}"));
        url
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, UpstreamError> {
        let request = match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let sent = timeout(self.silence, request.send()).await;
        let reply = sent.map_err(|_| UpstreamError::Silent(self.silence))?;
        let reply = reply.map_err(|error| failed(&error))?;
        let status = reply.status();
        if status.is_success() {
            return Ok(reply);
        }
        let body = read_whole(reply, LARGEST_REFUSAL, self.silence).await;
        let words = body.map_or_else(|_| String::new(), |body| words_of(&body));
        Err(UpstreamError::of_status(status.as_u16(), &words))
    }
}

/// Whether an address leads to this machine.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

pub fn failed(error: &reqwest::Error) -> UpstreamError {
    // The innermost cause names the reason; the others name the address.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let cause = cause.to_string();
    match error.is_connect() || error.is_request() {
        true => UpstreamError::Unreachable(cause),
        false => UpstreamError::Failed(format!("its reply broke off: {cause}")),
    }
}

async fn read_json(reply: Response, silence: Duration) -> Result<Value, UpstreamError> {
    let kind = content_type(&reply).to_owned();
    let body = read_whole(reply, LARGEST_REPLY, silence).await?;
    serde_json::from_slice(&body).map_err(|_| wrong_type(&kind))
}

async fn read_whole(
    mut reply: Response,
    most: usize,
    silence: Duration,
) -> Result<Vec<u8>, UpstreamError> {
    let mut body = Vec::new();
    loop {
        let chunk = timeout(silence, reply.chunk()).await;
        let chunk = chunk.map_err(|_| UpstreamError::Silent(silence))?;
        let Some(chunk) = chunk.map_err(|error| failed(&error))? else {
            return Ok(body);
        };
        if body.len() + chunk.len() > most {
            return Err(UpstreamError::Failed("its reply is too large".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
}

fn content_type(reply: &Response) -> &str {
    let kind = reply.headers().get(CONTENT_TYPE);
    kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

fn wrong_type(kind: &str) -> UpstreamError {
    let kind = super::error::shortened(kind);
    let kind = if kind.is_empty() { "no type" } else { &kind };
    UpstreamError::Failed(format!(
        "its reply has {kind} instead of JSON: check url and api"
    ))
}

/// `{"error": {"message": …}}`, `{"error": …}`, `{"detail": …}` or `{"message": …}`.
fn words_of(body: &[u8]) -> String {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return String::new();
    };
    let places = [
        "/error/message",
        "/error",
        "/detail",
        "/message",
        "/detail/0/msg",
    ];
    let mut words = places
        .iter()
        .filter_map(|place| body.pointer(place)?.as_str());
    words.next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::words_of;

    #[test]
    fn words_of_refusals_are_found_where_each_program_has_them() {
        for body in [
            r#"{"error": {"message": "no", "type": "invalid_request_error"}}"#,
            r#"{"error": "no"}"#,
            r#"{"detail": "no"}"#,
            r#"{"object": "error", "message": "no"}"#,
            r#"{"detail": [{"loc": ["body"], "msg": "no"}]}"#,
        ] {
            assert_eq!(words_of(body.as_bytes()), "no", "{body}");
        }
        assert_eq!(words_of(b"<html>"), "");
    }
}
