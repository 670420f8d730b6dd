//! Routes of a follower about itself: health and metrics.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::nodes::{NodeCount, NodeFigures};
use crate::http::{health, metrics, reply};
use crate::leadership::Leadership;

use super::{LeaderAddress, Node};

impl Node {
    /// `leads` is the lease of this node, if it leads.
    pub(super) fn figures(&self, leads: Option<&Leadership>) -> NodeFigures {
        let epoch = leads.map(Leadership::epoch);
        let epoch = epoch.or_else(|| Some(self.leader()?.epoch));
        let lease_age = match leads {
            Some(leadership) => leadership.lease_age(),
            None => self.0.lease_renewed.lock().map(|at| at.elapsed()),
        };
        let micros = self.0.round_trip_micros.load(Ordering::Relaxed);
        let has_probed = leads.is_none() && self.0.reaches_leader.load(Ordering::Relaxed);
        NodeFigures {
            is_leader: leads.is_some(),
            epoch: epoch.unwrap_or_default().0,
            lease_age,
            round_trip: has_probed.then_some(Duration::from_micros(micros)),
            nodes: leads.map(|_| self.count()),
            received: self.0.received.load(Ordering::Relaxed),
            forwarded: self.0.forwarded.load(Ordering::Relaxed),
            failed: self.0.failed.load(Ordering::Relaxed),
            forged: self.0.forged.load(Ordering::Relaxed),
            continued: self.0.continued.load(Ordering::Relaxed),
        }
    }

    fn count(&self) -> NodeCount {
        let others = self.0.others.list();
        let cut_off = others.iter().filter(|node| node.is_cut_off()).count() as u64;
        NodeCount {
            heard: 1 + others.len() as u64 - cut_off,
            cut_off,
        }
    }
}

/// Whether a node serves this path itself, or a part of it.
pub fn is_about_a_node(path: &str) -> bool {
    matches!(
        path,
        "/health" | "/health/live" | "/health/ready" | "/metrics"
    )
}

/// `None` for a path that the leader serves.
pub fn answer(node: &Node, leader: Option<&LeaderAddress>, path: &str) -> Option<Response> {
    if !is_about_a_node(path) {
        return None;
    }
    let reaches = leader.is_some() && node.0.reaches_leader.load(Ordering::Relaxed);
    let cause = match leader {
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
        "/health/ready" => Some(match (leader, reaches) {
            _ if node.0.leaving.is_cancelled() => {
                health::unavailable(&with_status(about, "draining"))
            }
            (None, _) => health::unavailable(&with_status(about, "starting")),
            (Some(_), false) => health::unavailable(&with_status(about, "cut_off")),
            (Some(_), true) => reply::with_status(StatusCode::OK, &with_status(about, "ready")),
        }),
        "/metrics" => {
            let is_ready = cause.is_none();
            let page = metrics::of_follower(&node.figures(None), is_ready);
            Some(([(CONTENT_TYPE, metrics::TEXT)], page).into_response())
        }
        // `/health`: without a problem, the leader serves this page.
        _ => cause
            .is_some()
            .then(|| reply::with_status(StatusCode::OK, &with_status(about, "degraded"))),
    }
}

fn with_status(mut about: Value, status: &str) -> Value {
    about["status"] = status.into();
    about
}
