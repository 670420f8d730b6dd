//! The other nodes of a cluster as the leader knows them, by their probes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::http::nodes::OtherNode;

/// In the probe of a node: its address.
pub const NODE: HeaderName = HeaderName::from_static("muster-node");
/// In the last probe of a node that stops.
pub const LEAVES: HeaderName = HeaderName::from_static("muster-leaves");

/// A silent node is forgotten after this time.
const REMEMBERED: Duration = Duration::from_secs(600);
const MOST: usize = 64;

/// When each node was heard last, by its address.
#[derive(Debug, Default)]
pub struct OtherNodes(Mutex<BTreeMap<Arc<str>, Instant>>);

impl OtherNodes {
    /// Reads the headers of a probe.
    pub fn hear(&self, headers: &mut HeaderMap) {
        let (node, leaves) = (headers.remove(NODE), headers.remove(LEAVES));
        let Some(address) = node.as_ref().and_then(|node| node.to_str().ok()) else {
            return;
        };
        let mut nodes = self.0.lock();
        nodes.retain(|_, heard| heard.elapsed() < REMEMBERED);
        if leaves.is_some() {
            nodes.remove(address);
        } else if nodes.len() < MOST || nodes.contains_key(address) {
            nodes.insert(address.into(), Instant::now());
        }
    }

    pub fn forget(&self) {
        self.0.lock().clear();
    }

    /// In the order of their addresses.
    pub fn list(&self) -> Vec<OtherNode> {
        let nodes = self.0.lock();
        let nodes = nodes.iter().map(|(address, heard)| OtherNode {
            address: address.clone(),
            silent_for: heard.elapsed(),
        });
        nodes.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::HeaderMap;
    use tokio::time::advance;

    use super::{LEAVES, NODE, OtherNodes, REMEMBERED};

    fn probe(address: &str, leaves: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(NODE, address.parse().unwrap());
        if leaves {
            headers.insert(LEAVES, "1".parse().unwrap());
        }
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn silent_nodes_are_cut_off_and_stopped_ones_leave_the_list() {
        let nodes = OtherNodes::default();
        let list = || {
            let nodes = nodes.list().into_iter();
            let nodes = nodes.map(|node| (node.address.to_string(), node.is_cut_off()));
            nodes.collect::<Vec<_>>()
        };
        let [a, b] = ["http://10.0.0.1:7010", "http://10.0.0.2:7010"];
        let mut headers = probe(b, false);
        nodes.hear(&mut headers);
        assert!(headers.is_empty());
        nodes.hear(&mut probe(a, false));
        assert_eq!(list(), [(a.to_owned(), false), (b.to_owned(), false)]);
        advance(Duration::from_secs(4)).await;
        nodes.hear(&mut probe(b, false));
        assert_eq!(list(), [(a.to_owned(), true), (b.to_owned(), false)]);
        nodes.hear(&mut probe(b, true));
        assert_eq!(list(), [(a.to_owned(), true)]);
        advance(REMEMBERED).await;
        nodes.hear(&mut probe(b, false));
        assert_eq!(list(), [(b.to_owned(), false)]);
    }
}
