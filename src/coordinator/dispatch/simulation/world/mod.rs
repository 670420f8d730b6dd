//! The event calendar, and the transport of inputs and effects between the dispatcher and the rest. Clients' actions
//! are in `asking`, polls in `visits`.

mod asking;
mod visits;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::books;
use super::clients::Clients;
use super::pollers::{Brought, Poller};
use super::random::Random;
use super::rigs::{Rig, Say};
use super::store::Store;
use crate::dispatch::{
    CloseReason, Dispatcher, Effect, Frame, Input, Mono, Now, Offer, SessionId, Settings,
};
use muster_protocol::job::{JobId, RequestId, UnixMillis, WorkerId};

#[derive(Clone, Copy)]
pub struct Scale {
    pub rigs: u64,
    pub pollers: u64,
    pub requests: u64,
}

pub struct World {
    random: Random,
    dispatcher: Dispatcher,
    now: Now,
    calendar: BTreeMap<(Mono, u64), Happening>,
    entries: u64,
    steps: u64,
    scale: Scale,
    rigs: Vec<Rig>,
    sessions: BTreeMap<SessionId, usize>,
    pollers: Vec<Poller>,
    /// Sessions of polling workers, earlier ones included.
    polling: BTreeMap<SessionId, usize>,
    /// Offers to the polling worker of the current pop.
    popped: Vec<Offer>,
    /// Submits of polling workers, by job and attempt.
    brought: BTreeSet<(JobId, u32)>,
    /// A polling worker is submitting.
    bringing: bool,
    clients: Clients,
    requests: BTreeMap<RequestId, Vec<JobId>>,
    issued: u64,
    store: Store,
    /// The worker of each offer, by job and attempt.
    offered: BTreeMap<(JobId, u32), WorkerId>,
    told_to_stop: BTreeSet<(JobId, u32)>,
    happened: BTreeMap<&'static str, u64>,
    /// Nothing new begins; running jobs come to their end.
    closing: bool,
    /// Another coordinator goes on with the open jobs.
    hands_over: bool,
}

enum Happening {
    Request,
    /// A client cancels, or reads too slowly.
    Impatience(JobId),
    /// 30 s after a job's timeout.
    Overdue(JobId),
    /// A second after the cancellation.
    SlotFree(JobId),
    ToDispatcher(Input),
    ToRig(usize, SessionId, Effect),
    Connect(usize, u32),
    Mishap(usize),
    Step(usize, u32, (JobId, u32)),
    Beat(usize, u32, (JobId, u32)),
    /// A polling worker polls.
    Visit(usize),
    Bring(usize, Brought),
    Outage,
    ClockJump,
    Drain,
}

impl World {
    pub fn new(seed: u64, scale: Scale) -> Self {
        let mut random = Random::new(seed);
        let rigs = (0..scale.rigs as i64)
            .map(|number| Rig::new(number, &mut random))
            .collect();
        let pollers = (0..scale.pollers as i64).map(|number| Poller::new(number, &mut random));
        let pollers = pollers.collect();
        Self {
            random,
            dispatcher: Dispatcher::new(Settings::default()),
            now: Now {
                mono: Mono(0),
                wall: UnixMillis(1_800_000_000_000),
            },
            calendar: BTreeMap::new(),
            entries: 0,
            steps: 0,
            scale,
            rigs,
            sessions: BTreeMap::new(),
            pollers,
            polling: BTreeMap::new(),
            popped: Vec::new(),
            brought: BTreeSet::new(),
            bringing: false,
            clients: Clients::default(),
            requests: BTreeMap::new(),
            issued: 0,
            store: Store::default(),
            offered: BTreeMap::new(),
            told_to_stop: BTreeSet::new(),
            happened: BTreeMap::new(),
            closing: false,
            hands_over: false,
        }
    }

    pub fn run(mut self) -> BTreeMap<&'static str, u64> {
        self.open();
        while let Some((at, happening)) = self.next() {
            self.pass(at);
            self.happen(happening);
            self.steps += 1;
            if self.steps.is_multiple_of(self.scale.rigs * 4) {
                books::check(&self.dispatcher);
            }
        }
        self.close()
    }

    fn open(&mut self) {
        for index in 0..self.rigs.len() {
            let wait = self.random.millis(0, 3000);
            self.after(wait, Happening::Connect(index, 0));
            let wait = self.random.millis(1000, 120_000);
            self.after(wait, Happening::Mishap(index));
        }
        for index in 0..self.pollers.len() {
            let wait = self.random.millis(0, 5000);
            self.after(wait, Happening::Visit(index));
        }
        for _ in 0..self.scale.requests {
            let wait = self.random.millis(0, 120_000);
            self.after(wait, Happening::Request);
        }
        for _ in 0..self.random.below(4) {
            let wait = self.random.millis(5000, 120_000);
            self.after(wait, Happening::Outage);
            let wait = self.random.millis(0, 120_000);
            self.after(wait, Happening::ClockJump);
        }
        if self.random.permille(125) {
            let wait = self.random.millis(30_000, 130_000);
            self.after(wait, Happening::Drain);
        }
    }

    /// Disconnects all workers, lets time pass, and checks that all tables are empty.
    fn close(mut self) -> BTreeMap<&'static str, u64> {
        assert!(
            self.clients.open.is_empty(),
            "still open: {:?}",
            self.clients.open
        );
        self.closing = true;
        let sessions = self.sessions.keys().chain(self.polling.keys());
        let sessions: Vec<SessionId> = sessions.copied().collect();
        for session in sessions {
            self.give(Input::Lost { session });
        }
        while let Some(wake) = self.dispatcher.next_wake() {
            self.pass(wake);
            self.give(Input::Tick);
        }
        books::check_empty(&self.dispatcher);
        self.happened
    }

    /// The next event, which may be a wake-up of the dispatcher. `None` when all jobs have ended.
    fn next(&mut self) -> Option<(Mono, Happening)> {
        let next = self.calendar.first_key_value().map(|((at, _), _)| *at);
        let wake = self.dispatcher.next_wake();
        assert!(
            wake.is_none_or(|wake| wake >= self.now.mono),
            "the dispatcher missed its wake-up"
        );
        if next.is_none() && self.clients.open.is_empty() {
            return None;
        }
        match (next, wake) {
            (Some(next), Some(wake)) if wake <= next => {
                Some((wake, Happening::ToDispatcher(Input::Tick)))
            }
            (None, Some(wake)) => Some((wake, Happening::ToDispatcher(Input::Tick))),
            _ => self
                .calendar
                .pop_first()
                .map(|((at, _), happening)| (at, happening)),
        }
    }

    fn pass(&mut self, to: Mono) {
        let time = to.since(self.now.mono);
        self.now.wall = UnixMillis(self.now.wall.0 + (time.as_micros() / 1000) as i64);
        self.now.mono = self.now.mono.max(to);
    }

    fn after(&mut self, wait: Duration, happening: Happening) {
        self.entries += 1;
        self.calendar
            .insert((self.now.mono + wait, self.entries), happening);
    }

    fn is_over(&self) -> bool {
        self.now.mono > Mono(150_000_000) || self.closing
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Request => self.request(),
            Happening::Impatience(job) => self.lose_patience(job),
            Happening::Overdue(job) => self.clients.assert_ended(job),
            Happening::SlotFree(job) => books::check_slot_is_free(&self.dispatcher, job),
            Happening::ToDispatcher(input) => self.give(input),
            Happening::ToRig(index, session, effect) => self.reach(index, session, effect),
            Happening::Connect(index, life) => self.connect(index, life),
            Happening::Mishap(index) => self.mishap(index),
            Happening::Step(index, life, key) => self.step(index, life, key),
            Happening::Beat(index, life, key) => self.beat(index, life, key),
            Happening::Visit(index) => self.visit(index),
            Happening::Bring(index, brought) => self.bring(index, brought),
            Happening::Outage => {
                self.store.down = !self.store.down && !self.is_over();
                if self.store.down {
                    let wait = self.random.millis(100, 40_000);
                    self.after(wait, Happening::Outage);
                }
            }
            Happening::Drain => {
                let within = self.random.millis(0, 40_000);
                self.hands_over = self.random.permille(300);
                self.give(match self.hands_over {
                    true => Input::HandOver,
                    false => Input::Drain { within },
                });
            }
            Happening::ClockJump => {
                let hours = self.random.below(2000) as i64 - 1000;
                self.now.wall = UnixMillis(self.now.wall.0 + hours * 3_600_000);
            }
        }
    }

    // Workers.

    fn connect(&mut self, index: usize, life: u32) {
        let rig = &mut self.rigs[index];
        if rig.session.is_some() || rig.life != life || self.now.mono > Mono(400_000_000) {
            return;
        }
        self.issued += 1;
        let session = SessionId(self.issued);
        let registration = rig.register(session);
        self.sessions.insert(session, index);
        self.give(Input::Connected(Box::new(registration)));
    }

    /// A fault of a worker: its connection breaks, it crashes, leaves, or sends frames about other jobs.
    fn mishap(&mut self, index: usize) {
        if self.is_over() {
            return;
        }
        let wait = self.random.millis(1000, 90_000);
        self.after(wait, Happening::Mishap(index));
        let Some(session) = self.rigs[index].session else {
            return;
        };
        match self.random.below(10) {
            0..4 => {
                self.rigs[index].unplug();
                self.lost_line(index, session);
            }
            4..6 => {
                self.rigs[index].die();
                self.lost_line(index, session);
            }
            6 => {
                let within = self.random.millis(1000, 30_000);
                self.give(Input::Leaving { session, within });
            }
            7 => {
                let (worker, within) = (self.rigs[index].id, self.random.millis(1000, 30_000));
                self.give(Input::DrainWorker { worker, within });
            }
            _ => self.meddle(index),
        }
    }

    /// A frame about another worker's job, with the right attempt number.
    fn meddle(&mut self, index: usize) {
        let Some(&job) = self.random.pick(&self.clients.open) else {
            return;
        };
        let lease = self
            .dispatcher
            .jobs
            .get(&job)
            .and_then(|entry| entry.lease());
        let theirs = lease.filter(|lease| lease.worker != self.rigs[index].id);
        let Some(attempt) = theirs.map(|lease| lease.attempt) else {
            return;
        };
        if self.rigs[index].manners.meddles > 0 {
            let say = self.rigs[index].meddle((job, attempt), &mut self.random);
            self.send(index, vec![say]);
        }
    }

    /// The coordinator may notice late, or only at the next connection.
    fn lost_line(&mut self, index: usize, session: SessionId) {
        let heard = self.random.millis(0, 20_000);
        self.after(heard, Happening::ToDispatcher(Input::Lost { session }));
        self.come_back(index, 30_000);
    }

    fn come_back(&mut self, index: usize, within_millis: u64) {
        let wait = self.random.millis(500, within_millis);
        let life = self.rigs[index].life;
        self.after(wait, Happening::Connect(index, life));
    }

    fn reach(&mut self, index: usize, session: SessionId, effect: Effect) {
        let rig = &mut self.rigs[index];
        if rig.session != Some(session) {
            return;
        }
        if let Effect::CloseWorker { reason, .. } = effect {
            rig.unplug();
            let wait = match reason {
                CloseReason::Barred { retry_after } | CloseReason::Evicted { retry_after } => {
                    retry_after.as_millis() as u64 + 600
                }
                _ => 5000,
            };
            return self.come_back(index, wait.max(1000));
        }
        let length = match &effect {
            Effect::Offer(offer) => self.clients.jobs[&offer.job.id].length,
            _ => 0,
        };
        let (says, begun) = rig.hear(&effect, length, &mut self.random);
        self.send(index, says);
        if let Some(key) = begun {
            self.schedule(index, key);
        }
    }

    fn step(&mut self, index: usize, life: u32, key: (JobId, u32)) {
        if self.rigs[index].life != life {
            return;
        }
        let (says, more) = self.rigs[index].step(key, &mut self.random);
        self.send(index, says);
        if more {
            self.schedule(index, key);
        }
    }

    fn beat(&mut self, index: usize, life: u32, key: (JobId, u32)) {
        if self.rigs[index].life == life {
            let beat = self.rigs[index].beat(key);
            self.send(index, beat.into_iter().collect());
        }
    }

    /// The next token, sometimes after a silence with heartbeats.
    fn schedule(&mut self, index: usize, key: (JobId, u32)) {
        let (life, pace) = (self.rigs[index].life, self.rigs[index].manners.pace);
        let mut wait = pace;
        if self.random.permille(20) {
            wait += Duration::from_secs(12);
            for beat in [4, 8, 12] {
                self.after(Duration::from_secs(beat), Happening::Beat(index, life, key));
            }
        }
        self.after(wait, Happening::Step(index, life, key));
    }

    /// In order, over the socket if it is open.
    fn send(&mut self, index: usize, says: Vec<Say>) {
        let (session, latency) = (self.rigs[index].session, self.rigs[index].latency);
        let Some(session) = session.filter(|_| self.rigs[index].ready) else {
            return;
        };
        for Say {
            job,
            attempt,
            seq,
            said,
        } in says
        {
            let frame = Frame {
                session,
                job,
                attempt,
                seq,
                said,
            };
            self.after(latency, Happening::ToDispatcher(Input::Frame(frame)));
        }
    }

    // The dispatcher.

    fn give(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.dispatcher.handle(input, self.now, &mut effects);
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        self.count(&effect);
        match effect {
            Effect::Accepted { request } => self.accepted(request),
            Effect::Refused { request, .. } => {
                for job in self.requests.remove(&request).unwrap() {
                    self.clients.refused(job);
                }
            }
            Effect::Relay { job, ref event } => self.clients.relay(job, event, self.bringing),
            Effect::End { job, ref outcome } => {
                let settled = self.store.has(job);
                let kind = self.clients.end(job, outcome, settled, self.now.mono);
                *self.happened.entry(kind).or_default() += 1;
            }
            Effect::Park { job } => self.clients.park(job, self.hands_over),
            Effect::Returned { .. } => {}
            Effect::Settle(facts) => {
                self.clients.check_parts(&facts);
                for part in &facts.parts {
                    let worker = self.offered.get(&(facts.job.id, part.attempt));
                    assert_eq!(
                        worker,
                        Some(&part.worker),
                        "the worker with the attempt is paid"
                    );
                }
                if let Some((wait, answer)) = self.store.settle(&facts, &mut self.random) {
                    self.after(wait, Happening::ToDispatcher(answer));
                }
            }
            Effect::Ack {
                session,
                job,
                reward,
                ..
            } => {
                let worker = self.worker_of(session);
                self.store.told(job, worker, reward);
                self.tell(session, effect);
            }
            Effect::CancelOnWorker {
                session,
                job,
                attempt,
                ..
            } => {
                self.told_to_stop.insert((job, attempt));
                self.tell(session, effect);
            }
            Effect::Ready { session, .. }
            | Effect::Got { session, .. }
            | Effect::Drop { session, .. }
            | Effect::TellDrain { session, .. }
            | Effect::CloseWorker { session, .. } => self.tell(session, effect),
            Effect::Offer(ref offer) => {
                let worker = self.worker_of(offer.session);
                let before = self.offered.insert((offer.job.id, offer.attempt), worker);
                assert_eq!(before, None, "each attempt belongs to one worker");
                match self.polling.contains_key(&offer.session) {
                    true => self.popped.push(offer.clone()),
                    false => self.tell(offer.session, effect),
                }
            }
            Effect::Drained => assert!(self.clients.open.is_empty(), "drained with open jobs"),
        }
    }

    fn count(&mut self, effect: &Effect) {
        let what = match effect {
            Effect::Drained => "drained",
            Effect::Park { .. } => "parked",
            Effect::Drop { .. } => "dropped",
            Effect::Offer(offer) if offer.prefill.is_some() => "continued",
            Effect::Ready { resumed, .. } if resumed.iter().any(|it| it.go_on_after.is_some()) => {
                "resumed"
            }
            Effect::CloseWorker { reason, .. } => match reason {
                CloseReason::Replaced => "closed: replaced",
                CloseReason::Silent => "closed: silent",
                CloseReason::Evicted { .. } => "closed: evicted",
                CloseReason::Barred { .. } => "closed: barred",
                CloseReason::Drained => "closed: drained",
            },
            _ => return,
        };
        *self.happened.entry(what).or_default() += 1;
    }

    fn note(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    fn worker_of(&self, session: SessionId) -> WorkerId {
        match self.polling.get(&session) {
            Some(&index) => self.pollers[index].id,
            None => self.rigs[self.sessions[&session]].id,
        }
    }

    fn tell(&mut self, session: SessionId, effect: Effect) {
        let Some(&index) = self.sessions.get(&session) else {
            // A polling worker hears of this with its next poll.
            assert!(self.polling.contains_key(&session), "{effect:?}");
            return;
        };
        let latency = self.rigs[index].latency;
        self.after(latency, Happening::ToRig(index, session, effect));
    }
}
