//! A connection, HTTP/1.1 or HTTP/2, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::debug;

use super::activity::{Activity, Taken, Watched, Work};
use super::peer::Peer;
use super::place::Place;
use crate::error::ApiError;
use crate::http::serve::PeerAddress;
use muster_protocol::job::FailureKind;

#[derive(Debug)]
pub struct Connection {
    pub router: Router,
    /// The client's address; `None` if it has disconnected already.
    pub address: Option<SocketAddr>,
    /// Timeout for the head of a request.
    pub patience: Duration,
    pub idle: Duration,
    pub stopping: CancellationToken,
}

/// How long a closing connection may take to read its last reply.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long a new connection may take to its first request at shutdown.
const FIRST_REQUEST: Duration = Duration::from_millis(500);
/// How long a half-closed client may take to read data that is ready.
const LAST_READS: Duration = Duration::from_millis(500);
/// Concurrent requests of an HTTP/2 connection.
const MOST_STREAMS: u32 = 128;
const LARGEST_HEAD: usize = 64 << 10;

impl Connection {
    /// Serves the stream, which is its peer's, plain or encrypted.
    pub async fn serve<S>(self, stream: S, peer: Peer, place: Place)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Activity::new());
        let io = TokioIo::new(Watched::new(stream, activity.clone(), place));
        let builder = self.builder();
        let service = service_fn(|mut request: Request<Incoming>| {
            if let Some(address) = self.address {
                request.extensions_mut().insert(PeerAddress(address.ip()));
            }
            answer(self.router.clone(), activity.work(), request)
        });
        let mut serving = pin!(builder.serve_connection_with_upgrades(io, service));
        let ended = tokio::select! {
            ended = serving.as_mut() => Some(ended),
            () = self.stopped(&activity) => None,
            () = activity.idle_for(self.idle) => None,
            // The client is gone, so the reply is dropped.
            () = abandoned(&peer, &activity) => return,
        };
        drop(peer);
        let ended = match ended {
            Some(ended) => ended,
            None => {
                serving.as_mut().graceful_shutdown();
                activity.get_on();
                tokio::select! {
                    ended = serving => ended,
                    // A client that still reads may finish; an idle one is dropped.
                    () = activity.idle_for(LAST_WORDS) => Ok(()),
                }
            }
        };
        if let Err(error) = ended {
            debug!("connection failed: {error}");
        }
    }

    /// At shutdown, a connection that is new may still bring its first request.
    async fn stopped(&self, activity: &Activity) {
        self.stopping.cancelled().await;
        activity.begun_within(FIRST_REQUEST).await;
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience)
            .max_buf_size(LARGEST_HEAD);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(LARGEST_HEAD as u32)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20));
        builder
    }
}

/// Returns when the peer has closed its side and reads nothing more. A half-closed peer may still read data that is
/// ready.
async fn abandoned(peer: &Peer, activity: &Activity) {
    peer.goodbye().await;
    activity.still_for(LAST_READS).await;
}

async fn answer(
    router: Router,
    work: Work,
    request: Request<Incoming>,
) -> Result<Response<Taken>, Infallible> {
    let answer = match host_problem(&request) {
        None => router.oneshot(request.map(Body::new)).await?,
        Some(problem) => bad_host(problem),
    };
    Ok(answer.map(|body| work.replied(body)))
}

/// The error in the host of an HTTP/1 request: proxies could read two hosts differently (RFC 9112, 3.2).
fn host_problem<B>(request: &Request<B>) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Some("the request has several Host headers: send one"),
        (None, None) if request.version() == Version::HTTP_11 => {
            Some("the request has no Host header: HTTP/1.1 requires one")
        }
        (Some(host), None) if !is_host(host) => Some("the Host header is not a valid host"),
        _ => None,
    }
}

fn is_host(value: &HeaderValue) -> bool {
    // Empty if a request has no host.
    value.is_empty() || Authority::try_from(value.as_bytes()).is_ok()
}

fn bad_host(problem: &'static str) -> Response<Body> {
    let mut answer = ApiError::new(FailureKind::InvalidRequest, problem).into_response();
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}

#[cfg(test)]
mod tests {
    use hyper::{Request, Version};

    use super::host_problem;

    #[test]
    fn a_request_of_http_1_1_names_one_host() {
        let check = |version: Version, hosts: &[&str], is_good: bool| {
            let mut request = Request::builder().version(version);
            for host in hosts {
                request = request.header("host", *host);
            }
            let problem = host_problem(&request.body(()).unwrap());
            assert_eq!(
                problem.is_none(),
                is_good,
                "{version:?} {hosts:?}: {problem:?}"
            );
        };
        check(Version::HTTP_11, &["example.org"], true);
        check(Version::HTTP_11, &["[::1]:7010"], true);
        check(Version::HTTP_11, &[""], true);
        check(Version::HTTP_11, &[], false);
        check(Version::HTTP_11, &["a", "b"], false);
        check(Version::HTTP_11, &["a", "a"], false);
        check(Version::HTTP_11, &["a b"], false);
        check(Version::HTTP_10, &[], true);
        check(Version::HTTP_10, &["a", "b"], false);
        check(Version::HTTP_2, &[], true);
    }
}
