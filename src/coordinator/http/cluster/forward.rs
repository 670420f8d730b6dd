//! Forwards a request to the leader, and returns its response.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use axum::http::request::Parts;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use axum::response::Response;
use bytes::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use muster_process::tasks::Tasks;

use super::body::{BodyRecovery, LAST_PIECE, LeaderBody, OutboundBody, recoverable};
use super::{LeaderAddress, signature, tunnel};
use crate::http::headers::NOT_LEADING;

/// Keeps connections to the leader open.
#[derive(Debug)]
pub struct Forwarder {
    client: Client<HttpConnector, OutboundBody>,
    tasks: Tasks,
}

/// Why there is no response.
#[derive(Debug)]
pub enum ForwardFailure {
    /// The leader did not process the request, which may be sent to the next one.
    NotSent(Box<Request>),
    /// The same, said by the node that got it: it does not lead, or hands over.
    Returned(Box<Request>),
    /// The leader may have processed the request, which is whole.
    Lost(Box<Request>),
    /// The leader may have processed the request, of which a part is gone.
    Broken,
}

/// Timeout of a connection to a node of the same network.
const CONNECTED: Duration = Duration::from_secs(1);
/// The leader closes connections after two idle minutes.
const IDLE: Duration = Duration::from_secs(60);
const MOST_IDLE: usize = 256;
/// Headers of one connection, not of the request.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

impl Forwarder {
    pub fn new(tasks: &Tasks) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECTED));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(connector);
        Self {
            client,
            tasks: tasks.clone(),
        }
    }

    /// `signed` is the header with the client's address, and `copy` the body, if it is small.
    pub async fn forward(
        &self,
        leader: &LeaderAddress,
        signed: HeaderValue,
        request: Request,
        copy: Option<Bytes>,
    ) -> Result<Response, ForwardFailure> {
        let (parts, body) = request.into_parts();
        let client = tunnel::wanted(&parts);
        let (body, recovery) = recoverable(body, copy);
        let outbound = outbound(&parts, client.is_some(), leader, signed, body);
        let Some(outbound) = outbound else {
            return Err(ForwardFailure::Broken);
        };
        let sending = self.client.request(outbound);
        let answered = tokio::select! {
            answered = sending => answered.map_err(Some),
            () = silent_after(&leader.gone) => Err(None),
        };
        let response = match answered {
            Ok(response) => response,
            Err(error) => {
                if let Some(error) = &error {
                    debug!("passing a request on to {} failed: {error}", leader.url);
                }
                let was_not_sent = error.is_some_and(|error| error.is_connect());
                return Err(failure(parts, recovery, was_not_sent));
            }
        };
        if response.headers().contains_key(NOT_LEADING) {
            return Err(match failure(parts, recovery, true) {
                ForwardFailure::NotSent(request) => ForwardFailure::Returned(request),
                other => other,
            });
        }
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (response.status(), client) {
            let end = (leader.gone.clone(), self.tasks.stopping());
            return Ok(tunnel::open(client, response, end, &self.tasks));
        }
        Ok(inbound(response, leader.gone.clone()))
    }
}

/// A leader that handed over sends its last replies; a suspended one would leave the client waiting.
async fn silent_after(gone: &CancellationToken) {
    gone.cancelled().await;
    sleep(LAST_PIECE).await;
}

/// Requests with safe methods may be repeated after any failure.
fn failure(parts: Parts, recovery: BodyRecovery, was_not_sent: bool) -> ForwardFailure {
    let has_no_effect = was_not_sent || parts.method.is_safe();
    let Some(body) = recovery.body() else {
        return ForwardFailure::Broken;
    };
    let request = Box::new(Request::from_parts(parts, body));
    match has_no_effect {
        true => ForwardFailure::NotSent(request),
        false => ForwardFailure::Lost(request),
    }
}

fn outbound(
    parts: &Parts,
    is_upgrade: bool,
    leader: &LeaderAddress,
    signed: HeaderValue,
    body: OutboundBody,
) -> Option<hyper::Request<OutboundBody>> {
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let uri: Uri = format!("{}{path}", leader.url).parse().ok()?;
    let mut headers = end_to_end(&parts.headers);
    if is_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    // HTTP/2 has the host in the URI.
    if let (false, Some(host)) = (headers.contains_key(HOST), parts.uri.authority()) {
        headers.insert(HOST, HeaderValue::from_str(host.as_str()).ok()?);
    }
    headers.insert(signature::FORWARDED, signed);
    let mut request = hyper::Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Some(request)
}

fn inbound(response: hyper::Response<hyper::body::Incoming>, gone: CancellationToken) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers = end_to_end(&parts.headers);
    // The client may use another version.
    parts.version = Version::default();
    Response::from_parts(parts, Body::new(LeaderBody::new(body, gone)))
}

/// Without hop-by-hop headers, including those named in `Connection`.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(CONNECTION).into_iter();
    let named = named.flat_map(|names| names.to_str().unwrap_or_default().split(','));
    let named: Vec<String> = named.map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_of_connection = |name: &HeaderName| {
        HOP_BY_HOP.contains(name) || named.iter().any(|one| one == name.as_str())
    };
    let kept = headers.iter().filter(|(name, _)| !is_of_connection(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
