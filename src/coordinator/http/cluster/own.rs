//! Routes of a follower about itself: health and metrics.

use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::condition::Phase;
use crate::http::{health, metrics, reply};
use crate::leadership::Epoch;

use super::{LeaderAddress, Node};

/// Counters of a node since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFigures {
    pub is_leader: bool,
    /// Epoch of the leader; 0 without one.
    pub epoch: i64,
    pub forwarded: u64,
    pub failed: u64,
    pub forged: u64,
}

impl Node {
    /// `leads` is the epoch of this node's leadership.
    pub(super) fn figures(&self, leads: Option<Epoch>) -> NodeFigures {
        let epoch = leads.or_else(|| Some(self.leader()?.epoch));
        NodeFigures {
            is_leader: leads.is_some(),
            epoch: epoch.unwrap_or_default().0,
            forwarded: self.0.forwarded.load(Ordering::Relaxed),
            failed: self.0.failed.load(Ordering::Relaxed),
            forged: self.0.forged.load(Ordering::Relaxed),
        }
    }
}

/// `None` for a path that the leader serves.
pub fn answer(node: &Node, leader: Option<&LeaderAddress>, path: &str) -> Option<Response> {
    let is_stopping = node.0.condition.phase() == Phase::Draining;
    let reaches = leader.is_some() && node.0.reaches_leader.load(Ordering::Relaxed);
    let cause = match leader {
        _ if is_stopping => Some("this coordinator is stopping".to_owned()),
        None => Some("no coordinator leads yet".to_owned()),
        Some(leader) if !reaches => Some(format!("the leader at {} does not answer", leader.url)),
        Some(_) => None,
    };
    let problems: Vec<Value> = cause
        .iter()
        .map(|cause| json!({"part": "cluster", "cause": cause}))
        .collect();
    let mut about = json!({
        "role": "follower",
        "leader": leader.map(|leader| leader.url.as_ref()),
        "epoch": leader.map(|leader| leader.epoch.0),
    });
    if !problems.is_empty() {
        about["problems"] = problems.into();
    }
    match path {
        "/health/live" => Some(reply::with_status(
            StatusCode::OK,
            &json!({"status": "live"}),
        )),
        "/health/ready" => Some(match (is_stopping, leader, reaches) {
            (true, ..) => health::unavailable(&with_status(about, "draining")),
            (_, None, _) => health::unavailable(&with_status(about, "starting")),
            (_, Some(_), false) => health::unavailable(&with_status(about, "cut_off")),
            (_, Some(_), true) => reply::with_status(StatusCode::OK, &with_status(about, "ready")),
        }),
        // Without a problem, the leader serves this page.
        "/health" if cause.is_some() => Some(reply::with_status(
            StatusCode::OK,
            &with_status(about, "degraded"),
        )),
        "/metrics" => {
            let is_ready = cause.is_none();
            let page = metrics::of_follower(&node.figures(None), is_ready);
            Some(([(CONTENT_TYPE, metrics::TEXT)], page).into_response())
        }
        _ => None,
    }
}

fn with_status(mut about: Value, status: &str) -> Value {
    about["status"] = status.into();
    about
}
