//! Fairness of the queue alone.

use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::{collection, prop_assert, proptest};
use uuid::Uuid;

use super::{Ahead, FairQueue, Ticket};
use crate::dispatch::clock::Mono;
use crate::dispatch::fairness::{Rank, Standing, Weight, Work};
use crate::dispatch::lanes::LaneId;
use muster_protocol::job::{AccountId, JobId, Kudos, RequestId};

const LANE: LaneId = LaneId::FIRST;
const OTHER: LaneId = LaneId::SECOND;

/// A queue for some slots of equal workers.
#[derive(Default)]
struct Counter {
    queue: FairQueue,
    now: Mono,
    issued: u64,
    /// When the job of each slot will finish.
    running: Vec<(Mono, Ticket)>,
}

impl Counter {
    fn push(&mut self, account: i64, work: u64, standing: Standing) -> Ticket {
        let request = RequestId(Uuid::from_u128((self.issued + 1).into()));
        self.push_of(request, account, work, standing)
    }

    /// A request with this many jobs.
    fn push_all(&mut self, account: i64, jobs: usize) -> Vec<Ticket> {
        let request = RequestId(Uuid::from_u128((self.issued + 1).into()));
        (0..jobs)
            .map(|_| self.push_of(request, account, 1000, Standing::default()))
            .collect()
    }

    fn push_of(
        &mut self,
        request: RequestId,
        account: i64,
        work: u64,
        standing: Standing,
    ) -> Ticket {
        self.issued += 1;
        let ticket = Ticket {
            job: JobId(Uuid::from_u128(self.issued.into())),
            account: AccountId(account),
            request,
            arrived: self.now,
            order: self.now,
            number: self.issued,
            work: Work(work),
            weight: Weight::of(standing),
        };
        self.queue.push(LANE, ticket);
        ticket
    }

    fn serve(&mut self, millis_per_work: u64) -> Option<(Rank, Ticket)> {
        let (rank, ticket) = self.queue.head(LANE)?;
        assert!(self.queue.remove(LANE, &ticket));
        self.queue.start(ticket.account, ticket.work, self.now);
        let done = Mono(self.now.0 + ticket.work.0 * millis_per_work);
        self.running.push((done, ticket));
        Some((rank, ticket))
    }

    /// Moves the clock to the next end of a running job.
    fn finish_one(&mut self) {
        let next = self
            .running
            .iter()
            .enumerate()
            .min_by_key(|(_, (done, _))| *done);
        if let Some(index) = next.map(|(index, _)| index) {
            let (done, ticket) = self.running.swap_remove(index);
            self.now = self.now.max(done);
            self.queue.stop(ticket.account, ticket.work);
        }
    }
}

fn standing(kudos: i64) -> Standing {
    Standing {
        kudos: Kudos(kudos * 1000),
        ..Standing::default()
    }
}

/// Work done for each of two accounts that always have waiting jobs.
fn shares(first: Standing, second: Standing, slots: usize) -> (f64, f64) {
    let mut counter = Counter::default();
    let mut served: BTreeMap<i64, u64> = BTreeMap::new();
    for _ in 0..400 {
        counter.push(1, 1000, first);
        counter.push(2, 1000, second);
    }
    for _ in 0..400 {
        while counter.running.len() < slots {
            let Some((_, ticket)) = counter.serve(10_000) else {
                break;
            };
            *served.entry(ticket.account.0).or_default() += 1;
        }
        counter.finish_one();
    }
    (served[&1] as f64, served[&2] as f64)
}

#[test]
fn equals_get_equal_shares() {
    for slots in [1, 4, 32] {
        let (first, second) = shares(standing(0), standing(0), slots);
        assert!(
            (first / second - 1.0).abs() < 0.1,
            "{first} to {second} on {slots} slots"
        );
    }
}

#[test]
fn weights_divide_the_slots() {
    // A million kudos give 3.25 times the weight.
    for slots in [8, 32] {
        let (rich, plain) = shares(standing(1_000_000), standing(0), slots);
        assert!(
            (2.4..4.2).contains(&(rich / plain)),
            "{rich} to {plain} on {slots} slots"
        );
    }
}

#[test]
fn a_bigger_job_counts_for_more() {
    let mut counter = Counter::default();
    for _ in 0..2000 {
        counter.push(1, 4000, standing(0));
        counter.push(2, 1000, standing(0));
    }
    let (mut large, mut small) = (0, 0);
    for _ in 0..1000 {
        while counter.running.len() < 20 && counter.serve(10_000).is_some() {}
        for (_, ticket) in &counter.running {
            *(if ticket.account.0 == 1 {
                &mut large
            } else {
                &mut small
            }) += ticket.work.0;
        }
        counter.finish_one();
    }
    let ratio = large as f64 / small as f64;
    assert!((0.7..1.3).contains(&ratio), "in flight {large} to {small}");
}

#[derive(Debug, Clone)]
enum Step {
    Push { account: i64, work: u64, kudos: i64 },
    Serve,
    Finish,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kudos = prop_oneof![Just(-5), Just(0), Just(50_000), Just(10_000_000)];
    let push = (0..6i64, 125..16_000u64, kudos).prop_map(|(account, work, kudos)| Step::Push {
        account,
        work,
        kudos,
    });
    let wait = (0..30_000_000u64).prop_map(Step::Wait);
    collection::vec(
        prop_oneof![4 => push, 4 => Just(Step::Serve), 2 => Just(Step::Finish), 1 => wait],
        1..300,
    )
}

proptest! {
    /// The head always has the earliest rank, and once the clock has passed a waiting rank, each other account is
    /// served at
    /// most once before it.
    #[test]
    fn nobody_starves(steps in steps()) {
        let mut counter = Counter::default();
        // Per waiting account: the rank of its first job, and accounts served since the clock passed that rank.
        let mut overdue: BTreeMap<i64, (u64, BTreeMap<i64, u32>)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Push { account, work, kudos } => {
                    counter.push(account, work, standing(kudos));
                }
                Step::Finish => counter.finish_one(),
                Step::Wait(micros) => counter.now = Mono(counter.now.0 + micros),
                Step::Serve => {
                    let ranks = counter.queue.ranks(LANE);
                    let Some((rank, ticket)) = counter.serve(1000) else { continue };
                    prop_assert!(ranks.iter().all(|(other, _)| rank <= *other));
                    overdue.remove(&ticket.account.0);
                    for (waiting, account) in ranks {
                        if account == ticket.account || waiting.0 > counter.now.0 {
                            continue;
                        }
                        let (_, overtakers) = overdue
                            .entry(account.0)
                            .or_insert_with(|| (waiting.0, BTreeMap::new()));
                        let times = overtakers.entry(ticket.account.0).or_default();
                        *times += 1;
                        prop_assert!(*times <= 1, "{} overtook {} twice", ticket.account.0, account.0);
                    }
                }
            }
        }
    }

    /// Every pushed job is popped or removed, and none is left.
    #[test]
    fn nothing_is_lost(steps in steps(), removed in collection::vec(0..200usize, 0..20)) {
        let mut counter = Counter::default();
        let mut waiting = Vec::new();
        for step in steps {
            match step {
                Step::Push { account, work, kudos } => waiting.push(counter.push(account, work, standing(kudos))),
                Step::Finish => counter.finish_one(),
                Step::Wait(micros) => counter.now = Mono(counter.now.0 + micros),
                Step::Serve => {
                    let served = counter.serve(1000);
                    waiting.retain(|ticket| served.is_none_or(|(_, it)| it != *ticket));
                }
            }
            prop_assert!(counter.queue.len() == waiting.len());
        }
        for index in removed {
            if index < waiting.len() {
                let ticket = waiting.swap_remove(index);
                prop_assert!(counter.queue.remove(LANE, &ticket));
                prop_assert!(!counter.queue.remove(LANE, &ticket));
            }
        }
        while counter.serve(1).is_some() {}
        while !counter.running.is_empty() {
            counter.finish_one();
        }
        prop_assert!(counter.queue.len() == 0 && counter.queue.accounts() == 0);
        prop_assert!(counter.queue.is_empty(LANE) && counter.queue.lanes.is_empty());
    }
}

#[test]
fn places_are_counted_while_they_are_few_and_reckoned_when_they_are_many() {
    let mut counter = Counter::default();
    let own: Vec<Ticket> = (0..5000)
        .map(|_| counter.push(1, 1000, Standing::default()))
        .collect();
    let ahead = |counter: &Counter, index: usize| counter.queue.ahead(LANE, &own[index]).jobs;
    assert_eq!((ahead(&counter, 0), ahead(&counter, 700)), (0, 700));
    assert!((3990..=4010).contains(&ahead(&counter, 4000)));
    for account in 2..=5 {
        counter.push(account, 1000, Standing::default());
        counter.push(account, 1000, Standing::default());
    }
    // Every account gets a turn before the first is served again.
    assert_eq!((ahead(&counter, 0), ahead(&counter, 700)), (4, 708));
    for account in 6..=3000 {
        counter.push(account, 1000, Standing::default());
    }
    assert!((2900..=3100).contains(&ahead(&counter, 0)));
}

#[test]
fn requests_that_go_first_are_counted_beside_their_jobs() {
    let mut counter = Counter::default();
    let (five, two) = (counter.push_all(1, 5), counter.push_all(1, 2));
    let ahead = |counter: &Counter, ticket: &Ticket| {
        let Ahead { jobs, requests } = counter.queue.ahead(LANE, ticket);
        (jobs, requests)
    };
    assert_eq!(ahead(&counter, &five[0]), (0, 0));
    assert_eq!(ahead(&counter, &two[0]), (5, 1));
    // A job's own request does not count as another.
    assert_eq!(ahead(&counter, &two[1]), (6, 1));
    let (three, one) = (counter.push_all(2, 3), counter.push_all(2, 1));
    assert_eq!(ahead(&counter, &five[0]), (1, 1));
    assert_eq!(ahead(&counter, &two[0]), (5 + 4, 1 + 2));
    // Returning jobs go before all others.
    for ticket in [three[0], three[1], one[0]] {
        assert!(counter.queue.remove(LANE, &ticket));
        counter.queue.push_returning(LANE, ticket);
    }
    assert_eq!(ahead(&counter, &one[0]), (2, 1));
    assert_eq!(ahead(&counter, &two[0]), (3 + 5 + 1, 2 + 1 + 1));
}

#[test]
fn an_account_waits_in_each_lane_by_what_it_has_running() {
    let mut counter = Counter::default();
    let (first, second) = (counter.push_all(1, 1), counter.push_all(1, 1));
    assert!(counter.queue.remove(LANE, &second[0]));
    counter.queue.push(OTHER, second[0]);
    assert_eq!(counter.queue.ranks(LANE), counter.queue.ranks(OTHER));
    counter.queue.start(AccountId(1), Work(1000), counter.now);
    assert_eq!(counter.queue.ranks(LANE), counter.queue.ranks(OTHER));
    assert_eq!(counter.queue.waiting_of(AccountId(1)), 2);
    assert!(counter.queue.remove(LANE, &first[0]));
    assert!(counter.queue.is_empty(LANE) && !counter.queue.is_empty(OTHER));
    assert_eq!(counter.queue.waiting_of(AccountId(1)), 1);
}

#[test]
fn a_long_line_of_one_account_hides_nobody() {
    let mut counter = Counter::default();
    for _ in 0..2000 {
        counter.push(1, 1000, Standing::default());
    }
    let other = counter.push(2, 1000, Standing::default());
    let turn: Vec<_> = counter.queue.in_turn(LANE).map(|(_, it)| it.job).collect();
    assert_eq!(turn.len(), super::LOOK + 1);
    assert!(turn.contains(&other.job));
}
