//! Leases of polling workers, and recent submits. Kept for a while after they end, so that a late submit gets a precise
//! error; stored results are looked up in the database.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::chat::Turn;
use crate::dispatch::{Offer, SessionId};
use muster_protocol::job::drawn::Drawn;
use muster_protocol::job::written::most_bytes;
use muster_protocol::job::{AccountId, JobId, Kind};

/// How long a job is known here after its timeout.
const KNOWN: Duration = Duration::from_secs(3600);
/// How long a delivered job is known here; later lookups use the database.
const DELIVERED: Duration = Duration::from_secs(60);
/// Jobs removed per call.
const FORGOTTEN: usize = 256;

/// The reason why a submit is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    Unknown,
    /// Leased to another account's worker.
    NotYours,
    Already,
    /// The lease was given back, it expired, or the client cancelled.
    TakenAway,
    /// The output is longer than the job allows. Counts as a failure of the worker.
    TooLong {
        bytes: usize,
        most: usize,
    },
    Unavailable,
}

#[derive(Debug, Default)]
pub struct Held {
    /// By job ticket.
    jobs: HashMap<JobId, Out>,
    /// The ticket of the last attempt at each job.
    last: HashMap<JobId, JobId>,
    busy: HashMap<SessionId, Busy>,
    /// Removal times of the jobs.
    ends: BTreeSet<(Instant, JobId)>,
}

/// Number of a session's jobs, and the time they may take.
#[derive(Debug, Clone, Copy)]
struct Busy {
    jobs: usize,
    until: Instant,
}

/// The lease of a polling worker.
#[derive(Debug, Clone)]
pub struct Out {
    /// The job ticket.
    pub id: JobId,
    pub job: JobId,
    pub kind: Kind,
    pub session: SessionId,
    pub attempt: u32,
    /// A decoy, whose result is discarded.
    pub decoy: bool,
    /// How to parse the output as an assistant's message, for chats.
    pub turn: Option<Arc<Turn>>,
    /// Bounds of the image's size.
    pub drawn: Drawn,
    /// Most bytes of text output.
    pub written: usize,
    /// Submitted, but the worker was not told whether the result is stored.
    pub unsure: bool,
    /// Held while a submit is handled, so that concurrent submits take turns.
    pub alone: Arc<Mutex<()>>,
    owner: AccountId,
    /// Timeout without any frame.
    patience: Duration,
    ends: Instant,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    Brought,
    TakenAway,
}

impl Held {
    pub fn add(&mut self, id: JobId, offer: &Offer, owner: AccountId, longest: u32) {
        let before = self.last.insert(offer.job.id, id);
        if let Some(before) = before.filter(|before| *before != id) {
            self.take_away(before);
        }
        let patience = offer.patience.unwrap_or(offer.remaining);
        let until = Instant::now() + patience;
        let out = Out {
            id,
            job: offer.job.id,
            kind: offer.job.kind,
            session: offer.session,
            attempt: offer.attempt,
            decoy: false,
            turn: Turn::of(offer, longest).map(Arc::new),
            drawn: Drawn::of(&offer.job),
            written: most_bytes(&offer.job),
            unsure: false,
            alone: Arc::default(),
            owner,
            patience,
            ends: until + KNOWN,
            state: State::Out,
        };
        self.leave(id);
        self.ends.insert((out.ends, id));
        if let Some(before) = self.jobs.insert(id, out) {
            self.ends.remove(&(before.ends, id));
        }
        let busy = self.busy.entry(offer.session);
        let busy = busy.or_insert(Busy { jobs: 0, until });
        busy.jobs += 1;
        busy.until = busy.until.max(until);
    }

    /// The worker reported progress: extends the lease.
    pub fn goes_on(&mut self, id: JobId) {
        let Some(out) = self.jobs.get(&id) else {
            return;
        };
        if let Some(busy) = self.busy.get_mut(&out.session) {
            busy.until = busy.until.max(Instant::now() + out.patience);
        }
    }

    /// Adds a decoy, whose result is discarded.
    pub fn add_decoy(&mut self, id: JobId, offer: &Offer, owner: AccountId) {
        self.add(id, offer, owner, u32::MAX);
        if let Some(out) = self.jobs.get_mut(&id) {
            out.decoy = true;
        }
    }

    /// The job's kind, while the lease is known.
    pub fn kind(&self, id: JobId) -> Option<Kind> {
        self.jobs.get(&id).map(|out| out.kind)
    }

    /// The lease that an account's worker submits for.
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

    /// The database has not yet confirmed the submitted result.
    pub fn unsure(&mut self, id: JobId) {
        if let Some(out) = self.jobs.get_mut(&id) {
            out.unsure = true;
        }
    }

    /// The submitted result is stored.
    pub fn delivered(&mut self, id: JobId) {
        self.brought(id);
        if let Some(out) = self.jobs.get_mut(&id) {
            self.ends.remove(&(out.ends, id));
            out.ends = Instant::now() + DELIVERED;
            self.ends.insert((out.ends, id));
        }
    }

    /// The worker failed the job and will not submit again.
    pub fn given_back(&mut self, id: JobId) {
        self.turn(id, State::TakenAway);
    }

    /// Dispatch refused the submit: another came first, perhaps of the same worker.
    pub fn refused(&mut self, id: JobId) -> NotTaken {
        match self.jobs.get(&id).map(|out| out.state) {
            Some(State::Brought) => NotTaken::Already,
            _ => {
                self.turn(id, State::TakenAway);
                NotTaken::TakenAway
            }
        }
    }

    /// Ends the lease of an offer that was not delivered.
    pub fn end(&mut self, offer: &Offer) {
        let last = self.last.get(&offer.job.id).copied();
        let is_it = |id: &JobId| {
            self.jobs
                .get(id)
                .is_some_and(|out| out.attempt == offer.attempt)
        };
        if let Some(id) = last.filter(is_it) {
            self.take_away(id);
        }
    }

    /// The job was leased again.
    fn take_away(&mut self, id: JobId) {
        if self
            .jobs
            .get(&id)
            .is_some_and(|out| out.state == State::Out)
        {
            self.turn(id, State::TakenAway);
        }
    }

    /// Whether a worker without contact may still be running a job.
    pub fn is_busy(&self, session: SessionId, now: Instant) -> bool {
        let busy = self.busy.get(&session);
        busy.is_some_and(|busy| busy.until > now)
    }

    /// Removes some expired jobs. True if there are more.
    pub fn forget(&mut self, now: Instant) -> bool {
        for _ in 0..FORGOTTEN {
            match self.ends.first() {
                Some(&(end, id)) if end <= now => {
                    self.ends.remove(&(end, id));
                    self.remove(id);
                }
                _ => return false,
            }
        }
        true
    }

    fn remove(&mut self, id: JobId) {
        self.leave(id);
        let job = self.jobs.remove(&id).map(|out| out.job);
        if let Some(job) = job.filter(|job| self.last.get(job) == Some(&id)) {
            self.last.remove(&job);
        }
    }

    fn turn(&mut self, job: JobId, state: State) {
        self.leave(job);
        if let Some(out) = self.jobs.get_mut(&job) {
            out.state = state;
            // Holds the whole job, so it is freed early.
            out.turn = None;
        }
    }

    /// Removes a job from its session's running ones.
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
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Held, NotTaken};
    use crate::dispatch::{Offer, SessionId};
    use muster_protocol::job::{AccountId, Body, FormRequest, Formats, Job};

    const SESSION: SessionId = SessionId(1);
    const OWNER: AccountId = AccountId(9);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn offer(patience: u64) -> Offer {
        Offer {
            session: SESSION,
            job: Arc::new(job()),
            attempt: 1,
            model: "caption".into(),
            upstream: None,
            format: Formats::LEGACY,
            prefill: None,
            patience: Some(secs(patience)),
            remaining: secs(600),
        }
    }

    fn job() -> Job {
        let form = FormRequest {
            form: "caption".to_owned(),
            payload: None,
            image: String::new(),
            width: 1,
            height: 1,
            slow_workers: true,
        };
        Job::plain(AccountId(1), "caption", Body::Form(Box::new(form)))
    }

    fn sweep(held: &mut Held, now: Instant) {
        while held.forget(now) {}
    }

    #[test]
    fn a_worker_is_busy_for_as_long_as_its_job_may_take_and_anew_when_it_speaks() {
        let (mut held, offer) = (Held::default(), offer(3870));
        held.add(offer.job.id, &offer, OWNER, 0);
        let now = Instant::now();
        assert!(held.is_busy(SESSION, now + secs(3800)));
        assert!(!held.is_busy(SESSION, now + secs(3871)));
        held.goes_on(offer.job.id);
        assert!(held.is_busy(SESSION, now + secs(3870)));
        held.brought(offer.job.id);
        assert!(!held.is_busy(SESSION, now));
    }

    #[test]
    fn what_was_delivered_is_soon_forgotten_and_what_was_not_is_known_long_after_its_time() {
        let mut held = Held::default();
        let offers: Vec<Offer> = (0..600).map(|_| offer(150)).collect();
        let (late, delivered) = offers.split_first().unwrap();
        held.add(late.job.id, late, OWNER, 0);
        for offer in delivered {
            held.add(offer.job.id, offer, OWNER, 0);
            held.delivered(offer.job.id);
        }
        let (id, now) = (delivered[0].job.id, Instant::now());
        assert_eq!(held.take(id, OWNER).unwrap_err(), NotTaken::Already);
        sweep(&mut held, now + secs(61));
        assert_eq!(held.take(id, OWNER).unwrap_err(), NotTaken::Unknown);
        assert_eq!(
            (held.jobs.len(), held.last.len(), held.ends.len()),
            (1, 1, 1)
        );
        sweep(&mut held, now + secs(3700));
        assert!(held.take(late.job.id, OWNER).is_ok());
        sweep(&mut held, now + secs(3751));
        assert_eq!(
            (held.jobs.len(), held.last.len(), held.ends.len()),
            (0, 0, 0)
        );
        assert!(held.busy.is_empty());
    }
}
