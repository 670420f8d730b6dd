//! One connection, HTTP/1.1 or HTTP/2, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::debug;

use super::activity::{Activity, Taken, Watched, Work};
use super::peer::Peer;
use super::place::Place;
use crate::coordinator::http::address::PeerAddress;

#[derive(Debug)]
pub struct Connection {
    pub router: Router,
    /// Whose it is; none when it has gone already.
    pub address: Option<SocketAddr>,
    /// For the head of a request.
    pub patience: Duration,
    pub idle: Duration,
    pub stopping: CancellationToken,
}

/// What a connection that is to end may still take for its last answer to be read.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// What was made already is taken within this.
const LAST_READS: Duration = Duration::from_millis(500);
/// Requests of one HTTP/2 connection at once.
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
            () = self.stopping.cancelled() => None,
            () = activity.idle_for(self.idle) => None,
            // Nobody reads what would still be made.
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
                    // Whoever still takes something may go on taking it; whoever does not is left.
                    () = activity.idle_for(LAST_WORDS) => Ok(()),
                }
            }
        };
        if let Err(error) = ended {
            debug!("a connection broke: {error}");
        }
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

/// Returns when the other side has said goodbye and takes nothing more. It may say so and still read what is ready.
async fn abandoned(peer: &Peer, activity: &Activity) {
    peer.goodbye().await;
    activity.still_for(LAST_READS).await;
}

async fn answer(
    router: Router,
    work: Work,
    request: Request<Incoming>,
) -> Result<Response<Taken>, Infallible> {
    let answer = router.oneshot(request.map(Body::new)).await?;
    Ok(answer.map(|body| work.replied(body)))
}
