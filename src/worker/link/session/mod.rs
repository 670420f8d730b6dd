//! A worker's session with a coordinator: inputs with their times go in, outputs come out. No socket, no clock, no
//! randomness but a seed.
//!
//! | file | content |
//! | --- | --- |
//! | `words` | inputs, outputs, and the agreed extensions |
//! | `jobs` | one attempt: numbers, batches and keeps its frames |
//! | `hearing` | frames of the coordinator |
//! | `saying` | reports of the executor, and their frames |
//! | `keeping` | timeouts, heartbeats, reports, and other timers |
//! | `leaving` | draining, refusals, and reconnections |
//! | `backoff` | delays of reconnects |
//!
//! Invariants: one final frame per attempt; a first token is sent at once; a lost socket cancels nothing within the
//! agreed grace period, and unconfirmed frames are sent again, in order, each once; a public coordinator gets only the
//! public protocol.

mod backoff;
mod hearing;
mod jobs;
mod keeping;
mod leaving;
mod saying;
mod words;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::sockets::first_public_registration;
use muster_protocol::job::JobId;
use muster_protocol::link::{
    About, Extension, FromWorker, RefusalFrame, Registration, Resume, State,
};

pub(super) use backoff::Backoff;
use jobs::Job;
pub use words::{
    Agreement, Ending, Finishing, Input, Moment, Output, Peer, SafetyRule, Slot, Work,
};

/// Jobs that a registration goes back to: coordinators read 64 KiB of one.
const MOST_CLAIMS: usize = 512;
/// How long a coordinator may take to answer a registration.
const GREETING: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Settings {
    pub registration: Registration,
    /// Spreads reconnects of many workers in time.
    pub jitter: u64,
}

/// The state of one line.
#[derive(Debug)]
pub struct Session {
    registration: Registration,
    /// The last coordinator agreed on no extensions: jobs of one type only.
    is_public: bool,
    /// The coordinator knows an earlier one.
    is_outdated: bool,
    /// Coming back with a newer registration; no connection was lost.
    is_renewing: bool,
    /// An accepted registration that [`Self::take_accepted`] has not returned yet.
    accepted: Option<Registration>,
    now: Moment,
    phase: Phase,
    jobs: BTreeMap<Slot, Job>,
    slots: u64,
    backoff: Backoff,
    /// Names the session to resume; kept when a socket is lost.
    resumable: Option<Resumable>,
    refusal: Option<RefusalFrame>,
    is_paused: bool,
    leaving: Option<Moment>,
    /// The coordinator announced that it is about to close.
    is_dismissed: bool,
    /// How often in a row another connection took the name.
    replaced: u32,
    report: Report,
}

#[derive(Debug)]
enum Phase {
    /// Dial again then.
    Waiting {
        until: Moment,
    },
    Dialling,
    /// The registration was sent; the reply is pending.
    Greeting {
        until: Moment,
    },
    Open(Open),
    Over,
}

/// A socket in use.
#[derive(Debug)]
struct Open {
    agreement: Agreement,
    since: Moment,
    /// When the last frame arrived, and a ping since.
    heard: Moment,
    pinged: Option<Moment>,
    /// When the last frame was sent.
    said: Moment,
}

#[derive(Debug)]
struct Resumable {
    session: String,
    grace: Duration,
    /// When the socket was lost.
    lost: Option<Moment>,
}

#[derive(Debug, Default)]
struct Report {
    state: State,
    is_new: bool,
    sent: Option<Moment>,
}

impl Session {
    pub fn new(settings: Settings) -> Self {
        Self {
            registration: settings.registration,
            is_public: false,
            is_outdated: false,
            is_renewing: false,
            accepted: None,
            now: Moment::default(),
            phase: Phase::Waiting {
                until: Moment::default(),
            },
            jobs: BTreeMap::new(),
            slots: 0,
            backoff: Backoff::new(settings.jitter),
            resumable: None,
            refusal: None,
            is_paused: false,
            leaving: None,
            is_dismissed: false,
            replaced: 0,
            report: Report::default(),
        }
    }

    /// Handles an input and appends the outputs, in order.
    pub fn handle(&mut self, input: Input, now: Moment, out: &mut Vec<Output>) {
        self.now = now.max(self.now);
        match input {
            Input::Opened => self.register(out),
            Input::Frame(frame) => self.hear(frame, out),
            Input::Heard => self.heard(),
            Input::Lost { code } => self.lose(code, out),
            Input::Said { slot, said } => self.say(slot, said, out),
            Input::Report(state) => self.note(state),
            Input::Registration(registration) => self.change(*registration),
            Input::Pause(is_paused) => self.pause(is_paused, out),
            Input::Leave { within } => self.leave(within, out),
            Input::Tick => {}
        }
        self.fall_due(out);
    }

    /// A registration that the coordinator has accepted since the last call.
    pub fn take_accepted(&mut self) -> Option<Registration> {
        self.accepted.take()
    }

    /// Whether it is away only to come back with other models.
    pub fn is_renewing(&self) -> bool {
        self.is_renewing
    }

    /// The coordinator it is connected to.
    pub fn peer(&self) -> Option<Peer> {
        self.open().map(|open| open.agreement.peer())
    }

    /// How long until it dials again; `None` while it is not about to.
    pub fn next_attempt(&self) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { until } if !leaving::is_until_resumed(until) => {
                Some(until.since(self.now))
            }
            _ => None,
        }
    }

    fn register(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Greeting {
            until: self.now.after(GREETING),
        };
        self.is_dismissed = false;
        self.refusal = None;
        self.is_outdated = false;
        let mut registration = self.form();
        registration.resume = self.resumable.as_ref().map(|resumable| Resume {
            session: resumable.session.clone(),
            jobs: self
                .jobs
                .values()
                .filter_map(Job::claim)
                .take(MOST_CLAIMS)
                .collect(),
        });
        send(&FromWorker::Register(Box::new(registration)), out);
    }

    /// The registration in the peer's protocol.
    fn form(&self) -> Registration {
        match self.is_public {
            true => first_public_registration(&self.registration),
            false => self.registration.clone(),
        }
    }

    fn open(&self) -> Option<&Open> {
        match &self.phase {
            Phase::Open(open) => Some(open),
            _ => None,
        }
    }

    fn open_mut(&mut self) -> Option<&mut Open> {
        match &mut self.phase {
            Phase::Open(open) => Some(open),
            _ => None,
        }
    }

    /// Whether this is agreed on the socket in use.
    pub fn uses(&self, extension: Extension) -> bool {
        self.open()
            .is_some_and(|open| open.agreement.has(extension))
    }

    /// The model of a job that is not forgotten yet.
    pub fn model_of(&self, about: About) -> Option<&str> {
        let slot = self.slot_of(about.job, about.attempt)?;
        self.jobs.get(&slot).map(|job| job.model.as_str())
    }

    /// Jobs that wait for the connection to come back, or that have ended and are not confirmed.
    pub fn held(&self) -> usize {
        let is_open = self.open().is_some();
        let is_held = |job: &&Job| !is_open || (job.has_ended() && !job.is_over());
        self.jobs.values().filter(is_held).count()
    }

    /// The refusal that came last, until the next registration.
    pub fn refusal(&self) -> Option<&RefusalFrame> {
        self.refusal.as_ref()
    }

    fn slot_of(&self, job: JobId, attempt: Option<u32>) -> Option<Slot> {
        let is_it =
            |one: &Job| one.about.job == job && (attempt.is_none() || one.about.attempt == attempt);
        let mut found = self.jobs.iter().filter(|(_, one)| is_it(one));
        found.next_back().map(|(slot, _)| *slot)
    }

    /// Cancels a job and drops its state; no further frames follow.
    fn forget(&mut self, slot: Slot, out: &mut Vec<Output>) {
        if let Some(job) = self.jobs.remove(&slot)
            && !job.has_ended()
        {
            out.push(Output::Stop(slot));
        }
    }

    fn forget_all(&mut self, out: &mut Vec<Output>) {
        let slots: Vec<Slot> = self.jobs.keys().copied().collect();
        for slot in slots {
            self.forget(slot, out);
        }
    }
}

fn send(frame: &FromWorker, out: &mut Vec<Output>) {
    out.push(Output::Send(frame.to_text()));
}
