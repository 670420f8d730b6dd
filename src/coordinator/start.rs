//! Starts a coordinator from its settings, and shuts it down.

use std::fs::{self, File, TryLockError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::accounts::{Accounts, NewKey, NoAdministrator, SecretSource};
use super::condition::{Condition, Phase};
use super::dispatch::Facts;
use super::egress::Egress;
use super::erasure::{ErasureParts, Erasures};
use super::front::{ClusterSettings, Front, Serving};
use super::http::cluster::Node;
pub use super::http::serve::TlsFiles;
use super::http::serve::{Certificates, Connections, HouseholdLimit};
use super::kudos::Settlement;
use super::leadership::Leadership;
use super::local_models::{LocalModels, LocalModelsSlot};
use super::media::{Links, Media, MediaSettings};
use super::messages::Messages;
use super::moderation::{Moderation, Rules};
use super::modes::Modes;
use super::passkeys::Passkeys;
use super::people::{People, Rewards};
use super::pictures::{Pictures, Results, Sources};
use super::pollers::{Badges, Pollers};
use super::requests::{Requests, UNWRITTEN};
use super::responses::Responses;
use super::rigs::{Records, RigSettings, Rigs};
use super::room::Memory;
use super::settlements::{Aside, release_lost};
use super::start_error::StartError;
use super::state::{DoorSettings, Doors, LiveSettings};
use super::stats::Stats;
use super::storage::{Location, StorageError, Store, lead};
use super::switchboard::{Books, Drained, Switchboard};
use super::webhooks::Webhooks;
use super::workers::{Workers, WorkersSettings, mark_large};
use super::{dispatch, kudos, rigs};
use muster_process::tasks::Tasks;
use muster_protocol::job::Kudos;
use muster_reader::Reader;

/// Settings of a coordinator.
#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    pub tls: Option<TlsFiles>,
    pub database: Location,
    pub secret: SecretSource,
    pub media: MediaSettings,
    /// Public URL, if not the listen address.
    pub public_url: Option<String>,
    pub doors: DoorSettings,
    pub dispatch: dispatch::Settings,
    pub prices: kudos::Prices,
    /// Earnings after which an owner is trusted; `None` if trust is not required.
    pub trust_after: Option<Kudos>,
    /// Limit of open connections; `None` is unlimited.
    pub connections_per_address: Option<usize>,
    /// Lifetime of the records of ended jobs.
    pub retention: Duration,
    /// Reads clients' audio and video.
    pub reader: Reader,
    /// `None` if a coordinator without the lease serves nothing.
    pub cluster: Option<ClusterSettings>,
}

/// A running coordinator.
pub struct Coordinator {
    address: SocketAddr,
    certificates: Option<Certificates>,
    settings: LiveSettings,
    household_limit: HouseholdLimit,
    condition: Condition,
    local_models: LocalModelsSlot,
    accounts: Accounts,
    switchboard: Switchboard,
    workers: Workers,
    responses: Responses,
    first_key: Option<NewKey>,
    leadership: Leadership,
    /// `None` without a cluster.
    node: Option<Node>,
    /// Everything that only the leader runs.
    duties: Tasks,
    tasks: Tasks,
    _lock: Option<File>,
}

impl Coordinator {
    pub async fn start(settings: Settings, tasks: &Tasks) -> Result<Self, StartError> {
        if settings.doors.development.is_some() && !settings.listen.ip().is_loopback() {
            return Err(StartError::Exposed(settings.listen));
        }
        raise_file_limit();
        let lock = lock(&settings.database)?;
        let condition = Condition::default();
        condition.enter(Phase::Starting);
        let open = |files| Certificates::open(files, condition.clone());
        let certificates = settings.tls.map(open).transpose()?;
        let tls = certificates.as_ref().map(Certificates::tls);
        let (listener, address) = listen(settings.listen).await?;
        let connections = Connections {
            most_of_household: settings.connections_per_address,
            ..Connections::behind(&settings.doors.trusted_proxies)
        };
        let has_tls = tls.is_some();
        let serving = Serving { tls, connections };
        let front = match settings.cluster {
            None => Front::alone(listener, serving, condition.clone()).map_err(|cause| {
                StartError::Listen {
                    address: settings.listen,
                    cause,
                }
            })?,
            Some(cluster) => {
                let shared = (&settings.database, &settings.secret);
                let condition = condition.clone();
                Front::in_cluster(listener, serving, condition, cluster, shared, tasks).await?
            }
        };
        let node = front.node().cloned();
        // In a cluster the leader's part ends before its connections, whose requests go on at the next leader.
        let duties = match &node {
            None => tasks.clone(),
            Some(_) => tasks.part(),
        };
        let (all, tasks) = (tasks, &duties);
        let leadership = lead(&settings.database, |leader| front.follow(leader), tasks).await?;
        front.elected();
        let store = Store::open_as(leadership.clone(), &settings.database, tasks).await?;
        let accounts = Accounts::open(store.clone(), &settings.secret, tasks).await?;
        // Shown only once, so it is created after most steps that can fail.
        let first_key = accounts.first_start().await?;
        refuse_unguarded(settings.listen, &accounts).await?;
        store.keep_records(settings.retention, tasks);
        let records = Records::new(store.modes());
        let prices = Arc::new(settings.prices);
        let notes = rigs::notes(records.clone());
        let trust_after = settings.trust_after;
        let books = books(&store, &accounts, prices.clone(), trust_after, notes);
        let links = Links {
            secret: accounts.derived_secret("links to media"),
            base: settings.public_url.unwrap_or_else(|| url(has_tls, address)),
        };
        let media = Media::open(&settings.media, &links, tasks).await?;
        let grace = settings.dispatch.grace;
        let mut switchboard = Switchboard::led(leadership.clone(), settings.dispatch, books, tasks)
            .marking(mark_large);
        if node.is_some() {
            switchboard = switchboard.with_workers_by(Instant::now() + WORKERS_CONNECT);
        }
        let gives_months = settings.doors.development.is_none();
        let shelves = Shelves {
            store,
            media,
            records,
            reader: settings.reader,
        };
        let mut doors = doors(shelves, accounts, switchboard, settings.doors, grace, tasks).await?;
        doors.condition = condition.clone();
        let local_models = doors.local_models.clone();
        let (accounts, switchboard) = (doors.accounts.clone(), doors.switchboard.clone());
        let rewards = Rewards {
            store: doors.store.clone(),
            accounts: accounts.clone(),
            switchboard: switchboard.clone(),
            rigs: doors.rigs.clone(),
            prices,
            trust_after,
            gives_months,
        };
        rewards.start(tasks);
        let (workers, responses) = (doors.workers.clone(), doors.responses.clone());
        let live_settings = doors.settings.clone();
        let answering = front.answer(doors, &leadership, &settings.database, all);
        let household_limit = answering.await?;
        if let Some(certificates) = &certificates {
            certificates.watch(tasks);
        }
        info!("listening on {address}");
        Ok(Self {
            address,
            certificates,
            settings: live_settings,
            household_limit,
            condition,
            local_models,
            accounts,
            switchboard,
            workers,
            responses,
            first_key,
            leadership,
            node,
            tasks: all.clone(),
            duties,
            _lock: lock,
        })
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        url(self.certificates.is_some(), self.address)
    }

    /// Marks the coordinator as ready: everything that requests need is loaded.
    pub fn is_ready(&self) {
        self.condition.enter(Phase::Serving);
    }

    /// Applies settings that can change at run time: certificates, limits and texts. Other settings stay as at the
    /// start.
    pub async fn reload(&self, settings: Settings) {
        if let (Some(certificates), Some(files)) = (&self.certificates, settings.tls) {
            certificates.reload(files);
        }
        self.household_limit
            .change(settings.connections_per_address);
        self.switchboard
            .change_limits(settings.dispatch.limits())
            .await;
        self.responses.change(settings.doors.responses);
        self.settings.change(settings.doors);
    }

    /// The listening address, which may be unspecified.
    pub fn listens_on(&self) -> SocketAddr {
        self.address
    }

    /// The administrator's key, if this was the first start. Shown only once.
    pub fn first_key(&self) -> Option<&str> {
        self.first_key.as_ref().map(|key| key.text.expose())
    }

    /// Creates a key with every scope for an administrator without a usable key.
    pub async fn new_admin_key(&self, label: &str) -> Result<NewKey, NoAdministrator> {
        self.accounts.admin_key(label).await
    }

    /// Lets `POST /api/pull` download models for the worker beside it.
    pub fn serve_local_models(&self, models: Arc<dyn LocalModels>) {
        self.local_models.fill(models);
    }

    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// For connections of a worker in this process.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Returns once another coordinator has taken over the database, after which this one writes nothing.
    pub async fn fenced(&self) {
        self.leadership.fenced().await;
    }

    /// Refuses new work and waits for running jobs. The leader of a cluster with other nodes hands over instead.
    pub async fn drain(self, within: Duration) -> Drained {
        self.condition.enter(Phase::Draining);
        if let Some(node) = self.node.clone().filter(Node::has_followers) {
            return self.hand_over(&node, within).await;
        }
        let drained = self.switchboard.drain(within).await;
        let (duties, all) = tokio::join!(self.duties.stop(LAST_WORDS), self.tasks.stop(LAST_WORDS));
        if !(duties && all) {
            warn!("shutdown timed out: open responses or pending writes were dropped");
        }
        drained
    }

    /// Ends the leadership as soon as ended jobs are settled. Another node leads then, and clients of this one go on through
    /// it; the process ends with their requests.
    async fn hand_over(self, node: &Node, within: Duration) -> Drained {
        let until = Instant::now() + within;
        info!("handing over to another coordinator of the cluster");
        node.resign();
        self.switchboard.hand_over(SETTLED).await;
        if !self.duties.stop(LAST_WORDS).await {
            warn!("handing over timed out: open responses or pending writes were dropped");
        }
        match timeout_at(until, node.follows()).await {
            Ok(()) => info!("another coordinator leads; requests of this one go on through it"),
            Err(_) => warn!("no other coordinator leads yet: the requests of this one are dropped"),
        }
        let left = until.saturating_duration_since(Instant::now());
        let cut_off = match self.tasks.stop(left).await {
            true => 0,
            false => node.open_requests() as u64,
        };
        Drained { cut_off }
    }
}

/// Without required trust, every owner is paid in full, without escrow.
fn books(
    store: &Store,
    accounts: &Accounts,
    prices: Arc<kudos::Prices>,
    trust_after: Option<Kudos>,
    notes: impl Fn(&Facts, &Settlement) -> Aside + Send + Sync + 'static,
) -> Books {
    let (store, accounts) = (store.clone(), accounts.clone());
    let is_trusted = move |owner| trust_after.is_none() || accounts.is_trusted(owner);
    crate::settlements::books(store, prices, is_trusted, notes)
}

/// The stores of the request handlers.
#[derive(Debug)]
pub struct Shelves {
    pub store: Store,
    pub media: Media,
    /// Records of workers, updated by ended jobs.
    pub records: Records,
    pub reader: Reader,
}

/// The router state, with an earlier process's requests restored.
pub async fn doors(
    shelves: Shelves,
    accounts: Accounts,
    switchboard: Switchboard,
    settings: DoorSettings,
    grace: Duration,
    tasks: &Tasks,
) -> Result<Doors, StorageError> {
    let Shelves {
        store,
        media,
        records,
        reader,
    } = shelves;
    let names = settings.names.clone();
    let sources = Sources::new(
        Egress::new(),
        media.clone(),
        reader.clone(),
        settings.source_media_bytes,
    );
    let results = Results::new(Pictures::drawn(), media.clone(), reader);
    let workers = WorkersSettings {
        grace,
        media: Some(media.clone()),
        results: Some(results.clone()),
        names: names.clone(),
        memory: Memory::new(settings.largest_request, settings.standstill),
        submit_keys_connect: settings.submit_keys_connect_workers,
        ..WorkersSettings::default()
    };
    let rigs = Rigs::start(
        records,
        switchboard.clone(),
        store.clone(),
        RigSettings::from(&settings),
        tasks,
    );
    let rules = Rules {
        marked: settings.nsfw_models.clone(),
        names: names.clone(),
        unsafe_networks: settings.unsafe_networks.clone(),
        blocked_clients: settings.blocked_clients.clone(),
    };
    let webhooks = Webhooks::start(Egress::new(), store.clone(), media.clone(), tasks);
    let requests = Requests::start(
        switchboard.clone(),
        store.clone(),
        Arc::new(webhooks),
        tasks,
    );
    store.succeed().await?;
    for copy in store.model_names().await? {
        names.copy(&copy.name, copy.model.into());
    }
    requests.restore(&names, &media, UNWRITTEN).await?;
    let restored = requests.clone();
    let stored = move || restored.open_media_jobs();
    release_lost(store.clone(), settings.lifetime, stored, tasks).await?;
    let moderation = Moderation::open(store.clone(), rules, tasks).await?;
    let guards = (rigs.clone(), moderation.clone());
    let messages = Messages::open(store.clone(), rigs.clone(), &settings.name, tasks).await?;
    let badges = Badges::new(&accounts.derived_secret("jobs that are out"));
    let settings = LiveSettings::from(settings);
    let responses = Responses::start(store.clone(), settings.current().responses, tasks);
    let parts = ErasureParts {
        store: store.clone(),
        accounts: accounts.clone(),
        media: media.clone(),
        switchboard: switchboard.clone(),
        requests: requests.clone(),
        responses: responses.clone(),
    };
    Ok(Doors {
        erasures: Erasures::start(parts, tasks),
        responses,
        pollers: Pollers::start(switchboard.clone(), rigs.clone(), (names, badges), tasks),
        workers: Workers::new(switchboard.clone(), accounts.clone(), guards, workers),
        moderation,
        modes: Modes::start(store.clone(), requests.clone(), tasks),
        stats: Stats::start(store.clone(), tasks),
        rigs,
        messages,
        passkeys: Passkeys::start(store.clone(), accounts.seal().clone(), tasks),
        requests,
        people: People::new(store.clone(), accounts.clone()),
        accounts,
        switchboard,
        media,
        sources,
        results,
        store,
        tasks: tasks.clone(),
        settings,
        condition: Condition::default(),
        local_models: LocalModelsSlot::default(),
    })
}

/// In a cluster: time for the workers of the coordinator that led before to connect to this one.
const WORKERS_CONNECT: Duration = Duration::from_secs(15);
/// Time for settlements before another coordinator leads.
const SETTLED: Duration = Duration::from_millis(500);
/// Time for settlements, ends of streams and close frames after the last job.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Each connection needs a file. The usual soft limit is 1,024, the hard limit much higher.
fn raise_file_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => info!("limit of open files and connections: {limit}"),
        Err(error) => {
            warn!("raising the limit of open files failed, keeping the current one: {error}")
        }
    }
}

/// Whether a coordinator has an SQLite file open. Always false for a server, which this process cannot check.
pub fn is_served(database: &Location) -> bool {
    matches!(lock(database), Err(StartError::InUse(_)))
}

/// A SQLite file belongs to one coordinator; commands such as `worker key` may open it beside it.
fn lock(database: &Location) -> Result<Option<File>, StartError> {
    let Location::Sqlite(path) = database else {
        return Ok(None);
    };
    // Resolves links.
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let file = PathBuf::from(format!("{}.lock", real.display()));
    let open = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        File::create(&file)
    };
    let lock = open().map_err(|cause| StartError::Unwritable {
        file: file.clone(),
        cause,
    })?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Err(StartError::InUse(database.clone())),
        // Some network filesystems cannot lock; SQLite's own locks still protect the data.
        Err(TryLockError::Error(error)) => {
            warn!(
                "locking {} failed, starting without the lock: {error}",
                file.display()
            );
            Ok(Some(lock))
        }
    }
}

/// Refuses to listen on a public address without an API key.
async fn refuse_unguarded(listen: SocketAddr, accounts: &Accounts) -> Result<(), StartError> {
    match listen.ip().is_loopback() || accounts.has_good_key().await? {
        true => Ok(()),
        false => Err(StartError::Unguarded(listen)),
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |cause| StartError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn url(has_tls: bool, address: SocketAddr) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    format!("{scheme}://{}", reachable(address))
}

/// Replaces an unspecified address by the loopback address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
