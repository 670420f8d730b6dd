//! The listener: this coordinator answers once it leads and has started; before that a page says so, or the leader of the
//! cluster answers through this node.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;

use super::accounts::{SecretSource, cluster_secret};
use super::condition::{Condition, Phase};
use super::http;
use super::http::cluster::Node;
use super::http::serve::{Connections, HouseholdLimit, Tls, serve};
use super::leadership::Epoch;
use super::start::{StartError, twice};
use super::state::Doors;
use super::storage::{Leader, Location, StorageError, announce, shared_facts};
use muster_process::tasks::Tasks;

/// Replies to clients that came before the start, until the router takes over.
const HANDED_OVER: Duration = Duration::from_secs(1);
/// Tokens, signatures and leases of a cluster hold for seconds.
const MOST_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// Where the coordinators of a cluster reach each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `http://HOST:PORT` of this one.
    address: String,
    /// A digest of the settings that all of them should share.
    settings: String,
}

impl ClusterSettings {
    /// `shared` is the text of the settings that all coordinators should have.
    pub fn new(address: String, shared: &str) -> Self {
        let digest = Sha256::digest(shared);
        let settings = digest[..8].iter().map(|byte| format!("{byte:02x}"));
        Self {
            address,
            settings: settings.collect(),
        }
    }
}

/// How connections are served.
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

/// A coordinator that answers nothing before it has started.
#[derive(Debug)]
pub struct Alone {
    listener: TcpListener,
    serving: Serving,
    until_started: Tasks,
    _ends_it: DropGuard,
    condition: Condition,
}

/// A coordinator that passes on to the leader what it does not answer itself.
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
        serve(first, starting, tls, connections, &until_started);
        Ok(Self::Alone(Alone {
            listener,
            serving,
            until_started,
            _ends_it: ends_it,
            condition,
        }))
    }

    /// Refuses what would not be one cluster: another server secret, and a clock that is wrong.
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
        let node = Node::new(&secret, &settings.settings, condition.clone(), tasks);
        let Serving { tls, connections } = serving;
        let household_limit = serve(listener, node.router(), tls, connections, tasks);
        node.exempt_nodes_from(household_limit.clone());
        node.probe(tasks);
        Ok(Self::InCluster(InCluster {
            node,
            household_limit,
            settings,
            condition,
        }))
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

    /// This coordinator leads, and starts.
    pub fn elected(&self) {
        match self {
            Self::Alone(alone) => alone.condition.enter(Phase::Starting),
            Self::InCluster(cluster) => {
                cluster.condition.enter(Phase::Starting);
                cluster.node.wait();
            }
        }
    }

    /// This coordinator answers from now on.
    pub async fn answer(
        self,
        doors: Doors,
        epoch: Epoch,
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
                cluster.node.lead(epoch, router);
                announce(database, epoch, &cluster.settings.address).await?;
                Ok(cluster.household_limit)
            }
        }
    }
}
