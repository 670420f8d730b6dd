//! Periodic probes of the leader: a node that is cut off from it is not ready.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::others::{LEAVES, NODE};
use super::{LeaderAddress, Node};

const EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(1);
const PATH: &str = "/health/live";

pub async fn run(node: Node, stopping: CancellationToken) {
    let mut role = node.0.role.subscribe();
    loop {
        let leader = node.leader();
        let sent = Instant::now();
        let reaches = match &leader {
            Some(leader) => answers(&node, leader, false).await,
            None => false,
        };
        if reaches {
            let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
            node.0.round_trip_micros.store(micros, Ordering::Relaxed);
        }
        let reached = node.0.reaches_leader.swap(reaches, Ordering::Relaxed);
        if let Some(leader) = leader.filter(|_| reaches != reached) {
            match reaches {
                true => info!("the leading coordinator at {} answers", leader.url),
                false => warn!(
                    "the leading coordinator at {} does not answer; this one is not ready until it does",
                    leader.url
                ),
            }
        }
        tokio::select! {
            () = stopping.cancelled() => break,
            () = sleep(EVERY) => {}
            _ = role.changed() => {}
        }
    }
    if let Some(leader) = node.leader() {
        answers(&node, &leader, true).await;
    }
}

async fn answers(node: &Node, leader: &LeaderAddress, is_last: bool) -> bool {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = axum::http::Uri::from_static(PATH);
    let headers = request.headers_mut();
    if let Ok(address) = HeaderValue::from_str(&node.0.address) {
        headers.insert(NODE, address);
    }
    if is_last {
        headers.insert(LEAVES, HeaderValue::from_static("1"));
    }
    let client = std::net::Ipv4Addr::UNSPECIFIED.into();
    let signed = node.0.signer.sign(client, &request);
    let answered = timeout(
        PATIENCE,
        node.0.forwarder.forward(leader, signed, request, None),
    )
    .await;
    matches!(answered, Ok(Ok(response)) if response.status() == StatusCode::OK)
}
