//! The listener: replies come from this coordinator once it leads and has started; before that from a page about the
//! startup, or through this node from the leader of the cluster.

use std::time::Duration;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;

use super::accounts::{SecretSource, cluster_secret};
use super::condition::{Condition, Phase};
use super::http;
use super::http::cluster::Node;
use super::http::serve::{Connections, HouseholdLimit, Tls, serve};
use super::leadership::Leadership;
use super::start_error::StartError;
use super::state::Doors;
use super::storage::{Leader, Location, StorageError, announce, follow, shared_facts};
use muster_process::tasks::Tasks;

/// Time for replies to requests from before the start, until the router takes over.
const HANDED_OVER: Duration = Duration::from_secs(1);
/// Tokens, signatures and leases of a cluster are valid for seconds.
const MOST_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// The addresses and shared settings of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Own address: `http://HOST:PORT`.
    address: String,
    /// A digest of the settings that all coordinators should share.
    settings: String,
}

impl ClusterSettings {
    /// `shared` is the text of the settings that all coordinators should share.
    pub fn new(address: String, shared: &str) -> Self {
        let digest = Sha256::digest(shared);
        Self {
            address,
            settings: HEXLOWER.encode(&digest[..8]),
        }
    }
}

/// Settings of the connections.
#[derive(Debug, Clone)]
pub struct Serving {
    pub tls: Option<Tls>,
    pub connections: Connections,
}

#[derive(Debug)]
pub enum Front {
    Alone(Alone),
    InCluster(InCluster),
}

/// A coordinator without a cluster, which serves nothing before its start.
#[derive(Debug)]
pub struct Alone {
    listener: TcpListener,
    serving: Serving,
    until_started: Tasks,
    _ends_it: DropGuard,
    condition: Condition,
}

/// A coordinator that forwards to the leader everything except its own routes.
#[derive(Debug)]
pub struct InCluster {
    node: Node,
    household_limit: HouseholdLimit,
    settings: ClusterSettings,
    condition: Condition,
}

impl Front {
    pub fn alone(
        listener: TcpListener,
        serving: Serving,
        condition: Condition,
    ) -> std::io::Result<Self> {
        let until_started = Tasks::default();
        let ends_it = until_started.stopping().drop_guard();
        let (listener, first) = twice(listener)?;
        let starting = http::starting(condition.clone());
        let Serving { tls, connections } = serving.clone();
        let connections = Connections {
            is_succeeded: true,
            ..connections
        };
        serve(first, starting, tls, connections, &until_started);
        Ok(Self::Alone(Alone {
            listener,
            serving,
            until_started,
            _ends_it: ends_it,
            condition,
        }))
    }

    /// Refuses a coordinator whose server secret or clock differs from the cluster's.
    pub async fn in_cluster(
        listener: TcpListener,
        serving: Serving,
        condition: Condition,
        settings: ClusterSettings,
        (database, secret): (&Location, &SecretSource),
        tasks: &Tasks,
    ) -> Result<Self, StartError> {
        let facts = shared_facts(database).await?;
        let difference = Duration::from_millis(facts.clock_ahead.unsigned_abs());
        if difference.saturating_sub(facts.uncertainty) > MOST_CLOCK_DIFFERENCE {
            return Err(StartError::Clock {
                ahead_millis: facts.clock_ahead,
                database: database.clone(),
            });
        }
        let secret = cluster_secret(secret, facts.secret_check)?;
        let node = Node::new(&settings.address, &secret, &settings.settings, tasks);
        let Serving { tls, connections } = serving;
        let household_limit = serve(listener, node.router(), tls, connections, tasks);
        node.exempt_nodes_from(household_limit.clone());
        node.probe(tasks);
        tasks.start(follow_to_the_end(node.clone(), database.clone()));
        Ok(Self::InCluster(InCluster {
            node,
            household_limit,
            settings,
            condition,
        }))
    }

    /// `None` without a cluster.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Self::Alone(_) => None,
            Self::InCluster(cluster) => Some(&cluster.node),
        }
    }

    /// Another coordinator leads.
    pub fn follow(&self, leader: Option<&Leader>) {
        match self {
            Self::Alone(alone) => alone.condition.enter(Phase::Standby),
            Self::InCluster(cluster) => {
                cluster.condition.enter(Phase::Standby);
                cluster.node.follow(leader);
            }
        }
    }

    /// This coordinator leads, and is starting.
    pub fn elected(&self) {
        match self {
            Self::Alone(alone) => alone.condition.enter(Phase::Starting),
            Self::InCluster(cluster) => {
                cluster.condition.enter(Phase::Starting);
                cluster.node.wait();
            }
        }
    }

    /// Serves requests from now on.
    pub async fn answer(
        self,
        doors: Doors,
        leadership: &Leadership,
        database: &Location,
        tasks: &Tasks,
    ) -> Result<HouseholdLimit, StorageError> {
        let router = http::router(doors);
        match self {
            Self::Alone(alone) => {
                // Both listeners share a socket: a connection accepted by the first one now would get a 503.
                alone.until_started.stop(HANDED_OVER).await;
                let Serving { tls, connections } = alone.serving;
                Ok(serve(alone.listener, router, tls, connections, tasks))
            }
            Self::InCluster(cluster) => {
                cluster.node.lead(leadership, router);
                let address = &cluster.settings.address;
                announce(database, leadership.epoch(), address).await?;
                Ok(cluster.household_limit)
            }
        }
    }
}

/// Once the node hands over or stops, its requests go on at the next leader.
async fn follow_to_the_end(node: Node, database: Location) {
    node.leaving().await;
    let follows = || node.needs_leader();
    follow(&database, |leader| node.follow(leader), follows).await;
}

/// Two handles of one socket: the second one serves until the first one takes over.
fn twice(listener: TcpListener) -> std::io::Result<(TcpListener, TcpListener)> {
    let listener = listener.into_std()?;
    let other = listener.try_clone()?;
    Ok((
        TcpListener::from_std(listener)?,
        TcpListener::from_std(other)?,
    ))
}
