//! The worker's line to a coordinator: [`session`] says what to say next and knows neither socket nor clock, [`ws`] is
//! its shell. Work comes out as [`Offer`]s, each with its [`Reply`]; what a model is, nobody here knows.
//!
//! | file | what it is |
//! | --- | --- |
//! | `session/` | registration, offers, numbered frames, reconnecting, draining: pure |
//! | `sockets` | the sockets of a line, and the registration of each |
//! | `ws` | the task of one socket: reads it, writes it, keeps the time |
//! | `wire` | its socket, and the messages that wait for it |
//! | `dial` | TCP, TLS or a pipe in memory, up to the WebSocket |
//! | `tls` | which certificates are trusted, and why a handshake failed |
//! | `feedback` | kudos and maintenance, as the coordinator tells them |
//! | [`inquiry`] | one look at a coordinator, for `worker doctor` and `worker join` |
//! | `address` | which address a configured one means, and whether it may be dialled |
//! | [`legacy`] | the same for a coordinator that is polled |
//! | `permissions` | what the owner lets jobs of a coordinator ask for |
//! | `transfer` | source images and outputs of jobs over HTTP |
//! | `offer` | what passes between a line and whoever does the work |
//!
//! With a coordinator of ours one socket carries all jobs. A public one gives each socket one job at a time, and any
//! job of its types for any of its models, so there a line opens several for each type, under names of their own:
//! `rig`, `rig#2`, `rig#image`.

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

/// Offers that may wait for whoever does the work.
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

/// One coordinator, and who we are there.
#[derive(Clone)]
pub struct Line {
    /// What it is called in the log.
    pub label: String,
    pub dial: Dial,
    /// The line registers anew when it changes, and keeps its jobs.
    pub registration: watch::Receiver<Registration>,
    /// Sockets of each job type towards a coordinator that gives each one job at a time.
    pub sockets: usize,
    /// Hosts of links beside the coordinator's: names, `*.` before the domain of many, or `*` for all.
    pub media_hosts: Vec<String>,
    pub permissions: Permissions,
}

/// What the worker wants its coordinators to know. The lines send it on when it changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Condition {
    pub state: State,
    /// The owner wants the machine: no jobs for now.
    pub is_paused: bool,
    /// The same, or soon; the second since the epoch until which it lasts, 0 where that is not known.
    pub paused_until: Option<i64>,
    /// Take no more jobs and leave when those that run are done, or after this time.
    pub leave_within: Option<Duration>,
}

/// How a line stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Dialling, or waiting to.
    Away,
    Connected(Peer),
    /// Refused for good: somebody has to change something.
    Refused(String),
    /// Left as asked.
    Left,
}

/// A line that is being kept.
#[derive(Debug, Clone)]
pub struct Link {
    standing: watch::Receiver<Standing>,
    /// Whether the coordinator knows the models that are offered now.
    up_to_date: UpToDate,
    /// Tells when the last of its sockets has let go.
    absent: watch::Receiver<()>,
    feedback: Feedback,
}

#[derive(Debug, Clone)]
enum UpToDate {
    /// Told with each call.
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
    /// Keeps the line until the condition says to leave, the coordinator refuses it for good, or the tasks stop.
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

    /// What the coordinator has told of kudos and maintenance.
    pub fn feedback(&self) -> &Feedback {
        &self.feedback
    }

    /// Waits until it stands like this, and says how. None when the line has ended otherwise.
    pub async fn until(&mut self, wanted: impl Fn(&Standing) -> bool) -> Option<Standing> {
        let reached = self.standing.wait_for(|standing| wanted(standing)).await;
        reached.ok().map(|standing| standing.clone())
    }

    /// Waits until the coordinator knows the models that are offered now. For ever where it refuses this worker.
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

/// Only spreads reconnects in time: any bits will do.
fn rand_seed() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => u64::from(std::process::id()),
    }
}
