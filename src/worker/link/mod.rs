//! The worker's line to a coordinator: [`session`] is a state machine without socket and clock, [`ws`] is its shell.
//! Jobs are passed on as [`Offer`]s, each with its [`Reply`]; the line is independent of models.
//!
//! | file | content |
//! | --- | --- |
//! | `session/` | registration, offers, numbered frames, reconnecting, draining: pure |
//! | `sockets` | the sockets of a line, and the registration of each |
//! | `ws` | the task of one socket: reads, writes, timers |
//! | `wire` | its socket, and the queue of unsent messages |
//! | `dial` | TCP, TLS or a pipe in memory, up to the WebSocket |
//! | `tls` | trusted certificates, and reasons of failed handshakes |
//! | `feedback` | kudos and maintenance, as the coordinator reports them |
//! | [`inquiry`] | checks of a coordinator, for `worker doctor` and `worker join` |
//! | `address` | converts and checks configured URLs |
//! | [`legacy`] | the same for the AI Horde API |
//! | `permissions` | the owner's restrictions on a coordinator's jobs |
//! | `transfer` | source images and outputs of jobs over HTTP |
//! | `offer` | the interface between a line and the executor of jobs |
//!
//! With our coordinator one socket carries all jobs. A public coordinator gives each socket one job at a time, of any
//! of its types and models, so a line opens several sockets per type, with different names: `rig`, `rig#2`,
//! `rig#image`.

mod address;
mod dial;
mod feedback;
pub mod inquiry;
pub mod legacy;
mod offer;
mod permissions;
pub mod session;
mod sockets;
mod tls;
mod transfer;
mod wire;
mod ws;

use std::collections::BTreeMap;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;
use url::Url;

use muster_process::tasks::Tasks;
use muster_protocol::link::{Registration, State};

pub use address::{AddressError, api, base, endpoint};
pub use dial::DialError;
pub use feedback::{ActiveJob, Feedback, LinkProblem, Tally};
pub use offer::{LineId, Offer, Reply, Said, Stop};
pub use permissions::Permissions;
use session::Peer;
use sockets::Sockets;
pub use tls::{Fingerprint, native_tls, pinned_tls};
pub use transfer::{TransferError, Transfers};

/// Limit of offers that wait for the executor.
pub const WAITING_OFFERS: usize = 256;

/// How to reach a coordinator.
#[derive(Clone)]
pub enum Dial {
    /// `ws://` or `wss://`, as [`endpoint`] gives it.
    Url { url: Url, tls: Arc<ClientConfig> },
    /// A program of this machine that listens for this worker alone, without HTTP.
    Local(SocketAddr),
    /// The other end is in this process.
    Pipe(Arc<dyn Fn() -> DuplexStream + Send + Sync>),
}

/// A coordinator, and the worker's identity there.
#[derive(Clone)]
pub struct Line {
    /// The coordinator's name in the log.
    pub label: String,
    pub dial: Dial,
    /// The line registers anew when it changes, and keeps its jobs.
    pub registration: watch::Receiver<Registration>,
    /// Sockets of each job type towards a coordinator that gives each one job at a time.
    pub sockets: usize,
    /// Allowed hosts of links besides the coordinator's: names, `*.` before a domain, or `*` for all.
    pub media_hosts: Vec<String>,
    pub permissions: Permissions,
}

/// The worker's state for its coordinators. The lines send changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Condition {
    pub state: State,
    /// Paused for the owner.
    pub is_paused: bool,
    /// The same, or soon; the second since the epoch until which it lasts, 0 where that is not known.
    pub paused_until: Option<i64>,
    /// Accept no more jobs and leave when running ones are done, or after this time.
    pub leave_within: Option<Duration>,
}

/// The state of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Dialling, or waiting to.
    Away,
    Connected(Peer),
    /// Refused until the configuration changes.
    Refused(String),
    /// Left on request.
    Left,
}

/// A line that is being kept.
#[derive(Debug, Clone)]
pub struct Link {
    standing: watch::Receiver<Standing>,
    /// Whether the coordinator knows the models that are offered now.
    up_to_date: UpToDate,
    /// Signals when the last of its sockets has ended.
    absent: watch::Receiver<()>,
    feedback: Feedback,
}

#[derive(Debug, Clone)]
enum UpToDate {
    /// The polling line sends its models with each call.
    Always,
    /// A registration, and the one that the coordinator has accepted last.
    Registered(
        watch::Receiver<Registration>,
        watch::Receiver<Option<Registration>>,
    ),
}

/// Held by every task that belongs to a line.
type Present = watch::Sender<()>;

impl Line {
    /// Keeps the line until the condition requests to leave, the coordinator refuses the worker for good, or the tasks
    /// stop.
    pub fn keep(
        self,
        offers: &mpsc::Sender<Offer>,
        condition: &watch::Receiver<Condition>,
        tasks: &Tasks,
    ) -> Link {
        let (told, standing) = watch::channel(Standing::Away);
        let (present, absent) = watch::channel(());
        let (accepted, known) = watch::channel(None);
        let up_to_date = UpToDate::Registered(self.registration.clone(), known);
        let feedback = Feedback::default();
        let sockets = Sockets {
            id: LineId(rand_seed()),
            transfers: Transfers::of(&self.dial, &self.media_hosts),
            line: self,
            offers: offers.clone(),
            condition: condition.clone(),
            tasks: tasks.clone(),
            present,
            feedback: feedback.clone(),
            further: BTreeMap::new(),
        };
        let registration = sockets.line.registration.clone();
        let first = sockets.shell(registration, CancellationToken::new());
        tasks.start(first.run(told, accepted));
        tasks.start(sockets.follow(standing.clone()));
        Link {
            standing,
            up_to_date,
            absent,
            feedback,
        }
    }
}

impl Link {
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// The coordinator's reports of kudos and maintenance.
    pub fn feedback(&self) -> &Feedback {
        &self.feedback
    }

    /// Waits until the standing matches, and returns it. `None` if the line has ended before.
    pub async fn until(&mut self, wanted: impl Fn(&Standing) -> bool) -> Option<Standing> {
        let reached = self.standing.wait_for(|standing| wanted(standing)).await;
        reached.ok().map(|standing| standing.clone())
    }

    /// Waits until the coordinator has the current list of models. Never returns after a refusal.
    pub async fn up_to_date(&mut self) {
        let is_there = self.until(|standing| matches!(standing, Standing::Connected(_)));
        if is_there.await.is_none() {
            return pending().await;
        }
        let UpToDate::Registered(offered, accepted) = &mut self.up_to_date else {
            return;
        };
        let is_known =
            |accepted: &Option<Registration>| accepted.as_ref() == Some(&*offered.borrow());
        if accepted.wait_for(is_known).await.is_err() {
            pending().await
        }
    }

    /// Waits until the line is not kept any longer: all of its sockets have left, not only the first.
    pub async fn ended(&mut self) {
        while self.absent.changed().await.is_ok() {}
    }
}

/// Seeds the jitter of reconnects: any bits will do.
fn rand_seed() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => u64::from(std::process::id()),
    }
}
