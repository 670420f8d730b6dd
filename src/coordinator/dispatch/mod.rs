//! The queue, placement, leases, retries: a state machine without I/O. [`Input`]s and the time go in, [`Effect`]s come
//! out; sockets, the store and the clock belong to the shell around it.
//!
//! | file | decisions |
//! | --- | --- |
//! | `input`, `effect` | input and output of the state machine |
//! | `fairness`, `queue` | the order of the queue |
//! | `lanes`, `workers`, `refusal` | which workers can serve a job, and the refusal if none can |
//! | `admission`, `vacancy`, `placement` | from the request into the queue, and from there to a worker |
//! | `jobs`, `frames` | an accepted job, and its worker's frames |
//! | `connections` | connect, disconnect, resume, replacement of workers |
//! | `polling`, `wants` | polling workers, and which jobs they accept |
//! | `terms` | priority at a worker: its owner and preferred accounts |
//! | `retries`, `conduct` | retries of a failed job, strikes of its worker |
//! | `suspects` | jobs that may kill their workers, and run alone until they are cleared |
//! | `deserted` | jobs whose workers have all gone |
//! | `endings` | cancels, expiry, silence, slow clients, draining |
//! | `online`, `demand`, `outlook`, `pace` | connected workers, demand and expected waits, for display |
//! | `settlement` | the store first, then the client's end and the worker's ack |
//!
//! Invariants (`simulation` checks all of it, all the time): an accepted job ends exactly once, within its lifetime and
//! 30 s; nothing ends as delivered before the store has it; a client never sees that a worker was lost before its first
//! output, and after it sees neither a gap nor a repetition; a cancelled job frees its slot within a second; nothing of
//! an ended job stays behind.
//!
//! The cost of an input is a logarithm of the workers online and of the jobs waiting, except when a worker joins,
//! leaves or changes its models, and when one polls, which walks over the lanes it serves. The reasons of an empty pop
//! are counted over some of the lanes; other displays walk over all.

mod admission;
mod affinity;
mod clock;
mod conduct;
mod connections;
mod demand;
mod deserted;
mod effect;
mod endings;
mod fairness;
mod frames;
mod input;
mod jobs;
mod lanes;
mod lifetimes;
mod online;
mod outlook;
mod pace;
mod placement;
mod polling;
mod queue;
mod refusal;
mod retries;
mod settings;
mod settlement;
mod suspects;
mod terms;
mod timers;
mod vacancy;
mod wants;
mod workers;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use clock::{Mono, Now};
pub use demand::{Demand, Demands};
pub use effect::{
    CancelReason, CloseReason, Effect, Facts, Offer, Outcome, Part, Prefill, Timing, Verdict,
};
pub use fairness::{Priority, Standing};
pub use input::{
    BegunOutput, Claim, Extensions, Frame, Input, Limits, ModelReport, Offering, Registration,
    Report, Resume, Said, ServedModel, SessionId, Submission, Terms,
};
pub use jobs::MOST_ATTEMPTS;
pub use online::{OnlineModel, OnlineWorker};
pub use outlook::Outlook;
pub use polling::{Skip, Skipped};
pub use refusal::{Missing, Refusal};
pub use settings::{Settings, StrikeRules};
pub use wants::{Wants, Words};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_protocol::job::{AccountId, JobId, WorkerId};

use affinity::Affinity;
use clock::Table;
use conduct::Conduct;
use jobs::Entry;
use lanes::{LaneId, Lanes};
use pace::Paces;
use queue::FairQueue;
use timers::{Alarm, Timers};
use workers::Worker;

/// The state of dispatch, owned by one task.
#[derive(Debug)]
pub struct Dispatcher {
    settings: Settings,
    now: Now,
    jobs: Table<JobId, Entry>,
    /// Unfinished jobs per account.
    open: Table<AccountId, usize>,
    /// The part that are texts with a waiting client.
    direct_texts: Table<AccountId, usize>,
    /// Media and stored transcripts of `/v1` per account.
    media: Table<AccountId, usize>,
    demands: Demands,
    workers: Table<WorkerId, Worker>,
    sessions: Table<SessionId, WorkerId>,
    /// Terms of workers that have any.
    terms: Table<WorkerId, Terms>,
    /// Connected workers that are limited to their owners' jobs.
    own_only: BTreeSet<(AccountId, WorkerId)>,
    lanes: Lanes,
    queue: FairQueue,
    /// Waiting suspects by arrival.
    suspects: BTreeMap<(Mono, u64), JobId>,
    /// Workers that are reserved for a suspect, or run one.
    isolated: BTreeSet<WorkerId>,
    conduct: Conduct,
    paces: Paces,
    affinity: Affinity,
    timers: Timers,
    draining: bool,
    is_paused: bool,
    tickets: u64,
    turns: u64,
    touched: Touched,
}

/// Workers and lanes that changed in this turn and are matched again at its end.
#[derive(Debug, Default)]
struct Touched {
    workers: Vec<WorkerId>,
    lanes: Vec<LaneId>,
    /// Lanes that lost a worker.
    left: Vec<LaneId>,
    barred: Vec<(WorkerId, Duration)>,
    /// The set of workers that suspects wait for has changed.
    suspects: bool,
}

/// Sizes of all tables, for metrics and for leak tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Accepted jobs that have not ended.
    pub jobs: usize,
    /// The part that is queued.
    pub queued: usize,
    pub workers: usize,
    pub sessions: usize,
    pub accounts: usize,
    /// Accounts with counted jobs.
    pub counted: usize,
    pub models: usize,
    pub lanes: usize,
    pub records: usize,
    pub alarms: usize,
    /// Kinds and models with unfinished requests.
    pub demands: usize,
    /// Waiting suspects, and workers reserved for them.
    pub suspects: usize,
    pub isolated: usize,
}

impl Dispatcher {
    pub fn new(settings: Settings) -> Self {
        Self {
            affinity: Affinity::new(settings.affinity_entries),
            settings,
            now: Now::default(),
            jobs: Table::default(),
            open: Table::default(),
            direct_texts: Table::default(),
            media: Table::default(),
            demands: Demands::default(),
            workers: Table::default(),
            sessions: Table::default(),
            terms: Table::default(),
            own_only: BTreeSet::new(),
            lanes: Lanes::default(),
            queue: FairQueue::default(),
            suspects: BTreeMap::new(),
            isolated: BTreeSet::new(),
            conduct: Conduct::default(),
            paces: Paces::default(),
            timers: Timers::default(),
            draining: false,
            is_paused: false,
            tickets: 0,
            turns: 0,
            touched: Touched::default(),
        }
    }

    /// Applies an input and appends its effects, in order. Due alarms fire first, so a late shell keeps the order of
    /// events.
    pub fn handle(&mut self, input: Input, now: Now, out: &mut Vec<Effect>) {
        self.now = Now {
            mono: now.mono.max(self.now.mono),
            wall: now.wall,
        };
        self.sound_alarms(out);
        self.apply(input, out);
        self.match_touched(out);
    }

    /// The next useful time for [`Input::Tick`] if no other input comes.
    pub fn next_wake(&self) -> Option<Mono> {
        self.timers.next()
    }

    pub fn census(&self) -> Census {
        Census {
            jobs: self.jobs.len(),
            queued: self.queue.len(),
            workers: self.workers.len(),
            sessions: self.sessions.len(),
            accounts: self.queue.accounts(),
            counted: self.open.len(),
            models: self.lanes.models(),
            lanes: self.lanes.len(),
            records: self.conduct.len(),
            alarms: self.timers.len(),
            demands: self.demands.len(),
            suspects: self.suspects.len(),
            isolated: self.isolated.len(),
        }
    }

    fn apply(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Submit(submission) => self.submit(submission, &[], out),
            Input::Continue(submission, begun) => self.submit(submission, &begun, out),
            Input::Cancel { job } => self.cancel(job, out),
            Input::EndAccount { account, failure } => self.end_account(account, &failure, out),
            Input::SlowClient { job } => self.drop_slow_client(job, out),
            Input::Pop { session, wants } => self.pop(session, &wants, out),
            Input::Changed(registration) => self.change(&registration),
            Input::Terms { worker, terms } => self.set_terms(worker, terms),
            Input::Connected(registration) => self.connect(&registration, out),
            Input::Frame(frame) => self.frame(frame, out),
            Input::Report(report) => self.report(&report),
            Input::Heard { session } => self.heard(session),
            Input::Leaving { session, within } => self.leave(session, within),
            Input::Lost { session } => self.lose_socket(session, out),
            Input::Settled { job, reward } => self.settled(job, reward, out),
            Input::SettleFailed { job } => self.settle_failed(job),
            Input::StoreFull { job } => self.store_full(job, out),
            Input::DrainWorker { worker, within } => self.drain_worker(worker, within, out),
            Input::Limits(limits) => self.settings.set_limits(limits),
            Input::Drain { within } => self.drain(within, out),
            Input::HandOver => self.hand_over(out),
            Input::Pause => self.is_paused = true,
            Input::Resume => self.resume_placing(),
            Input::Tick => {}
        }
    }

    fn sound_alarms(&mut self, out: &mut Vec<Effect>) {
        while let Some((_, alarm)) = self.timers.pop(self.now.mono) {
            match alarm {
                Alarm::Job(job) => self.job_alarm(job, out),
                Alarm::Worker(worker) => self.worker_alarm(worker, out),
                Alarm::Conduct(worker) => self.watch_conduct(worker),
                Alarm::Lane(lane) => self.lane_alarm(lane, out),
                Alarm::Drain => self.end_drain(out),
            }
            self.match_touched(out);
        }
    }

    /// Matches changed workers and jobs until nothing changes any more.
    fn match_touched(&mut self, out: &mut Vec<Effect>) {
        loop {
            if let Some((worker, bar)) = self.touched.barred.pop() {
                self.evict(worker, bar, out);
            } else if let Some(worker) = self.lanes.next_unplaced() {
                self.refresh(worker);
            } else if let Some(lane) = self.touched.left.pop() {
                self.rehome(lane);
                self.touched.lanes.push(lane);
            } else if let Some(worker) = self.touched.workers.pop() {
                self.feed_worker(worker, out);
            } else if let Some(lane) = self.touched.lanes.pop() {
                self.fill_lane(lane, out);
            } else if self.touched.suspects {
                self.review_isolation();
            } else {
                return;
            }
        }
    }
}
