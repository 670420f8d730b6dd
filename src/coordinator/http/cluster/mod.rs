//! Several coordinators of one database, behind any load balancer. The leader has the queue and serves requests itself;
//! the others forward requests and worker connections to it. Without a leader, requests wait for the next one.
//!
//! | file | contents |
//! | --- | --- |
//! | `forward` | a request and its response between two nodes |
//! | `streams` | streamed texts, which go on at the next leader |
//! | `tunnel` | a connection that becomes a WebSocket |
//! | `body` | request bodies that can be sent again |
//! | `signature` | the header with the client's address of a forwarded request |
//! | `probe` | periodic checks of the leader |
//! | `own` | routes of each node about itself |

mod body;
mod forward;
mod own;
mod probe;
mod signature;
mod streams;
mod tunnel;

#[cfg(test)]
mod tests;

pub use own::NodeFigures;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::{info, warn};

use crate::leadership::Epoch;
use crate::storage::Leader;
use muster_process::tasks::Tasks;

use super::address::PeerAddress;
use super::journal::{CONTINUES, JOURNAL};
use super::serve::HouseholdLimit;
use super::unbuilt;
use forward::{ForwardFailure, Forwarder};
use signature::{NodeHeader, NodeSigner};

/// A coordinator of a cluster. Clones share the state.
#[derive(Debug, Clone)]
pub struct Node(Arc<NodeState>);

#[derive(Debug)]
struct NodeState {
    role: watch::Sender<NodeRole>,
    signer: NodeSigner,
    forwarder: Forwarder,
    /// Nodes are exempt from it, since they forward the connections of many clients.
    household_limit: OnceLock<HouseholdLimit>,
    /// Whether the last probe of the leader succeeded.
    reaches_leader: AtomicBool,
    forwarded: AtomicU64,
    failed: AtomicU64,
    forged: AtomicU64,
    continued: AtomicU64,
    /// Bytes of journals of streams through this node.
    journals: Arc<AtomicUsize>,
    tasks: Tasks,
    /// Differing versions and settings of other nodes that were logged.
    other_builds: Mutex<HashSet<String>>,
}

/// How this node handles a request.
#[derive(Debug, Clone, Default)]
enum NodeRole {
    /// No leader is ready yet.
    #[default]
    Waiting,
    Following(LeaderAddress),
    Leading(Epoch, Router),
}

/// A leader that is ready.
#[derive(Debug, Clone)]
struct LeaderAddress {
    epoch: Epoch,
    /// `http://HOST:PORT`.
    url: Arc<str>,
    /// Cancelled once another coordinator leads: this one may have ended, or be suspended.
    gone: CancellationToken,
}

/// Set in responses of a node that does not lead to one that forwarded a request to it.
const NOT_LEADING: HeaderName = HeaderName::from_static("muster-not-leading");
/// Timeout of a request that waits for a leader: an election, and the start of the elected one.
const HOLD: Duration = Duration::from_secs(10);
/// Pause before the same leader is tried again.
const AGAIN: Duration = Duration::from_millis(50);

impl Node {
    /// `secret` is shared by all nodes, and `settings` is a digest of the settings that should be.
    pub fn new(secret: &[u8; 32], settings: &str, tasks: &Tasks) -> Self {
        Self(Arc::new(NodeState {
            role: watch::Sender::default(),
            signer: NodeSigner::new(secret, settings),
            forwarder: Forwarder::new(tasks),
            household_limit: OnceLock::new(),
            reaches_leader: AtomicBool::new(false),
            forwarded: AtomicU64::default(),
            failed: AtomicU64::default(),
            forged: AtomicU64::default(),
            continued: AtomicU64::default(),
            journals: Arc::default(),
            tasks: tasks.clone(),
            other_builds: Mutex::default(),
        }))
    }

    /// Handles every request, whichever node leads.
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    /// Exempts nodes from the limit of connections per client.
    pub fn exempt_nodes_from(&self, limit: HouseholdLimit) {
        let _ = self.0.household_limit.set(limit);
    }

    /// Checks the leader periodically.
    pub fn probe(&self, tasks: &Tasks) {
        tasks.start(probe::run(self.clone(), tasks.stopping()));
    }

    /// Another coordinator leads, or none.
    pub fn follow(&self, leader: Option<&Leader>) {
        let leader = leader.and_then(|leader| Some((leader.epoch, leader.address.as_deref()?)));
        let is_same = match (&*self.0.role.borrow(), leader) {
            (NodeRole::Following(now), Some(leader)) => (now.epoch, &*now.url) == leader,
            (NodeRole::Waiting, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        self.enter(match leader {
            Some((epoch, url)) => {
                info!("following the coordinator at {url}");
                NodeRole::Following(LeaderAddress {
                    epoch,
                    url: url.into(),
                    gone: CancellationToken::new(),
                })
            }
            None => NodeRole::Waiting,
        });
    }

    /// This coordinator was elected, and is starting.
    pub fn wait(&self) {
        self.enter(NodeRole::Waiting);
    }

    /// This coordinator leads and serves requests itself.
    pub fn lead(&self, epoch: Epoch, router: Router) {
        self.enter(NodeRole::Leading(epoch, router));
    }

    fn enter(&self, role: NodeRole) {
        if let NodeRole::Following(leader) = self.0.role.send_replace(role) {
            leader.gone.cancel();
        }
    }

    fn leader(&self) -> Option<LeaderAddress> {
        match &*self.0.role.borrow() {
            NodeRole::Following(leader) => Some(leader.clone()),
            _ => None,
        }
    }

    /// The client of a request forwarded by another node; `None` for a request that came from its client. A header
    /// without a valid signature is refused.
    fn sender(&self, request: &mut Request) -> Result<Option<IpAddr>, ()> {
        let Some(signed) = request.headers_mut().remove(signature::FORWARDED) else {
            for name in [JOURNAL, CONTINUES] {
                request.headers_mut().remove(name);
            }
            return Ok(None);
        };
        let sender = self.0.signer.verify(&signed, request);
        let Some(NodeHeader { client, build }) = sender else {
            let node = peer(request);
            let times = self.0.forged.fetch_add(1, Ordering::Relaxed) + 1;
            warn!(
                "refused a request from {node} with the header of a coordinator that did not sign it ({times} so far)"
            );
            return Err(());
        };
        if let Some(limit) = self.0.household_limit.get() {
            limit.exempt(peer(request));
        }
        self.compare(&build, peer(request));
        request.extensions_mut().insert(PeerAddress(client));
        Ok(Some(client))
    }
}

impl Node {
    /// Logs once a node with other settings.
    fn compare(&self, build: &str, node: IpAddr) {
        const MOST: usize = 64;
        if !self.0.signer.differs(build) {
            return;
        }
        let mut others = self.0.other_builds.lock();
        if others.len() < MOST && others.insert(build.to_owned()) {
            warn!(
                "the coordinator at {node} has other settings in [serve], [serve.media], [[serve.price]] or [[serve.alias]] than \
                 this one: after a change of leader the service would differ"
            );
        }
    }
}

/// The address of the peer.
fn peer(request: &Request) -> IpAddr {
    let peer = request.extensions().get::<PeerAddress>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.to_canonical())
}

async fn answer(State(node): State<Node>, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let Ok(sender) = node.sender(&mut request) else {
        return unbuilt::refuse(
            400,
            "the header muster-forwarded is for coordinators of this service alone".to_owned(),
            &path,
        );
    };
    if sender.is_some() {
        let Some(opened) = streams::opened(request).await else {
            let why = "the journal of the reply to continue cannot be read".to_owned();
            return unbuilt::refuse(400, why, &path);
        };
        request = opened;
    }
    let deadline = Instant::now() + HOLD;
    let mut role = node.0.role.subscribe();
    loop {
        let now = role.borrow_and_update().clone();
        let pause = match now {
            NodeRole::Leading(epoch, router) => {
                if own::is_about_a_node(&path) {
                    request.extensions_mut().insert(node.figures(Some(epoch)));
                }
                return router
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {});
            }
            _ if sender.is_some() => return not_leading(),
            NodeRole::Waiting => {
                if let Some(response) = own::answer(&node, None, &path) {
                    return response;
                }
                HOLD
            }
            NodeRole::Following(leader) => {
                if let Some(response) = own::answer(&node, Some(&leader), &path) {
                    return response;
                }
                match node.forward(&leader, request).await {
                    Ok(response) => return response,
                    Err(ForwardFailure::NotSent(back)) => request = *back,
                    Err(ForwardFailure::Broken) => {
                        return unbuilt::unavailable(
                            "the leading coordinator ended while it had this request; repeat it",
                            &path,
                        );
                    }
                }
                AGAIN
            }
        };
        tokio::select! {
            _ = role.changed() => {}
            () = sleep(pause) => {}
            () = sleep_until(deadline) => {
                return unbuilt::unavailable(
                    "no leading coordinator is reached; retry in a moment",
                    &path,
                );
            }
        }
    }
}

impl Node {
    async fn forward(
        &self,
        leader: &LeaderAddress,
        request: Request,
    ) -> Result<Response, ForwardFailure> {
        let client = peer(&request);
        // The client disconnected before the end of its body.
        let kept = streams::keep(request, client).await;
        let (request, kept) = kept.map_err(|_| ForwardFailure::Broken)?;
        let signed = self.0.signer.sign(client, &request);
        let answered = self.0.forwarder.forward(leader, signed, request).await;
        let answered = answered.map(|response| self.pass_on(response, kept));
        let count = match &answered {
            Ok(_) => &self.0.forwarded,
            Err(_) => &self.0.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        answered
    }
}

fn not_leading() -> Response {
    let mut response = StatusCode::MISDIRECTED_REQUEST.into_response();
    let yes = HeaderValue::from_static("1");
    response.headers_mut().insert(NOT_LEADING, yes);
    response
}
