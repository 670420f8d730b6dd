//! The task of one socket: it reads, writes and keeps the time, and leaves every decision to the session.

use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::dial::{DialError, Socket};
use super::feedback::{JobRecord, LinkProblem};
use super::offer::{LineId, Offer, Reply, Said, Stop};
use super::session::{Ending, Input, Moment, Output, Peer, SafetyRule, Session, Slot, Work};
use super::wire::{Closed, Wire};
use super::{Condition, Dial, Feedback, Permissions, Present, Standing, Transfers};
use muster_protocol::job::Kind;
use muster_protocol::link::{Extension, RefusalCode, Registration, ToWorker};

/// Words of jobs that may wait for the line.
const WAITING_WORDS: usize = 1024;
/// Limit of reports per turn, so that frames are still read.
const WORDS_A_TURN: usize = 64;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// Time for a retired socket to finish its job.
const RETIREMENT: Duration = Duration::from_secs(120);
/// Delay before a job without an executor may be offered again.
const OVERRUN: Duration = Duration::from_millis(500);
/// A connection, its encryption and its handshake.
const DIAL_PATIENCE: Duration = Duration::from_secs(20);
/// The process ends.
const GOING_AWAY: u16 = 1001;

type Dialling = Pin<Box<dyn Future<Output = Result<Socket, DialError>> + Send>>;

/// Everything one socket's task owns before it starts.
pub struct Shell {
    pub line: LineId,
    pub label: String,
    pub dial: Dial,
    pub registration: watch::Receiver<Registration>,
    pub session: Session,
    pub offers: mpsc::Sender<Offer>,
    pub transfers: Transfers,
    pub permissions: Permissions,
    pub condition: watch::Receiver<Condition>,
    pub stopping: CancellationToken,
    /// This socket is no longer needed, although the worker continues.
    pub retired: CancellationToken,
    pub feedback: Feedback,
    /// Held for as long as the task runs.
    pub _present: Present,
}

/// Events that wake the task.
enum Woken {
    Dialled(Box<Result<Socket, DialError>>),
    Socket(Result<Message, Closed>),
    Parted,
    Said(Slot, Said),
    Condition,
    Registration,
    Retired,
    Stopping,
    Time,
}

struct Running {
    shell: Shell,
    told: watch::Sender<Standing>,
    accepted: watch::Sender<Option<Registration>>,
    began: Instant,
    dialling: Option<Dialling>,
    wire: Option<Wire>,
    /// A closing socket, whose last frames may still have to be written.
    parting: Option<Parting>,
    words: mpsc::Receiver<(Slot, Said)>,
    mouth: mpsc::Sender<(Slot, Said)>,
    stops: BTreeMap<Slot, Stop>,
    /// Records of running jobs.
    records: BTreeMap<Slot, JobRecord>,
    /// The last count of held jobs reported to the owner.
    held: usize,
    is_retired: bool,
    /// The coordinator has closed the last socket with a close frame.
    was_closed: bool,
    ending: Option<Ending>,
}

impl Shell {
    pub async fn run(
        self,
        told: watch::Sender<Standing>,
        accepted: watch::Sender<Option<Registration>>,
    ) {
        let (mouth, words) = mpsc::channel(WAITING_WORDS);
        let running = Running {
            shell: self,
            told,
            accepted,
            began: Instant::now(),
            dialling: None,
            wire: None,
            parting: None,
            words,
            mouth,
            stops: BTreeMap::new(),
            records: BTreeMap::new(),
            held: 0,
            is_retired: false,
            was_closed: false,
            ending: None,
        };
        running.keep().await;
    }
}

impl Running {
    async fn keep(mut self) {
        let mut out = Vec::new();
        self.take_condition(&mut out);
        self.turn(Input::Tick, &mut out);
        while self.ending.is_none() {
            let woken = self.wake().await;
            match woken {
                Woken::Stopping => break,
                other => self.take(other, &mut out),
            }
            if self.wire.as_ref().is_some_and(Wire::is_overfull) {
                warn!("{} reads too slowly, closing the socket", self.shell.label);
                self.wire = None;
                self.turn(Input::Lost { code: None }, &mut out);
            }
            if self.wire.as_ref().is_some_and(Wire::is_overdue) {
                warn!(
                    "{} did not finish a frame in time, closing the socket",
                    self.shell.label
                );
                self.wire = None;
                self.turn(Input::Lost { code: None }, &mut out);
            }
        }
        for stop in self.stops.values() {
            stop.want();
        }
        self.shell.feedback.change_held(self.held, 0);
        if self.wire.is_some() {
            self.close(Some(GOING_AWAY));
        }
        if self.parting.is_some() {
            parted(&mut self.parting).await;
        }
    }

    async fn wake(&mut self) -> Woken {
        let due = self.shell.session.next_wake();
        let due = due.and_then(|due| self.began.checked_add(due.0));
        let unfinished = self.wire.as_ref().and_then(Wire::deadline);
        let due = due.into_iter().chain(unfinished).min();
        let dialling = &mut self.dialling;
        let (wire, parting) = (&mut self.wire, &mut self.parting);
        // Fair selection, because the socket is also written in its turn.
        tokio::select! {
            () = self.shell.stopping.cancelled() => Woken::Stopping,
            Ok(()) = self.shell.condition.changed() => Woken::Condition,
            Ok(()) = self.shell.registration.changed() => Woken::Registration,
            () = self.shell.retired.cancelled(), if !self.is_retired => Woken::Retired,
            Some((slot, said)) = self.words.recv() => Woken::Said(slot, said),
            dialled = dialled(dialling) => Woken::Dialled(Box::new(dialled)),
            message = heard(wire) => Woken::Socket(message),
            () = parted(parting) => Woken::Parted,
            () = until(due) => Woken::Time,
        }
    }

    fn take(&mut self, woken: Woken, out: &mut Vec<Output>) {
        match woken {
            Woken::Dialled(dialled) => self.take_dialled(*dialled, out),
            Woken::Socket(Ok(message)) => self.take_message(message, out),
            Woken::Socket(Err(closed)) => {
                self.report(&closed);
                self.was_closed = closed.code.is_some();
                self.part();
                self.turn(Input::Lost { code: closed.code }, out);
            }
            Woken::Parted => self.parting = None,
            Woken::Said(slot, said) => self.take_words(slot, said, out),
            Woken::Condition => self.take_condition(out),
            Woken::Registration => self.take_registration(out),
            Woken::Retired => {
                self.is_retired = true;
                let within = RETIREMENT;
                self.turn(Input::Leave { within }, out);
            }
            Woken::Time | Woken::Stopping => self.turn(Input::Tick, out),
        }
    }

    fn report(&self, closed: &Closed) {
        let label = &self.shell.label;
        if self.shell.session.refusal().is_none() {
            let text = match (closed.code, closed.why.as_str()) {
                (None, "") => "the connection was lost".to_owned(),
                (None, why) => format!("the connection was lost: {why}"),
                (Some(code), "") => format!("the coordinator closed the socket with code {code}"),
                (Some(code), why) => {
                    format!("the coordinator closed the socket with code {code}: {why}")
                }
            };
            let problem = LinkProblem::failure(on_one_line(&text));
            self.shell.feedback.set_problem(Some(problem));
        }
        match (closed.code, closed.why.as_str()) {
            (None, _) => {}
            (Some(code), "") => info!("{label} closed the socket with code {code}"),
            (Some(code), why) => info!("{label} closed the socket with code {code}: {why}"),
        }
        if !self.shell.session.is_replaced(closed.code) {
            return;
        }
        let problem = "another machine connected with the name of this worker";
        let problem = LinkProblem::refusal(problem, Some(RefusalCode::NameTaken));
        self.shell.feedback.set_problem(Some(problem));
        match self.shell.session.peer() {
            Some(Peer::Ours) => warn!(
                "another machine connected to {label} with the name of this worker; give each worker its own name"
            ),
            // The close frame has no further details.
            _ => warn!(
                "{label} is restarting, or another machine connected there with the name of this worker"
            ),
        }
    }

    fn take_dialled(&mut self, dialled: Result<Socket, DialError>, out: &mut Vec<Output>) {
        self.dialling = None;
        match dialled {
            Ok(socket) => {
                self.wire = Some(Wire::new(socket));
                self.turn(Input::Opened, out);
            }
            Err(error) => {
                let problem = LinkProblem::failure(error.to_string());
                self.shell.feedback.set_problem(Some(problem));
                self.turn(Input::Lost { code: None }, out);
                let (label, next) = (&self.shell.label, self.next_attempt());
                warn!("connecting to {label} failed, {next}: {error}");
            }
        }
    }

    fn take_message(&mut self, message: Message, out: &mut Vec<Output>) {
        let Message::Text(text) = message else {
            return self.turn(Input::Heard, out);
        };
        match ToWorker::parse(text.as_str()) {
            Ok(frame) => {
                if let ToWorker::Error(refusal) = &frame {
                    warn!("error from {}: {:.200}", self.shell.label, refusal.message);
                }
                self.take_feedback(&frame);
                self.turn(Input::Frame(frame), out);
                if let (Some(wire), Some(_)) = (&mut self.wire, self.shell.session.peer()) {
                    wire.allow_jobs();
                }
            }
            Err(error) => {
                warn!(
                    "invalid frame from {}, closing the socket: {error}",
                    self.shell.label
                );
                self.wire = None;
                self.turn(Input::Lost { code: None }, out);
            }
        }
    }

    fn take_feedback(&self, frame: &ToWorker) {
        let feedback = &self.shell.feedback;
        match frame {
            ToWorker::Ack { about, reward } => {
                let model = self.shell.session.model_of(*about).unwrap_or_default();
                feedback.earn(model, *reward);
            }
            ToWorker::Error(refusal) => {
                let text = on_one_line(&refusal.message);
                feedback.set_problem(Some(LinkProblem::refusal(text, refusal.code)));
            }
            // Conditions that still hold are reported again.
            ToWorker::Ready(ready) => {
                feedback.set_maintenance(None);
                feedback.set_problem(None);
                let hosts = ready.ext.as_ref().and_then(|ext| ext.hosts.as_deref());
                self.shell.transfers.set_hosts(hosts);
            }
            ToWorker::Maintenance { note } if self.shell.session.uses(Extension::Notices) => {
                report_maintenance(&self.shell.label, feedback, note.clone());
            }
            _ => {}
        }
    }

    fn next_attempt(&self) -> String {
        match self.shell.session.next_attempt() {
            Some(wait) => format!("reconnecting in {}", whole_seconds(wait)),
            None => "not reconnecting until the owner resumes".to_owned(),
        }
    }

    /// Takes all waiting reports, so that they are sent together.
    fn take_words(&mut self, slot: Slot, said: Said, out: &mut Vec<Output>) {
        let mut next = Some((slot, said));
        let mut left = WORDS_A_TURN;
        while let Some((slot, said)) = next {
            if let Some(record) = self.records.get(&slot) {
                record.hear(&said);
            }
            if said.is_last() {
                self.stops.remove(&slot);
                self.records.remove(&slot);
            }
            self.turn(Input::Said { slot, said }, out);
            left -= 1;
            next = match left {
                0 => None,
                _ => self.words.try_recv().ok(),
            };
        }
    }

    fn take_condition(&mut self, out: &mut Vec<Output>) {
        let condition = self.shell.condition.borrow_and_update().clone();
        self.turn(Input::Report(condition.state), out);
        self.turn(Input::Pause(condition.is_paused), out);
        if let Some(within) = condition.leave_within {
            self.turn(Input::Leave { within }, out);
        }
    }

    fn take_registration(&mut self, out: &mut Vec<Output>) {
        let registration = self.shell.registration.borrow_and_update().clone();
        let (label, models) = (&self.shell.label, registration.models.join(", "));
        info!("telling {label} of the models that are served now: {models}");
        self.turn(Input::Registration(Box::new(registration)), out);
    }

    /// Handles an input and executes its outputs.
    fn turn(&mut self, input: Input, out: &mut Vec<Output>) {
        let now = Moment(self.began.elapsed());
        self.shell.session.handle(input, now, out);
        let mut refused = Vec::new();
        for output in out.drain(..) {
            self.perform(output, &mut refused);
        }
        let held = self.shell.session.held();
        if held != self.held {
            self.shell.feedback.change_held(self.held, held);
            self.held = held;
        }
        for slot in refused {
            let said = Said::Busy {
                retry_after: OVERRUN,
            };
            self.turn(Input::Said { slot, said }, out);
        }
        self.tell();
    }
}

impl Running {
    fn perform(&mut self, output: Output, refused: &mut Vec<Slot>) {
        match output {
            Output::Dial => {
                let dial = self.shell.dial.clone();
                self.dialling = Some(Box::pin(async move {
                    let opened = tokio::time::timeout(DIAL_PATIENCE, dial.open()).await;
                    opened.unwrap_or_else(|_| {
                        Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
                    })
                }));
            }
            Output::Send(text) => self.write(Message::text(text)),
            Output::Ping => self.write(Message::Ping(Bytes::new())),
            Output::Close(code) => self.close(code),
            Output::Begin(work) => self.begin(*work, refused),
            Output::Stop(slot) => {
                if let Some(stop) = self.stops.remove(&slot) {
                    stop.want();
                }
            }
            Output::Over(ending) => self.ending = Some(ending),
        }
    }

    fn begin(&mut self, mut work: Work, refused: &mut Vec<Slot>) {
        let (slot, stop) = (work.slot, Stop::default());
        let permissions = self.shell.permissions;
        let is_permitted = permissions.allow(&work.payload);
        if !permissions.nsfw && work.kind == Kind::Image {
            work.finishing.safety = Some(SafetyRule::Refuse);
        }
        let record = self.shell.feedback.begin(&work.model);
        debug!(job.id = %work.job, "job {} from {}", work.job, self.shell.label);
        let offer = Offer {
            line: self.shell.line,
            work,
            transfers: self.shell.transfers.clone(),
            reply: Reply::new(slot, self.mouth.clone()),
            stop: stop.clone(),
        };
        let is_offered = is_offered(&offer.work.model, &self.shell.registration.borrow());
        if !is_offered || !is_permitted {
            refused.push(slot);
            return;
        }
        match self.shell.offers.try_send(offer) {
            Ok(()) => {
                self.stops.insert(slot, stop);
                self.records.insert(slot, record);
            }
            Err(_) => refused.push(slot),
        }
    }

    fn write(&mut self, message: Message) {
        if let Some(wire) = &mut self.wire {
            wire.push(message);
        }
    }

    /// With a code, unsent frames are still written; without one the socket is cut.
    fn close(&mut self, code: Option<u16>) {
        let Some(code) = code else {
            self.wire = None;
            return;
        };
        self.write(Message::Close(Some(CloseFrame {
            code: CloseCode::from(code),
            reason: "".into(),
        })));
        self.part();
    }

    /// Gives up the socket, but lets written frames and the reply to a close be sent.
    fn part(&mut self) {
        if let Some(wire) = self.wire.take() {
            let until = Instant::now() + FAREWELL;
            self.parting = Some(Parting { wire, until });
        }
    }

    /// Publishes the line's standing if it has changed.
    fn tell(&mut self) {
        if let Some(registration) = self.shell.session.take_accepted() {
            self.accepted.send_replace(Some(registration));
        }
        let standing = match (&self.ending, self.shell.session.peer()) {
            (Some(Ending::Left), _) => Standing::Left,
            (Some(Ending::Refused(why)), _) => Standing::Refused(why.clone()),
            (None, Some(peer)) => Standing::Connected(peer),
            (None, None) if self.shell.session.is_renewing() => return,
            (None, None) => Standing::Away,
        };
        let is_new = *self.told.borrow() != standing;
        if is_new {
            let next_attempt = self.next_attempt();
            announce(&self.shell.label, &standing, self.was_closed, &next_attempt);
            self.told.send_replace(standing);
        }
    }
}

/// Logged at the start and at the end.
pub fn report_maintenance(label: &str, feedback: &Feedback, note: Option<String>) {
    let note = note.as_deref().map(on_one_line);
    if !feedback.set_maintenance(note.clone()) {
        return;
    }
    match note.as_deref() {
        Some("") => {
            info!("{label} put this worker into maintenance: only its owner's jobs arrive")
        }
        Some(note) => info!(
            "{label} put this worker into maintenance: only its owner's jobs arrive; note: {note}"
        ),
        None => info!("{label} ended the maintenance of this worker"),
    }
}

/// Shortens a foreign text to one line for the log.
fn on_one_line(text: &str) -> String {
    let letters = text.chars().take(200);
    letters
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

/// Rounded up: `5 s`.
pub fn whole_seconds(wait: Duration) -> String {
    format!("{} s", wait.as_millis().div_ceil(1000))
}

/// A closed socket is logged as information only, because the coordinator may have been stopped.
fn announce(label: &str, standing: &Standing, was_closed: bool, next_attempt: &str) {
    match standing {
        Standing::Connected(_) => info!("connected to {label}"),
        Standing::Away if was_closed => info!("disconnected from {label}, {next_attempt}"),
        Standing::Away => warn!("connection to {label} lost, {next_attempt}"),
        Standing::Refused(why) => error!("{label} refuses this worker: {why}"),
        Standing::Left => info!("disconnected from {label}"),
    }
}

async fn dialled(dialling: &mut Option<Dialling>) -> Result<Socket, DialError> {
    match dialling {
        Some(dialling) => dialling.await,
        None => pending().await,
    }
}

async fn heard(wire: &mut Option<Wire>) -> Result<Message, Closed> {
    match wire {
        Some(wire) => poll_fn(|cx| wire.poll(cx)).await,
        None => pending().await,
    }
}

async fn parted(parting: &mut Option<Parting>) {
    match parting {
        Some(Parting { wire, until }) => {
            let _ = tokio::time::timeout_at(*until, wire.finish()).await;
        }
        None => pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

struct Parting {
    wire: Wire,
    until: Instant,
}
/// Whether the worker offers a model here: not each coordinator is offered each.
fn is_offered(model: &str, registration: &Registration) -> bool {
    let listed = registration.capacity.iter();
    let mut listed = listed.flat_map(|capacity| &capacity.models);
    let mut named = registration.models.iter();
    named.any(|name| name == model) || listed.any(|one| one.name == model)
}
