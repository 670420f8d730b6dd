//! Connects a client of this node with the leader for a WebSocket: bytes are copied in both directions.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::request::Parts;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use muster_process::tasks::Tasks;

/// For each direction of a connection.
const BUFFER: usize = 16 << 10;

/// The client's upgrade, if it requests a WebSocket.
pub fn wanted(parts: &Parts) -> Option<OnUpgrade> {
    let has = |name, word: &str| {
        let values = parts.headers.get_all(name).into_iter();
        let mut words = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    let is_wanted = has(CONNECTION, "upgrade") && has(UPGRADE, "websocket");
    let client = parts.extensions.get::<OnUpgrade>();
    client.filter(|_| is_wanted).cloned()
}

/// Copies until one side ends, another coordinator leads or this one stops.
pub fn open(
    client: OnUpgrade,
    mut response: hyper::Response<Incoming>,
    (gone, stopping): (CancellationToken, CancellationToken),
    tasks: &Tasks,
) -> Response {
    let leader = on(&mut response);
    let (parts, _) = response.into_parts();
    tasks.start(async move {
        let (client, leader) = match tokio::try_join!(client, leader) {
            Ok((client, leader)) => (client, leader),
            Err(error) => return debug!("opening a WebSocket through this node failed: {error}"),
        };
        let (mut client, mut leader) = (TokioIo::new(client), TokioIo::new(leader));
        let copying = copy_bidirectional_with_sizes(&mut client, &mut leader, BUFFER, BUFFER);
        tokio::select! {
            ended = copying => if let Err(error) = ended {
                debug!("a WebSocket through this node broke: {error}");
            },
            () = gone.cancelled() => {}
            () = stopping.cancelled() => {}
        }
    });
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = parts.status;
    *reply.headers_mut() = HeaderMap::clone(&parts.headers);
    reply
}
