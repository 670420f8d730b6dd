//! Workers with several texts and images each, some of which crash the worker that prepares them. Crashed workers
//! restart after a while; no other fault occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::books;
use super::random::Random;
use crate::dispatch::tests::{Desk, done, failure_kind, finished_image, is_delivered, step, token};
use crate::dispatch::{Effect, Input, Mono, Offer, SessionId};
use muster_protocol::job::{FailureKind, JobId, Kind};

const RUNS: u64 = 200;

enum PoisonEvent {
    Submit { kind: Kind, is_poison: bool },
    Start(i64),
    Write(Box<Offer>, u64),
    Die(SessionId),
}

struct Fleet {
    desk: Desk,
    random: Random,
    calendar: BTreeMap<(Mono, u64), PoisonEvent>,
    entries: u64,
    poison: BTreeSet<JobId>,
    /// Ended jobs: true if delivered.
    ended: BTreeMap<JobId, bool>,
    /// Jobs refused while no worker was connected.
    refused: usize,
    deaths: usize,
}

#[test]
fn a_killer_takes_two_workers_and_no_innocent_job() {
    run(0, 2);
}

/// Three workers die if jobs of another kind always run on them.
#[test]
fn a_killer_beside_another_kind_takes_three_workers_and_no_innocent_job() {
    run(400, 3);
}

/// Runs with this share of images, in a thousand.
fn run(images: u64, most_deaths: usize) {
    for seed in 1..=RUNS {
        let mut random = Random::new(seed);
        let (workers, killers) = (1 + random.below(6), random.below(5));
        let innocent = 10 + random.below(50);
        let mut fleet = Fleet::new(random, workers, (innocent, killers), images);
        fleet.run();
        let deaths = fleet.deaths;
        assert!(
            deaths <= most_deaths * killers as usize,
            "seed {seed}: {killers} jobs killed {deaths} workers"
        );
        let ended = fleet.ended.len() + fleet.refused;
        assert_eq!(ended as u64, innocent + killers, "seed {seed}");
        for (job, delivered) in &fleet.ended {
            let is_innocent = !fleet.poison.contains(job);
            assert_eq!(*delivered, is_innocent, "seed {seed}: {job}");
        }
        fleet.desk.assert_nothing_left();
        assert_eq!(fleet.desk.dispatcher.census().suspects, 0);
    }
}

impl Fleet {
    fn new(mut random: Random, workers: u64, (innocent, killers): (u64, u64), images: u64) -> Self {
        let mut fleet = Self {
            desk: Desk::new(),
            random: Random::new(random.next()),
            calendar: BTreeMap::new(),
            entries: 0,
            poison: BTreeSet::new(),
            ended: BTreeMap::new(),
            refused: 0,
            deaths: 0,
        };
        for worker in 1..=workers as i64 {
            fleet.start(worker);
        }
        for number in 0..innocent + killers {
            let is_poison = number < killers;
            let wait = random.millis(0, 20_000);
            let kind = match images > 0 && random.permille(images) {
                true => Kind::Image,
                false => Kind::Text,
            };
            fleet.after(wait, PoisonEvent::Submit { kind, is_poison });
        }
        fleet
    }

    fn after(&mut self, wait: Duration, happening: PoisonEvent) {
        self.entries += 1;
        let at = self.desk.now.mono + wait;
        self.calendar.insert((at, self.entries), happening);
    }

    fn run(&mut self) {
        while !self.calendar.is_empty() || self.desk.dispatcher.census().jobs > 0 {
            let now = self.desk.now.mono;
            let wake = self.desk.dispatcher.next_wake();
            let next = self.calendar.first_key_value().map(|((at, _), _)| *at);
            let at = wake.into_iter().chain(next).min();
            self.desk.wait(at.expect("something is to come").since(now));
            while self
                .calendar
                .first_key_value()
                .is_some_and(|((at, _), _)| *at <= self.desk.now.mono)
            {
                let happening = self.calendar.pop_first().map(|(_, happening)| happening);
                happening.into_iter().for_each(|it| self.happen(it));
            }
            self.look();
            books::check(&self.desk.dispatcher);
        }
    }

    fn happen(&mut self, happening: PoisonEvent) {
        match happening {
            PoisonEvent::Submit { kind, is_poison } => {
                let job = match kind {
                    Kind::Image => self.desk.submit_image(),
                    _ => self.desk.submit_one(),
                };
                if is_poison {
                    self.poison.insert(job);
                }
            }
            PoisonEvent::Start(worker) => self.start(worker),
            PoisonEvent::Write(offer, left) => self.write(offer, left),
            PoisonEvent::Die(session) => self.die(session),
        }
    }

    fn start(&mut self, worker: i64) {
        self.desk.writing_and_drawing(worker);
    }

    /// Handles the dispatcher's effects.
    fn look(&mut self) {
        for effect in self.desk.take() {
            match effect {
                Effect::Offer(offer) if self.poison.contains(&offer.job.id) => {
                    let wait = self.random.millis(1, 1500);
                    self.after(wait, PoisonEvent::Die(offer.session));
                }
                Effect::Offer(offer) => {
                    let (wait, tokens) = (self.random.millis(1, 800), 1 + self.random.below(20));
                    self.after(wait, PoisonEvent::Write(Box::new(offer), tokens));
                }
                Effect::End { job, outcome } => {
                    let expected = self.poison.contains(&job).then_some(FailureKind::BadJob);
                    assert_eq!(failure_kind(&outcome), expected, "{job}: {outcome:?}");
                    self.ended.insert(job, is_delivered(&outcome));
                }
                Effect::Refused { .. } => self.refused += 1,
                _ => {}
            }
        }
    }

    fn write(&mut self, offer: Box<Offer>, left: u64) {
        if !self.desk.dispatcher.sessions.contains_key(&offer.session) {
            return;
        }
        let is_image = offer.job.kind == Kind::Image;
        if left == 0 {
            if is_image {
                self.desk.say(&offer, finished_image());
            }
            self.desk.say(&offer, done());
            return;
        }
        self.desk
            .say(&offer, if is_image { step() } else { token(1) });
        let wait = self.random.millis(1, 300);
        self.after(wait, PoisonEvent::Write(offer, left - 1));
    }

    fn die(&mut self, session: SessionId) {
        let Some(worker) = self.desk.dispatcher.sessions.get(&session).copied() else {
            return;
        };
        self.deaths += 1;
        self.desk.put(Input::Lost { session });
        let wait = self.random.millis(100, 20_000);
        self.after(wait, PoisonEvent::Start(worker.0));
    }
}
