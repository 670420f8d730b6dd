//! The nodes of a cluster, for health and metrics.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::leadership::Epoch;

/// Nodes probe the leader twice a second.
pub const CUT_OFF_AFTER: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherNode {
    pub address: Arc<str>,
    pub silent_for: Duration,
}

impl OtherNode {
    /// The node ended without a word, or cannot reach this one.
    pub fn is_cut_off(&self) -> bool {
        self.silent_for >= CUT_OFF_AFTER
    }
}

/// Counters of a node since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFigures {
    pub is_leader: bool,
    /// Epoch of the leader; 0 without one.
    pub epoch: i64,
    /// Time since the leader renewed its lease.
    pub lease_age: Option<Duration>,
    /// Duration of the last probe of the leader; `None` at the leader, and after a failed probe.
    pub round_trip: Option<Duration>,
    /// `None` at a node that follows.
    pub nodes: Option<NodeCount>,
    /// Requests of clients to this node.
    pub received: u64,
    pub forwarded: u64,
    pub failed: u64,
    pub forged: u64,
    /// Streams that went on at another leader.
    pub continued: u64,
}

/// The nodes of a cluster, counted by its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCount {
    /// With the leader.
    pub heard: u64,
    pub cut_off: u64,
}

/// The nodes of a cluster as its leader knows them.
#[derive(Debug, Clone)]
pub struct ClusterNodes {
    pub epoch: Epoch,
    pub leader: Arc<str>,
    pub others: Vec<OtherNode>,
}

impl ClusterNodes {
    pub fn to_json(&self) -> Value {
        let leader = json!({"address": self.leader, "role": "leader", "status": "ready"});
        let others = self.others.iter().map(|node| {
            let status = if node.is_cut_off() {
                "cut_off"
            } else {
                "ready"
            };
            json!({"address": node.address, "role": "follower", "status": status})
        });
        let nodes: Vec<Value> = [leader].into_iter().chain(others).collect();
        json!({"epoch": self.epoch.0, "nodes": nodes})
    }

    /// A cause for each node that is cut off.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let silent = self.others.iter().filter(|node| node.is_cut_off());
        silent.map(|node| {
            format!(
                "the coordinator at {} was last heard {} s ago: it was killed, or cannot reach the leading one at {}",
                node.address,
                node.silent_for.as_secs(),
                self.leader
            )
        })
    }
}
