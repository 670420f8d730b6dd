//! The coordinator's side of `WS /v1/workers/ws`, over any byte stream that has finished its HTTP upgrade.
//!
//! | file | contents |
//! | --- | --- |
//! | `admission`, `gate` | admission of workers, and refusals |
//! | `strangers` | unauthenticated sockets: limits of number, memory and time |
//! | `message_room` | the memory of large messages |
//! | `agreement` | negotiated extensions; none for peers of the public network |
//! | `session` | the protocol: frames to inputs for dispatch, orders to frames; no socket, no clock |
//! | `payload`, `flat`, `public_keys`, `wording` | jobs, errors and the like as wire values |
//! | `output_files` | links for downloads and uploads, and the check of an upload |
//! | `native` | jobs in the client's own API, passed on to a worker's inference server |
//! | `uploads` | uploaded images, checked before dispatch hears of them |
//! | `socket` | the shell: one task that reads, writes and pings |
//! | `farewell` | how a socket ends: for the peer and for the log |
//! | `frames` | the size of a job's frame, for admission |
//!
//! A peer that negotiates nothing sees the public protocol exactly. A broken peer affects its own socket only.

mod admission;
mod agreement;
mod farewell;
mod flat;
pub(super) mod frames;
mod gate;
mod message_room;
mod native;
mod output_files;
mod payload;
mod public_keys;
mod salts;
mod session;
mod socket;
mod strangers;
mod uploads;
mod wording;

pub use admission::Rejection;
pub use frames::mark_large;
pub use gate::{Admitted, Applicant, ConnectScopes, Denial, Gate, Notices, Revoked, check};
pub use payload::output_room;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::select;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tracing::{debug, info};
use uuid::Uuid;

use super::accounts::Accounts;
use super::dispatch::{Registration, Resume, SessionId};
use super::media::Media;
use super::metering::Belief;
use super::moderation::Moderation;
use super::names::Names;
use super::pictures::Results;
use super::rigs::Rigs;
use super::room::Memory;
use super::switchboard::{Card, Gpus, Order, Orders, Switchboard};
use muster_process::intake::Intake;
use muster_protocol::job::{Capabilities, Reach};
use muster_protocol::link;

use agreement::Peer;
use farewell::{Ended, Farewell};
use message_room::MessageRoom;
use salts::CacheSalts;
use session::{Session, Welcome};
use socket::Socket;
use strangers::Strangers;

/// Small, since each socket allocates it at once.
const READ_BUFFER: usize = 4096;
/// Several frames are sent in one write.
const WRITE_BUFFER: usize = 16 << 10;

#[derive(Debug, Clone)]
pub struct WorkersSettings {
    /// Aliases of models.
    pub names: Names,
    /// The store for workers' uploads.
    pub media: Option<Media>,
    /// Checks uploaded results.
    pub results: Option<Results>,
    /// Model names that are refused.
    pub retired_models: Vec<String>,
    /// Timeout of the first frame.
    pub registration_patience: Duration,
    /// Budget for large messages, beside that of requests.
    pub memory: Memory,
    /// Interval of pings to an idle peer.
    pub ping_every: Duration,
    /// Timeout of a socket without any data.
    pub silence: Duration,
    /// Timeout of a blocked write.
    pub write_patience: Duration,
    /// How long jobs are held for a disconnected worker, as told to it. Dispatch has the same setting.
    pub grace: Duration,
    /// Keys for requests may connect workers, too.
    pub submit_keys_connect: bool,
}

/// Accepts sockets of workers. Clones share their state.
#[derive(Debug, Clone)]
pub struct Workers {
    switchboard: Switchboard,
    gate: Gate,
    settings: Arc<WorkersSettings>,
    strangers: Strangers,
    /// Part of every session's name, so that a session of an earlier process cannot be resumed.
    process: u64,
    salts: CacheSalts,
}

impl Default for WorkersSettings {
    fn default() -> Self {
        Self {
            names: Names::default(),
            media: None,
            results: None,
            retired_models: Vec::new(),
            registration_patience: Duration::from_secs(5),
            memory: Memory::new(64 << 20, Duration::from_secs(5)),
            ping_every: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            write_patience: Duration::from_secs(10),
            grace: Duration::from_secs(45),
            submit_keys_connect: false,
        }
    }
}

impl WorkersSettings {
    fn connect_scopes(&self) -> ConnectScopes {
        match self.submit_keys_connect {
            true => ConnectScopes::SubmitToo,
            false => ConnectScopes::ConnectOnly,
        }
    }
}

impl Workers {
    pub fn new(
        switchboard: Switchboard,
        accounts: Accounts,
        (rigs, moderation): (Rigs, Moderation),
        settings: WorkersSettings,
    ) -> Self {
        let gate = Gate::of(accounts, rigs, moderation, settings.connect_scopes());
        Self::behind(gate, switchboard, settings)
    }

    /// With any gate; use [`Workers::new`] except in tests.
    pub fn behind(gate: Gate, switchboard: Switchboard, settings: WorkersSettings) -> Self {
        Self {
            switchboard,
            gate,
            settings: Arc::new(settings),
            strangers: Strangers::default(),
            process: Uuid::new_v4().as_u64_pair().0,
            salts: CacheSalts::default(),
        }
    }

    /// The scopes that allow a worker.
    pub fn connect_scopes(&self) -> ConnectScopes {
        self.settings.connect_scopes()
    }

    /// The memory for large messages.
    pub fn memory(&self) -> &Memory {
        &self.settings.memory
    }

    /// Serves one worker of this process until its socket ends. Bytes read beyond the upgrade come first.
    pub async fn serve<S>(&self, stream: S, read_already: Vec<u8>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_met(stream, read_already, None, |_| ()).await;
    }

    /// The same for a worker with an address; reports its name after admission.
    pub async fn serve_met<S>(
        &self,
        stream: S,
        read_already: Vec<u8>,
        address: Option<IpAddr>,
        met: impl FnOnce(&Arc<str>) + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(WRITE_BUFFER)
            .max_frame_size(Some(link::LARGEST_FRAME))
            .max_message_size(Some(link::LARGEST_FRAME));
        let room = MessageRoom::new(self.settings.memory.clone());
        let mut intake = Intake::new(stream, room, read_already, READ_BUFFER);
        intake.set_limit(strangers::FIRST_MESSAGE);
        intake.set_allowance(Some(strangers::ALLOWANCE));
        let socket = WebSocketStream::from_raw_socket(intake, Role::Server, Some(config));
        let mut socket = Socket::new(socket.await, self.settings.clone());
        // Boxed, because it is large and ends long before the socket.
        let farewell = match Box::pin(self.welcome(&mut socket, address)).await {
            Ok((guest, revoked)) => {
                met(&guest.name);
                let (name, session) = (guest.name.clone(), guest.session.id());
                let negotiates = guest.negotiates;
                let orders = guest.orders.clone();
                let notices = guest.notices.clone();
                let notices = notices.follow(|note| orders.notify(Order::Maintenance { note }));
                let Ended { farewell, why } = select! {
                    ended = socket.converse(guest) => ended,
                    denial = revoked.0 => Ended::refused(&denial.into(), negotiates),
                    () = notices => Ended::stopping(),
                };
                info!(worker = %name, session = session.0, "worker {name} disconnected: {why}");
                farewell
            }
            Err(farewell) => farewell,
        };
        Box::pin(socket.leave(farewell)).await;
    }

    async fn welcome<S>(
        &self,
        socket: &mut Socket<S>,
        address: Option<IpAddr>,
    ) -> Result<(Guest, Revoked), Farewell>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stranger = self.strangers.enter().ok_or(Farewell::FULL)?;
        let first = timeout(self.settings.registration_patience, socket.first_frame());
        let text = select! {
            first = first => first.map_err(|_| Farewell::Silently)??,
            () = stranger.dismissed() => return Err(Farewell::FULL),
        };
        if !stranger.has_spoken() {
            return Err(Farewell::FULL);
        }
        let registration = match link::FromWorker::parse(&text) {
            Ok(link::FromWorker::Register(registration)) => registration,
            Ok(_) => {
                return Err(refused(
                    Rejection::unreadable("the first frame must be a registration"),
                    false,
                ));
            }
            Err(link::FrameError::NotAnObject | link::FrameError::NotJson { .. }) => {
                return Err(Farewell::Silently);
            }
            Err(error) => return Err(refused(Rejection::unreadable(error.to_string()), false)),
        };
        let negotiates = registration.ext.is_some();
        let admitted = self.admit(&registration, address).await;
        let (admitted, peer) = admitted.map_err(|rejection| refused(rejection, negotiates))?;
        self.introduce(*registration, admitted, peer)
            .await
            .map_err(|rejection| refused(rejection, negotiates))
    }

    async fn admit(
        &self,
        registration: &link::Registration,
        address: Option<IpAddr>,
    ) -> Result<(Admitted, Peer), Rejection> {
        admission::check(registration, &self.settings.retired_models)?;
        let admitted = self.gate.ask(Applicant {
            key: registration.key.clone(),
            name: registration.name.trim().into(),
            agent: registration.bridge_agent.as_str().into(),
            address,
        });
        let admitted = admitted.await?;
        admission::check_proof(registration)?;
        Ok((admitted, Peer::of(registration, &self.settings.names)?))
    }

    /// Registers with the switchboard, whose first order is `ready` or a close.
    async fn introduce(
        &self,
        registration: link::Registration,
        admitted: Admitted,
        peer: Peer,
    ) -> Result<(Guest, Revoked), Rejection> {
        let id = self.switchboard.next_session();
        let card = card(&registration, &peer, &admitted);
        let (name, gpus) = (card.name.clone(), card.gpus.clone());
        let orders = Arc::new(Orders::default());
        let registered = self.registered(&registration, &peer, id, &admitted);
        let line = self.switchboard.connect(registered, card, orders.clone());
        let line = line.await.map_err(|_| Rejection::stopping())?;
        info!(worker = %name, session = id.0, "worker {name} connected");
        let welcome = Welcome {
            worker_id: admitted.public_id.to_string(),
            owner: admitted.owner,
            session_name: self.session_name(id).to_string(),
            grace: self.settings.grace,
        };
        let notices = match peer.uses(link::Extension::Notices) {
            true => admitted.notices,
            false => Notices::default(),
        };
        let guest = Guest {
            negotiates: peer.used.is_some(),
            name,
            session: Session::new(
                id,
                peer,
                welcome,
                gpus,
                self.settings.media.clone(),
                self.salts.clone(),
            ),
            orders,
            line,
            notices,
        };
        Ok((guest, admitted.revoked))
    }

    fn registered(
        &self,
        registration: &link::Registration,
        peer: &Peer,
        session: SessionId,
        admitted: &Admitted,
    ) -> Registration {
        let resume = registration.resume.as_ref();
        let resume = resume.filter(|_| peer.uses(link::Extension::Resume));
        Registration {
            session,
            worker: admitted.worker,
            owner: admitted.owner,
            prefers: Vec::new(),
            own_only: peer.uses(link::Extension::OwnJobs),
            trusted: admitted.trusted,
            kinds: registration.kinds,
            formats: peer.formats,
            capabilities: match peer.is_public() {
                true => peer.capabilities,
                // Peers with extensions run our own software.
                false => peer.capabilities.with(Capabilities::VALIDATED),
            },
            reach: Reach::ENDLESS.with_context(peer.context),
            models: peer.served(registration),
            slots: peer.slots,
            extensions: peer.for_dispatch(),
            polls: false,
            agent: None,
            resume: resume.map(|resume| self.resume(resume)),
        }
    }

    /// Claims of another process's session are dropped.
    fn resume(&self, resume: &link::Resume) -> Resume {
        let named = Uuid::parse_str(&resume.session).unwrap_or_default();
        let (process, session) = named.as_u64_pair();
        let session = if process == self.process { session } else { 0 };
        let claims = resume.jobs.iter().map(|claim| super::dispatch::Claim {
            job: claim.job,
            attempt: claim.attempt,
        });
        Resume {
            session: SessionId(session),
            jobs: claims.collect(),
        }
    }

    fn session_name(&self, session: SessionId) -> Uuid {
        Uuid::from_u64_pair(self.process, session.0)
    }
}

/// An admitted worker.
struct Guest {
    negotiates: bool,
    name: Arc<str>,
    session: Session,
    orders: Arc<Orders>,
    line: super::switchboard::WorkerLine,
    notices: Notices,
}

fn refused(rejection: Rejection, negotiates: bool) -> Farewell {
    debug!(reason = %rejection.message, "worker registration refused");
    Ended::refused(&rejection, negotiates).farewell
}

fn card(registration: &link::Registration, peer: &Peer, admitted: &Admitted) -> Card {
    let modalities = registration.modalities.iter();
    Card {
        name: registration.name.trim().into(),
        public_id: admitted.public_id,
        agent: registration.bridge_agent.as_str().into(),
        modalities: modalities.map(|name| name.as_str().into()).collect(),
        context: registration.max_context_length,
        belief: Belief::of(admitted.trusted, peer.is_public()),
        gpus: Gpus::default(),
    }
}
