//! The jobs that are out at workers that poll: who may bring them, and what was brought already. Kept a while longer
//! than their time, so that whoever comes too late is told so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::chat::Turn;
use crate::coordinator::dispatch::{Offer, SessionId};
use crate::protocol::job::{AccountId, JobId};

/// How long after its hand-out a job is known here.
const KNOWN: Duration = Duration::from_secs(3600);
/// How long a worker may be busy with jobs without being seen.
const BUSY: Duration = Duration::from_secs(1800);

/// Why what a worker brings is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    Unknown,
    /// Another account's worker has it.
    NotYours,
    Already,
    /// Its time was over, or its client has left.
    TakenAway,
    Unavailable,
}

#[derive(Debug, Default)]
pub struct Held {
    jobs: HashMap<JobId, Out>,
    busy: HashMap<SessionId, Busy>,
}

/// How many jobs a session has out, and since when the last.
#[derive(Debug, Clone, Copy)]
struct Busy {
    jobs: usize,
    since: Instant,
}

/// One attempt at one job: the last one that is out, or was.
#[derive(Debug, Clone)]
pub struct Out {
    pub session: SessionId,
    pub attempt: u32,
    /// An earlier process gave it out, and nobody knows as which attempt.
    pub claimed: bool,
    /// Nobody waits for it.
    pub decoy: bool,
    /// What it is to be read by, where it is part of a chat.
    pub turn: Option<Arc<Turn>>,
    owner: AccountId,
    since: Instant,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    Brought,
    TakenAway,
}

impl Held {
    pub fn add(&mut self, offer: &Offer, owner: AccountId, longest: u32) {
        let out = Out {
            session: offer.session,
            attempt: offer.attempt,
            claimed: false,
            decoy: false,
            turn: Turn::of(offer, longest).map(Arc::new),
            owner,
            since: Instant::now(),
            state: State::Out,
        };
        let since = out.since;
        self.leave(offer.job.id);
        self.jobs.insert(offer.job.id, out);
        let busy = self.busy.entry(offer.session);
        let busy = busy.or_insert(Busy { jobs: 0, since });
        busy.jobs += 1;
        busy.since = since;
    }

    /// Nobody waits for what is made of it.
    pub fn add_decoy(&mut self, offer: &Offer, owner: AccountId) {
        self.add(offer, owner, u32::MAX);
        if let Some(out) = self.jobs.get_mut(&offer.job.id) {
            out.decoy = true;
        }
    }

    /// An earlier process gave it out.
    pub fn claim(&mut self, job: JobId) {
        if let Some(out) = self.jobs.get_mut(&job) {
            out.claimed = true;
        }
    }

    /// The attempt that an account's worker brings.
    pub fn take(&self, job: JobId, owner: AccountId) -> Result<Out, NotTaken> {
        let out = self.jobs.get(&job).ok_or(NotTaken::Unknown)?;
        match out.state {
            _ if out.owner != owner => Err(NotTaken::NotYours),
            State::Brought => Err(NotTaken::Already),
            State::TakenAway => Err(NotTaken::TakenAway),
            State::Out => Ok(out.clone()),
        }
    }

    pub fn brought(&mut self, job: JobId) {
        self.turn(job, State::Brought);
    }

    /// Dispatch would not have it: somebody was faster, even if that was the same worker.
    pub fn refused(&mut self, job: JobId) -> NotTaken {
        match self.jobs.get(&job).map(|out| out.state) {
            Some(State::Brought) => NotTaken::Already,
            _ => {
                self.turn(job, State::TakenAway);
                NotTaken::TakenAway
            }
        }
    }

    /// Whether a worker that is not seen may just be working.
    pub fn is_busy(&self, session: SessionId, now: Instant) -> bool {
        let busy = self.busy.get(&session);
        busy.is_some_and(|busy| busy.since + BUSY > now)
    }

    pub fn forget(&mut self, now: Instant) {
        let old = |out: &Out| out.since + KNOWN <= now;
        let gone: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, out)| old(out))
            .map(|(job, _)| *job)
            .collect();
        for job in gone {
            self.leave(job);
            self.jobs.remove(&job);
        }
    }

    fn turn(&mut self, job: JobId, state: State) {
        self.leave(job);
        if let Some(out) = self.jobs.get_mut(&job) {
            out.state = state;
        }
    }

    /// Its session is busy with one job less.
    fn leave(&mut self, job: JobId) {
        let Some(out) = self.jobs.get(&job).filter(|out| out.state == State::Out) else {
            return;
        };
        if let Some(busy) = self.busy.get_mut(&out.session) {
            busy.jobs -= 1;
            if busy.jobs == 0 {
                self.busy.remove(&out.session);
            }
        }
    }
}
