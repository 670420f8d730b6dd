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
//! | `others` | the other nodes, as the leader knows them |
//! | `own` | routes of each node about itself |

mod body;
mod forward;
mod others;
mod own;
mod probe;
mod signature;
mod streams;
mod tunnel;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::{info, warn};

use crate::error::ApiError;
use crate::http::headers::NOT_LEADING;
use crate::http::nodes::{CUT_OFF_AFTER, ClusterNodes};
use crate::http::serve::PeerAddress;
use crate::leadership::{Epoch, Leadership};
use crate::storage::Leader;
use muster_process::tasks::Tasks;

use super::journal::{CONTINUES, JOURNAL, REPEATS};
use super::serve::HouseholdLimit;
use super::unbuilt;
use forward::{ForwardFailure, Forwarder};
use others::{LEAVES, NODE, OtherNodes};
use signature::{NodeHeader, NodeSigner};

/// A coordinator of a cluster. Clones share the state.
#[derive(Debug, Clone)]
pub struct Node(Arc<NodeState>);

#[derive(Debug)]
struct NodeState {
    /// Own address for other nodes: `http://HOST:PORT`.
    address: Arc<str>,
    role: watch::Sender<NodeRole>,
    signer: NodeSigner,
    forwarder: Forwarder,
    /// Nodes are exempt from it, since they forward the connections of many clients.
    household_limit: OnceLock<HouseholdLimit>,
    /// Whether the last probe of the leader succeeded.
    reaches_leader: AtomicBool,
    /// Duration of the last probe that succeeded, in microseconds.
    round_trip_micros: AtomicU64,
    /// When the leader renewed its lease, as its row said last.
    lease_renewed: Mutex<Option<Instant>>,
    /// Requests of clients.
    received: AtomicU64,
    forwarded: AtomicU64,
    failed: AtomicU64,
    forged: AtomicU64,
    continued: AtomicU64,
    /// Bytes of journals of streams through this node.
    journals: Arc<AtomicUsize>,
    /// Held by each request until its reply has begun, and by each stream that may go on at another leader.
    work: Arc<()>,
    /// The time of the last request of another node.
    heard: Mutex<Option<Instant>>,
    others: OtherNodes,
    /// The last epoch in which this node led; 0 if it did not.
    led: AtomicI64,
    /// This node stops, or hands over.
    leaving: CancellationToken,
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
    Leading(Leadership, Router),
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

/// Timeout of a request that waits for a leader: an election, and the start of the elected one.
const HOLD: Duration = Duration::from_secs(10);
/// Time in which a lost leader is replaced.
const REPLACED: Duration = Duration::from_secs(5);
/// Pause before the same leader is tried again.
const AGAIN: Duration = Duration::from_millis(50);

impl Node {
    /// `secret` is shared by all nodes, and `settings` is a digest of the settings that should be.
    pub fn new(address: &str, secret: &[u8; 32], settings: &str, tasks: &Tasks) -> Self {
        Self(Arc::new(NodeState {
            address: address.into(),
            role: watch::Sender::default(),
            signer: NodeSigner::new(secret, settings),
            forwarder: Forwarder::new(tasks),
            household_limit: OnceLock::new(),
            reaches_leader: AtomicBool::new(false),
            round_trip_micros: AtomicU64::default(),
            lease_renewed: Mutex::default(),
            received: AtomicU64::default(),
            forwarded: AtomicU64::default(),
            failed: AtomicU64::default(),
            forged: AtomicU64::default(),
            continued: AtomicU64::default(),
            journals: Arc::default(),
            work: Arc::default(),
            heard: Mutex::default(),
            others: OtherNodes::default(),
            led: AtomicI64::default(),
            leaving: tasks.stopping().child_token(),
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
        *self.0.lease_renewed.lock() =
            leader.and_then(|leader| Instant::now().checked_sub(leader.lease_age));
        let leader = leader.and_then(|leader| Some((leader.epoch, leader.address.as_deref()?)));
        // After its own time as leader, a node follows the next one only.
        let led = self.0.led.load(Ordering::Relaxed);
        let leader = leader.filter(|(epoch, _)| epoch.0 > led);
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
    pub fn lead(&self, leadership: &Leadership, router: Router) {
        self.0.led.store(leadership.epoch().0, Ordering::Relaxed);
        // Nodes from an earlier time as leader may have ended since.
        self.0.others.forget();
        self.enter(NodeRole::Leading(leadership.clone(), router));
    }

    /// Leads no longer: requests wait for the next leader, as at the nodes that follow.
    pub fn resign(&self) {
        self.enter(NodeRole::Waiting);
        self.0.leaving.cancel();
    }

    /// Whether another node can lead instead of this one.
    pub fn has_followers(&self) -> bool {
        let heard = *self.0.heard.lock();
        heard.is_some_and(|heard| heard.elapsed() < CUT_OFF_AFTER)
    }

    /// Returns once this node hands over or stops.
    pub async fn leaving(&self) {
        self.0.leaving.cancelled().await;
    }

    /// Returns once another node leads.
    pub async fn follows(&self) {
        let mut role = self.0.role.subscribe();
        // The sender lives as long as this node.
        let _ = role
            .wait_for(|role| matches!(role, NodeRole::Following(_)))
            .await;
    }

    /// Whether requests of this node need a leader: until it stops and the last of them has ended.
    pub fn needs_leader(&self) -> bool {
        !self.0.tasks.stopping().is_cancelled() || self.open_requests() > 0
    }

    /// Requests without a reply so far, and streams that may go on at another leader.
    pub fn open_requests(&self) -> usize {
        Arc::strong_count(&self.0.work) - 1
    }

    fn working(&self) -> Arc<()> {
        self.0.work.clone()
    }

    fn leads(&self) -> bool {
        matches!(&*self.0.role.borrow(), NodeRole::Leading(..))
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
            for name in [JOURNAL, CONTINUES, REPEATS, NODE, LEAVES] {
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
        *self.0.heard.lock() = Some(Instant::now());
        self.0.others.hear(request.headers_mut());
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
    match sender {
        Some(_) => node.answer_node(request, &path).await,
        None => node.answer_client(request, &path).await,
    }
}

impl Node {
    /// A request that another node forwarded.
    async fn answer_node(&self, request: Request, path: &str) -> Response {
        let Some(mut request) = streams::opened(request).await else {
            let why = "the journal of the reply to continue cannot be read".to_owned();
            return unbuilt::refuse(400, why, path);
        };
        let role = self.0.role.borrow().clone();
        let NodeRole::Leading(leadership, router) = role else {
            return not_leading();
        };
        self.insert_figures(&mut request, &leadership);
        let response = router.oneshot(request).await;
        response.unwrap_or_else(|never| match never {})
    }

    async fn answer_client(&self, request: Request, path: &str) -> Response {
        let _working = self.working();
        if !own::is_about_a_node(path) {
            self.0.received.fetch_add(1, Ordering::Relaxed);
        }
        let (mut request, copy) = match body::read_small(request).await {
            Ok(read) => read,
            Err(broken) => return ApiError::from(broken).into_response(),
        };
        streams::mark(&mut request, copy.as_ref());
        let mut deadline = Instant::now() + HOLD;
        let mut lost_with: Option<Epoch> = None;
        let mut role = self.0.role.subscribe();
        loop {
            let sent = Instant::now();
            let now = role.borrow_and_update().clone();
            if lost_with.take_if(|epoch| !now.follows(*epoch)).is_some() {
                deadline = sent + HOLD;
            }
            let pause = match now {
                // A request that it may have settled waits for its successor.
                NodeRole::Following(leader) if lost_with == Some(leader.epoch) => HOLD,
                NodeRole::Leading(leadership, router) => {
                    self.insert_figures(&mut request, &leadership);
                    let here = (leadership.epoch(), router);
                    match self.run(here, request, copy.as_ref()).await {
                        Ok(response) => return response,
                        Err(back) => request = *back,
                    }
                    deadline += sent.elapsed();
                    HOLD
                }
                NodeRole::Waiting => {
                    if let Some(response) = own::answer(self, None, path) {
                        return response;
                    }
                    HOLD
                }
                NodeRole::Following(leader) => {
                    if let Some(response) = own::answer(self, Some(&leader), path) {
                        return response;
                    }
                    match self.forward(&leader, request, copy.clone()).await {
                        Ok(response) => return response,
                        Err(ForwardFailure::NotSent(back)) => request = *back,
                        Err(ForwardFailure::Returned(back)) => {
                            request = *back;
                            // The leader may have had it for long.
                            deadline += sent.elapsed();
                        }
                        Err(ForwardFailure::Lost(back)) => {
                            let Some(repeated) = streams::repeated(*back) else {
                                return leader_ended(path);
                            };
                            request = repeated;
                            lost_with = Some(leader.epoch);
                            deadline = Instant::now() + REPLACED;
                        }
                        Err(ForwardFailure::Broken) => return leader_ended(path),
                    }
                    AGAIN
                }
            };
            tokio::select! {
                _ = role.changed() => {}
                () = sleep(pause) => {}
                () = sleep_until(deadline) => {
                    if lost_with.is_some() {
                        return leader_ended(path);
                    }
                    return unbuilt::unavailable(
                        "no leading coordinator is reached; retry in a moment",
                        path,
                    );
                }
            }
        }
    }

    fn insert_figures(&self, request: &mut Request, leadership: &Leadership) {
        if own::is_about_a_node(request.uri().path()) {
            let figures = self.figures(Some(leadership));
            request.extensions_mut().insert(figures);
            let nodes = ClusterNodes {
                epoch: leadership.epoch(),
                leader: self.0.address.clone(),
                others: self.0.others.list(),
            };
            request.extensions_mut().insert(nodes);
        }
    }

    async fn forward(
        &self,
        leader: &LeaderAddress,
        mut request: Request,
        copy: Option<Bytes>,
    ) -> Result<Response, ForwardFailure> {
        let kept = streams::keep(&request, copy.as_ref(), leader.epoch);
        streams::write_mark(&mut request);
        let signed = self.0.signer.sign(peer(&request), &request);
        let answered = self
            .0
            .forwarder
            .forward(leader, signed, request, copy)
            .await;
        let answered = answered.map(|response| self.pass_on(response, kept));
        let count = match &answered {
            Ok(_) => &self.0.forwarded,
            Err(_) => &self.0.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        answered
    }
}

impl NodeRole {
    fn follows(&self, leader: Epoch) -> bool {
        matches!(self, Self::Following(now) if now.epoch == leader)
    }
}

fn leader_ended(path: &str) -> Response {
    unbuilt::unavailable(
        "the leading coordinator ended while it had this request; repeat it",
        path,
    )
}

fn not_leading() -> Response {
    let mut response = StatusCode::MISDIRECTED_REQUEST.into_response();
    let yes = HeaderValue::from_static("1");
    response.headers_mut().insert(NOT_LEADING, yes);
    response
}
