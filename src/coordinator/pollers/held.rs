//! The jobs that are out at workers that poll: who may bring them, and what was brought already. Kept a while longer
//! than their time, so that whoever comes too late is told so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

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

/// What a worker calls its attempt at a job: the first has the job's own id, and each later one another, so that who
/// was too late is told from who has it now. Of such an id and its attempt this is the job again.
pub fn called(job: JobId, attempt: u32) -> JobId {
    let later = u128::from(attempt.saturating_sub(1));
    JobId(Uuid::from_u128(job.0.as_u128() ^ later))
}

#[derive(Debug, Default)]
pub struct Held {
    /// By what their workers call them.
    jobs: HashMap<JobId, Out>,
    /// What the last attempt at a job is called.
    last: HashMap<JobId, JobId>,
    busy: HashMap<SessionId, Busy>,
}

/// How many jobs a session has out, and since when the last.
#[derive(Debug, Clone, Copy)]
struct Busy {
    jobs: usize,
    since: Instant,
}

/// One attempt at one job.
#[derive(Debug, Clone)]
pub struct Out {
    pub job: JobId,
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
        let id = called(offer.job.id, offer.attempt);
        let before = self.last.insert(offer.job.id, id);
        if let Some(before) = before.filter(|before| *before != id) {
            self.take_away(before);
        }
        let out = Out {
            job: offer.job.id,
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
        self.leave(id);
        self.jobs.insert(id, out);
        let busy = self.busy.entry(offer.session);
        let busy = busy.or_insert(Busy { jobs: 0, since });
        busy.jobs += 1;
        busy.since = since;
    }

    /// Nobody waits for what is made of it.
    pub fn add_decoy(&mut self, offer: &Offer, owner: AccountId) {
        self.add(offer, owner, u32::MAX);
        if let Some(out) = self.jobs.get_mut(&called(offer.job.id, offer.attempt)) {
            out.decoy = true;
        }
    }

    /// An earlier process gave it out.
    pub fn claim(&mut self, id: JobId) {
        if let Some(out) = self.jobs.get_mut(&id) {
            out.claimed = true;
        }
    }

    /// The attempt that an account's worker brings.
    pub fn take(&self, id: JobId, owner: AccountId) -> Result<Out, NotTaken> {
        let out = self.jobs.get(&id).ok_or(NotTaken::Unknown)?;
        match out.state {
            _ if out.owner != owner => Err(NotTaken::NotYours),
            State::Brought => Err(NotTaken::Already),
            State::TakenAway => Err(NotTaken::TakenAway),
            State::Out => Ok(out.clone()),
        }
    }

    pub fn brought(&mut self, id: JobId) {
        self.turn(id, State::Brought);
    }

    /// Dispatch would not have it: somebody was faster, even if that was the same worker.
    pub fn refused(&mut self, id: JobId) -> NotTaken {
        match self.jobs.get(&id).map(|out| out.state) {
            Some(State::Brought) => NotTaken::Already,
            _ => {
                self.turn(id, State::TakenAway);
                NotTaken::TakenAway
            }
        }
    }

    /// Somebody else has the job now.
    fn take_away(&mut self, id: JobId) {
        if self
            .jobs
            .get(&id)
            .is_some_and(|out| out.state == State::Out)
        {
            self.turn(id, State::TakenAway);
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
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.leave(id);
            let job = self.jobs.remove(&id).map(|out| out.job);
            if let Some(job) = job.filter(|job| self.last.get(job) == Some(&id)) {
                self.last.remove(&job);
            }
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

#[cfg(test)]
mod tests {
    use super::called;
    use crate::protocol::job::JobId;

    #[test]
    fn each_attempt_has_an_id_that_leads_to_its_job() {
        let job = JobId::random();
        assert_eq!(called(job, 1), job);
        for attempt in 2..=8 {
            let id = called(job, attempt);
            assert_ne!(id, called(job, attempt - 1));
            assert_eq!(called(id, attempt), job);
        }
    }
}
