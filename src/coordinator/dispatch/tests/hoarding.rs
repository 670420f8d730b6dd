//! Polling workers that hold jobs without submitting them.

use super::polling::POLLING;
use super::{Desk, done, is_delivered, secs, token};
use crate::dispatch::polling::MOST_OUT;
use crate::dispatch::{Effect, Facts, Input, Offer, Outcome, Said};
use muster_protocol::job::{Capabilities, Event, Progress, WorkerId};

/// A progress report, which extends the lease.
fn at_it() -> Said {
    Said::Event(Event::Progress(Progress::percent(1)))
}

impl Desk {
    fn settled(&mut self) -> Box<Facts> {
        let settled = self.take().into_iter().find_map(|effect| match effect {
            Effect::Settle(facts) => Some(facts),
            _ => None,
        });
        settled.unwrap()
    }
}

#[test]
fn a_worker_that_polls_has_so_many_jobs_out_for_each_of_its_threads() {
    let mut desk = Desk::new();
    let mut registration = desk.poller_registration(1, POLLING);
    registration.slots = 1;
    let poller = desk.connect(registration.clone());
    for _ in 0..MOST_OUT + 2 {
        desk.stored();
    }
    let mut out: Vec<Offer> = (0..MOST_OUT).flat_map(|_| desk.pop(poller, 1)).collect();
    assert_eq!(out.len(), MOST_OUT);
    assert!(desk.pop(poller, 20).is_empty());
    let brought = out.remove(0);
    desk.say(&brought, token(1)).say(&brought, done());
    assert_eq!(desk.pop(poller, 20).len(), 1);
    assert!(desk.pop(poller, 20).is_empty());
    registration.slots = 2;
    desk.put(Input::Changed(registration.into()));
    assert_eq!(desk.pop(poller, 20).len(), 1);
}

#[test]
fn what_expires_in_the_hands_of_a_worker_that_polls_it_has_dropped() {
    let mut desk = Desk::new();
    let poller = desk.timely_poller(1, Capabilities::TIMELY);
    desk.living(1);
    let offer = desk.pop(poller, 1).remove(0);
    for _ in 0..4 {
        desk.wait(secs(140)).say(&offer, at_it());
    }
    desk.wait(secs(60));
    let facts = desk.settled();
    assert_eq!(
        (&facts.outcome, &facts.dropped[..]),
        (&Outcome::Expired, &[WorkerId(1)][..])
    );
    // A worker that got the job late gets no strike.
    desk.stored();
    desk.wait(secs(500));
    desk.pop(poller, 1);
    desk.wait(secs(110));
    let facts = desk.settled();
    assert_eq!(
        (&facts.outcome, &facts.dropped[..]),
        (&Outcome::Expired, &[][..])
    );
}

#[test]
fn nobody_keeps_a_job_for_longer_than_one_life_of_it_though_its_request_lives_on() {
    let mut desk = Desk::new();
    let keeper = desk.timely_poller(1, Capabilities::TIMELY);
    let other = desk.timely_poller(2, Capabilities::TIMELY);
    desk.living(2);
    let kept = desk.pop(keeper, 1).remove(0);
    desk.wait(secs(140)).say(&kept, at_it());
    let sibling = desk.pop(other, 1).remove(0);
    desk.say(&sibling, token(1)).say(&sibling, done());
    for _ in 0..3 {
        desk.wait(secs(140)).say(&kept, at_it());
    }
    assert!(desk.pop(other, 1).is_empty());
    desk.wait(secs(40));
    let again = desk.pop(other, 1).remove(0);
    assert_eq!((again.job.id, again.attempt), (kept.job.id, 2));
    desk.say(&kept, done());
    assert!(matches!(desk.take()[..], [Effect::Drop { attempt: 1, .. }]));
    desk.say(&again, token(1)).say(&again, done());
    let facts = desk.settled();
    assert!(is_delivered(&facts.outcome));
    assert_eq!(facts.dropped, [WorkerId(1)]);
}
